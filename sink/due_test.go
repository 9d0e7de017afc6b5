package sink_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/ttlrules"
)

// cut is the cuts of a collection: the same for both of its indexes.
func cut(collection string, at int64) sink.Cut {
	return sink.Cut{Collection: collection, Cuts: ttlrules.Cuts{Inherit: at, Own: at}}
}

const never = math.MaxInt64 // stands for sink.NoScore

// TestG2_DueAroundTheCut: what stands a millisecond over the cut is not due, what
// stands at it or under it is, in both indexes.
//
// Goes red if due.lua takes the cut for exclusive, or formatCut is off by one.
func TestG2_DueAroundTheCut(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		r.put("orders", "inherit", sink.Header{Ts: far, Etag: 1}, "{}")
		r.put("orders", "own", sink.Header{Ts: far - 5000, Etag: 2, TTL: 5}, "{}")
		r.put("orders", "never", sink.Header{Ts: 1, Etag: 3, TTL: -1}, "{}")
		for off := int64(-1); off <= 1; off++ {
			for _, c := range []ttlrules.Cuts{
				{Inherit: far + off, Own: far + off}, {Inherit: far + off, Own: ttlrules.NoCut},
				{Inherit: ttlrules.NoCut, Own: far + off}, {Inherit: ttlrules.NoCut, Own: ttlrules.NoCut},
			} {
				found, err := r.store.Partition(0).Due(ctx, r.state[0].Version, []sink.Cut{{Collection: "orders", Cuts: c}}, 10, 1<<20, true)
				if err != nil {
					t.Fatal(err)
				}
				want := sink.Due{IDs: []string{}, Documents: []sink.Stored{}, NextInherit: far, NextOwn: far}
				if off >= 0 && c.Inherit != ttlrules.NoCut {
					want.IDs, want.Documents = append(want.IDs, "inherit"), append(want.Documents, r.docs["orders"]["inherit"])
					want.NextInherit = never
				}
				if off >= 0 && c.Own != ttlrules.NoCut {
					want.IDs, want.Documents = append(want.IDs, "own"), append(want.Documents, r.docs["orders"]["own"])
					want.NextOwn = never
				}
				if diff := cmp.Diff([]sink.Due{want}, found); diff != "" {
					t.Errorf("cuts %+v:\n%s", c, diff)
				}
			}
		}
	})
}

// TestDue: the limits of count and bytes hold over all collections together, and
// what is left says at which score it begins, and how much of it is due.
func TestDue(t *testing.T) {
	type want struct {
		ids          string // of all collections, with / between them
		inherit, own []int64
	}
	tests := []struct {
		name         string
		limit, bytes int
		at           int64
		want         want
	}{
		{"nothing is due", 10, 1 << 20, 99, want{"//", []int64{100, 100, never}, []int64{2100, 2100, never}}},
		{"some of it", 100, 1 << 20, 101, want{"i0 i1/i0 i1/", []int64{102, 102, never}, []int64{2100, 2100, never}}},
		{"all of it", 100, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0 i1 i2 o0 o1 o2/", []int64{never, never, never}, []int64{never, never, never}}},
		{"one", 1, 1 << 20, math.MaxInt64, want{"i0//", []int64{101, 100, never}, []int64{2100, 2100, never}}},
		{"up to the end of an index", 3, 1 << 20, math.MaxInt64, want{"i0 i1 i2//", []int64{never, 100, never}, []int64{2100, 2100, never}}},
		{"into the second index", 4, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0//", []int64{never, 100, never}, []int64{2101, 2100, never}}},
		{"into the second collection", 7, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0/", []int64{never, 101, never}, []int64{never, 2100, never}}},
		{"no bytes, but one document", 100, 1, math.MaxInt64, want{"i0//", []int64{101, 100, never}, []int64{2100, 2100, never}}},
		{"bytes for two", 100, 2 * 1017, math.MaxInt64, want{"i0 i1//", []int64{102, 100, never}, []int64{2100, 2100, never}}},
		{"bytes for two and a bit", 100, 2*1017 + 1, math.MaxInt64, want{"i0 i1 i2//", []int64{never, 100, never}, []int64{2100, 2100, never}}},
		{"bytes into the second index", 100, 4 * 1017, math.MaxInt64, want{"i0 i1 i2 o0//", []int64{never, 100, never}, []int64{2101, 2100, never}}},
		{"bytes for one collection", 100, 6 * 1017, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2//", []int64{never, 100, never}, []int64{never, 2100, never}}},
		{"bytes into the second collection", 100, 7 * 1017, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0/", []int64{never, 101, never}, []int64{never, 2100, never}}},
	}
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		for _, c := range []string{"a", "b"} {
			for i := range 3 {
				r.put(c, fmt.Sprint("i", 2-i), sink.Header{Ts: int64(102 - i), Etag: 1}, strings.Repeat("x", 1000))
				r.put(c, fmt.Sprint("o", 2-i), sink.Header{Ts: int64(102 - i), Etag: 1, TTL: 2}, strings.Repeat("x", 1000))
			}
		}
		for _, tt := range tests {
			found, err := r.store.Partition(0).Due(ctx, r.state[0].Version,
				[]sink.Cut{cut("a", tt.at), cut("b", tt.at), cut("empty", tt.at)}, tt.limit, tt.bytes, true)
			if err != nil {
				t.Fatal(err)
			}
			var got want
			var ids []string
			for i, c := range []string{"a", "b", "empty"} {
				ids = append(ids, strings.Join(found[i].IDs, " "))
				got.inherit, got.own = append(got.inherit, found[i].NextInherit), append(got.own, found[i].NextOwn)
				due := int64(0)
				for _, d := range r.docs[c] {
					if d.Header.Ts+1000*int64(d.Header.TTL) <= tt.at {
						due++
					}
				}
				if all := int64(len(found[i].IDs)) + found[i].Left; all != due {
					t.Errorf("%s: %s: %d are returned and left, want %d", tt.name, c, all, due)
				}
				for j, id := range found[i].IDs {
					if found[i].Documents[j] != r.docs[c][id] {
						t.Errorf("%s: %s/%s is another document", tt.name, c, id)
					}
				}
			}
			got.ids = strings.Join(ids, "/")
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s:\n%s", tt.name, diff)
			}
		}
		// Without bodies their bytes do not count.
		found, err := r.store.Partition(0).Due(ctx, r.state[0].Version, []sink.Cut{cut("a", math.MaxInt64)}, 100, 17*4, false)
		if err != nil || !slices.Equal(found[0].IDs, []string{"i0", "i1", "i2", "o0"}) || found[0].Documents[0].Body != "" {
			t.Errorf("headers of what is due: %+v, %v", found, err)
		}
	})
}

// TestDueReapsAll reaps in chunks until nothing is due: everything comes once.
func TestDueReapsAll(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		for c := range 3 {
			var changes []sink.Change
			for i := range 300 {
				h := sink.Header{Ts: int64(i / 7), Etag: 1, TTL: ttlrules.TTL(i%3 - 1)}
				changes = append(changes, r.change(fmt.Sprint("c", c), fmt.Sprint(i), &h, []byte(strings.Repeat("x", i))))
			}
			r.write(fmt.Sprint("c", c), changes...)
		}
		cuts := []sink.Cut{cut("c0", math.MaxInt64), cut("c1", math.MaxInt64), cut("c2", math.MaxInt64)}
		for n := 0; ; n++ {
			found, err := r.store.Partition(0).Due(ctx, r.state[0].Version, cuts, 50, 4000, true)
			if err != nil {
				t.Fatal(err)
			}
			var changes []sink.CollectionChanges
			for i, f := range found {
				c := sink.CollectionChanges{Collection: cuts[i].Collection}
				for j, id := range f.IDs {
					if f.Documents[j] != r.docs[c.Collection][id] {
						t.Fatalf("%s/%s is not what was stored, or comes twice", c.Collection, id)
					}
					c.Changes = append(c.Changes, sink.Change{ID: id, Old: &f.Documents[j].Header})
				}
				if len(c.Changes) > 0 {
					changes = append(changes, c)
				}
			}
			if len(changes) == 0 {
				break
			}
			r.commit(0, nil, changes...)
			if n > 900 {
				t.Fatal("it does not end")
			}
		}
		for name, docs := range r.docs {
			if len(docs) != 100 {
				t.Errorf("collection %s has %d documents left, want the 100 that never expire", name, len(docs))
			}
		}
	})
}

