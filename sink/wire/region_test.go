package wire_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion: the metadata of a log keep what it has to do with other regions, with the identity of the log that it
// mirrors, whatever it was restored from.
func TestRegion(t *testing.T) {
	created := time.Unix(5, 7)
	promotion := wire.Promotion{Identity: 3, Domain: "west", From: "east", At: time.Unix(60, 0).UTC(), By: "ops", Drain: true}
	want := wire.Region{Identity: 2, Follows: "east", Former: []wire.Former{{1, 10, 11, 12, promotion}},
		Promotion: &promotion, Superseded: &promotion}
	metadata := map[string]string{wire.RegionKey: want.String(), wire.RestoredKey: "9 1 2"}
	got, err := wire.ParseRegion(metadata)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if id := wire.Identity(metadata, created); id != 2 {
		t.Errorf("the identity of a mirror is %d, want 2", id)
	}
	metadata[wire.RegionKey] = wire.Region{Superseded: &promotion}.String()
	if id := wire.Identity(metadata, created); id != 9 {
		t.Errorf("the identity of a log that mirrors none is %d, want that of what it was restored from, 9", id)
	}
	if got, err := wire.ParseRegion(nil); err != nil || !cmp.Equal(got, wire.Region{}) {
		t.Errorf("a log without other regions has %+v, %v", got, err)
	}
	for _, bad := range []string{"x", `{"identity":"2"}`, `{"identity":2,"follows":3}`} {
		if got, err := wire.ParseRegion(map[string]string{wire.RegionKey: bad}); err == nil || !cmp.Equal(got, wire.Region{}) {
			t.Errorf("%s is read as %+v, %v", bad, got, err)
		}
	}
	if got, want := promotion.String(), `at 1970-01-01T00:01:00Z by ops, in the JetStream domain "west"`; got != want {
		t.Errorf("a promotion is %q, want %q", got, want)
	}
}

// TestFurther: of two shards the messages add up, and the time is that of the one that is furthest behind: not known if
// either does not know it. The first region is down since the first of them says so.
func TestFurther(t *testing.T) {
	for _, c := range []struct{ all, one, want *wire.Following }{
		{nil, nil, nil},
		{&wire.Following{Domain: "a", Behind: 1}, nil, &wire.Following{Domain: "a", Behind: 1}},
		{nil, &wire.Following{Domain: "a", Behind: 1}, &wire.Following{Domain: "a", Behind: 1}},
		{&wire.Following{Domain: "a", Behind: 1, AsOf: 50, Down: 70}, &wire.Following{Domain: "a", Behind: 2, AsOf: 40, Down: 60},
			&wire.Following{Domain: "a", Behind: 3, AsOf: 40, Down: 60}},
		{&wire.Following{AsOf: 50, Down: 60}, &wire.Following{AsOf: 60, Down: 70}, &wire.Following{AsOf: 50, Down: 60}},
		{&wire.Following{AsOf: 50}, &wire.Following{Down: 1}, &wire.Following{Down: 1}},
		{&wire.Following{Down: 1}, &wire.Following{AsOf: 50}, &wire.Following{Down: 1}},
	} {
		var before wire.Following
		if c.all != nil {
			before = *c.all
		}
		if diff := cmp.Diff(c.want, wire.Further(c.all, c.one)); diff != "" {
			t.Errorf("%+v and %+v (-want +got):\n%s", c.all, c.one, diff)
		}
		if c.all != nil && *c.all != before {
			t.Errorf("%+v became %+v", before, *c.all)
		}
	}
}

// TestStaleness: the documents are as old as the time until which all is applied. A clock that is behind makes them no
// newer than now, and a time that is not known has no age.
func TestStaleness(t *testing.T) {
	now := time.UnixMilli(10_000)
	for asOf, want := range map[wire.Time]time.Duration{4000: 6 * time.Second, 10_000: 0, 12_000: 0} {
		if d, ok := (wire.Following{AsOf: asOf}).Staleness(now); d != want || !ok {
			t.Errorf("as of %d: %s, %t, want %s", asOf, d, ok, want)
		}
	}
	if d, ok := (wire.Following{}).Staleness(now); ok {
		t.Errorf("what is not known is %s old", d)
	}
	known := wire.Following{Domain: "east", Behind: 7, AsOf: wire.Time(time.Now().Add(-time.Hour).UnixMilli())}.String()
	if !strings.HasPrefix(known, `follows the region "east", 7 messages behind, as it was 1h0m`) ||
		!strings.HasSuffix(known, "s ago") {
		t.Errorf("it reads %q", known)
	}
	down := wire.Following{Domain: "east", Down: 60_000}.String()
	if want := `follows the region "east", 0 messages behind, and has not reached it yet, which does not answer since ` +
		"1970-01-01T00:01:00.000Z"; down != want {
		t.Errorf("it reads %q, want %q", down, want)
	}
}

// TestKeepGenerations: a record keeps the generations that stay, in their order.
func TestKeepGenerations(t *testing.T) {
	r := wire.SnapshotRecord{Generations: []wire.Generation{{Generation: 4}, {Generation: 3}, {Generation: 2}}}
	r.Keep(func(g wire.Generation) bool { return g.Generation != 3 })
	if want := []wire.Generation{{Generation: 4}, {Generation: 2}}; !cmp.Equal(r.Generations, want) {
		t.Errorf("it keeps %+v", r.Generations)
	}
}