// TestDueDamaged: a document that is only in the index is damage.
func TestDueDamaged(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, 1000)
		r.put("orders", "a", sink.Header{Ts: 1, Etag: 1}, "{}")
		p, version := r.store.Partition(0), r.state[0].Version
		for value, field := range map[string]string{"": "a", "short": "a"} {
			s.client.HSet(ctx, r.key(0, "docs:orders"), field, value)
			_, err := p.Due(ctx, version, []sink.Cut{cut("orders", 1)}, 1, 1, true)
			wantErr(t, err, sink.ErrDamaged, "due with the document "+value)
			_, err = p.Read(ctx, version, []sink.Want{{Collection: "orders", Headers: []string{"a"}}})
			wantErr(t, err, sink.ErrDamaged, "read with the document "+value)
			_, _, _, err = p.Scan(ctx, version, "orders", "0", 10)
			wantErr(t, err, sink.ErrDamaged, "scan with the document "+value)
		}
		s.client.HDel(ctx, r.key(0, "docs:orders"), "a")
		_, err := p.Due(ctx, version, []sink.Cut{cut("orders", 1)}, 1, 1, true)
		wantErr(t, err, sink.ErrDamaged, "due without the document")
	})
}

// TestG2_ClockOfTheServer: what a partition knows of its server's clock is what it shows
// or less, never more, and nothing before it was asked or after a takeover.
//
// Goes red if the clock is taken for what this process's shows.
func TestG2_ClockOfTheServer(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, 1000)
		p := r.store.Partition(0)
		if now := p.Clock(); now != math.MinInt64 {
			t.Errorf("before anything was asked the clock shows %d", now)
		}
		for range 100 {
			if _, err := p.Due(ctx, r.state[0].Version, nil, 1, 1, true); err != nil {
				t.Fatal(err)
			}
			known := p.Clock()
			shown, err := s.client.Time(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			if late := shown.UnixMilli() - known; late < 0 || late > 5000 {
				t.Errorf("the clock shows %d, and is known to show %d", shown.UnixMilli(), known)
			}
		}
		if err := p.Take(ctx, sink.State{Version: r.state[0].Version}, "taken", 0); err != nil {
			t.Fatal(err)
		}
		if now := p.Clock(); now != math.MinInt64 {
			t.Errorf("after a takeover the clock shows %d", now)
		}
	})
}
