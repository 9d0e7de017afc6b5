package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// claimed makes the root of a region, as a mirror or as its own, and stores a claim; nil if it was never claimed. It
// returns what promotes the region, whose domain is b.
func claimed(t *testing.T, js jetstream.JetStream, prefix string, mirror bool, region wire.Region, was *claim) *Promotion {
	t.Helper()
	o := options()
	o.Prefix, o.Shards = wire.Prefix(prefix), 1
	c := jetstream.StreamConfig{Name: o.Root(), Metadata: map[string]string{wire.RegionKey: region.String()}}
	if mirror {
		c.Mirror = &jetstream.StreamSource{Name: "FIRST"}
	}
	natstest.CreateStream(t, js, c)
	if was != nil {
		if err := o.setClaim(t.Context(), js, was); err != nil {
			t.Fatal(err)
		}
	}
	return &Promotion{JS: js, Opts: o, Domain: "b", By: "a test"}
}

// TestClaim: a promotion that begins goes on with the one that has begun before, and begins anew only if there is none,
// or if that was undone. The claim counts, and not the mark in the metadata, which a follower may overwrite or leave:
// but an older version of lapse has left nothing else.
//
// It goes red if two promotions of a region give it two identities.
func TestClaim(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{})
	noted, stored := &wire.Promotion{Identity: 5, Domain: "b", From: "a"}, func() *wire.Promotion {
		return &wire.Promotion{Identity: 6, Domain: "b", From: "a"}
	}
	const fresh = 0
	for i, row := range []struct {
		name    string
		mirror  bool
		noted   *wire.Promotion
		claim   *claim
		force   bool
		want    int64 // identity
		refused string
	}{
		{"nothing has begun", true, nil, nil, false, fresh, ""},
		{"a former one has ended", true, nil, &claim{}, false, fresh, ""},
		{"one has begun", true, noted, &claim{Promotion: stored()}, false, 6, ""},
		{"one has begun, and the mark was overwritten", true, nil, &claim{Promotion: stored()}, false, 6, ""},
		{"one changes the streams", false, noted, &claim{Promotion: stored(), Changing: true}, false, 6, ""},
		{"an older version has begun one", true, noted, nil, false, 5, ""},
		{"an older version changes the streams", false, noted, nil, false, 5, ""},
		{"the mark of one that was undone is late", true, noted, &claim{}, false, fresh, ""},
		{"the mark, and the stream is the region's own", false, noted, &claim{}, false, 5, ""},
		{"one is being undone", true, noted, &claim{Promotion: stored(), Undoing: true}, false, 0, "lapse promote --undo again"},
		{"one is being undone, with --force", true, noted, &claim{Promotion: stored(), Undoing: true}, true, fresh, ""},
		{"a demotion", true, nil, &claim{Demotion: true}, true, 0, "run lapse demote again"},
		{"it has ended", false, nil, &claim{}, true, 0, "follows no other any more"},
		{"it is the first", false, nil, nil, true, 0, "follows no other any more"},
	} {
		p := claimed(t, js, fmt.Sprint("p", i), row.mirror, wire.Region{Follows: "a", Promotion: row.noted}, row.claim)
		p.Force = row.force
		before, began := time.Now().UnixNano(), wire.Promotion{}
		for n, drain := range []bool{false, true, false} {
			got, err := p.claim(t.Context(), drain)
			if row.refused != "" {
				if err == nil || !strings.Contains(err.Error(), row.refused) {
					t.Errorf("%s: claimed with %v, want %q", row.name, err, row.refused)
				}
				break
			}
			if n == 0 {
				began = got
			}
			if err != nil || got.Identity != began.Identity || got.Drain != (n > 0) || got.Domain != "b" || got.From != "a" ||
				row.want != fresh && got.Identity != row.want || row.want == fresh && (got.Identity < before || got.By != p.By) {
				t.Errorf("%s: attempt %d has claimed %+v, %v, want %d", row.name, n, got, err, row.want)
			}
			c, err := p.Opts.claim(t.Context(), js)
			if err != nil || c.Promotion == nil || *c.Promotion != got || c.Undoing || c.Changing != (row.claim != nil &&
				row.claim.Changing) {
				t.Errorf("%s: stored is %+v, %v", row.name, c, err)
			}
		}
	}
}

// TestClaims: of two commands that change the role of a region one wins, and the other learns it. A promotion is undone
// before it changes the streams, or finished.
//
// It goes red if an undone promotion goes on, or if a demotion removes the streams of a region that was promoted.
func TestClaims(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), natstest.Connect(t, natstest.Options{})
	p := claimed(t, js, "one", true, wire.Region{Follows: "a"}, nil)
	role := func() (r Role) {
		t.Helper()
		r, err := RoleOf(ctx, js, p.Opts)
		if err != nil && !errors.Is(err, ErrPromotion) {
			t.Fatal(err)
		}
		return r
	}
	begin := func() wire.Promotion {
		t.Helper()
		began, err := p.claim(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		return began
	}
	says := func(want string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %q", err, want)
		}
	}
	undone := func(r Role, want bool) {
		t.Helper()
		if c, err := p.claimUndo(ctx, r); err != nil || (c.Promotion != nil) != want || c.Undoing != want {
			t.Errorf("it is undone: %+v, %v, want %t", c, err, want)
		}
	}
	idle := role()
	former := begin()
	begun := role()
	undone(begun, true)
	undone(begun, true) // it was interrupted
	says("was undone meanwhile", p.claimStreams(ctx, former))
	c := role().claim
	if err := p.Opts.setClaim(ctx, js, &claim{revision: c.revision}); err != nil {
		t.Fatal(err)
	}
	undone(begun, false)
	says("was undone meanwhile", p.claimStreams(ctx, former))
	began := begin()
	if _, err := p.claimUndo(ctx, begun); !errors.Is(err, errClaimed) {
		t.Errorf("another one is undone: %v", err)
	}
	if err := p.claimStreams(ctx, former); !errors.Is(err, errClaimed) {
		t.Errorf("the streams are changed for a former one: %v", err)
	}
	for range 2 {
		if err := p.claimStreams(ctx, began); err != nil {
			t.Error(err)
		}
	}
	if c := role().claim; !c.Changing || c.Promotion.Identity != began.Identity {
		t.Errorf("the claim of a promotion that changes the streams is %+v", c)
	}
	_, err := p.claimUndo(ctx, role())
	says("has begun to change the streams, so the promotion cannot be undone", err)
	d := &Demotion{JS: js, Opts: p.Opts}
	if err := d.Claim(ctx, idle); !errors.Is(err, errClaimed) {
		t.Errorf("demoted by what was known before the promotion: %v", err)
	}
	for _, one := range []wire.Promotion{former, began, began} {
		if err := p.release(ctx, one); err != nil {
			t.Error(err)
		}
		if c := role().claim; (c.Promotion == nil) != (one.Identity == began.Identity) || c.Changing != (c.Promotion != nil) {
			t.Errorf("released is %d, and the claim is %+v", one.Identity, c)
		}
	}
	if err := d.Claim(ctx, role()); err != nil {
		t.Fatal(err)
	}
	if err := d.Claim(ctx, role()); err != nil || !role().claim.Demotion {
		t.Errorf("a demotion that was interrupted: %v", err)
	}
	_, err = p.claim(ctx, false)
	says("run lapse demote again", err)

	if _, err := js.Publish(ctx, p.Opts.Prefix.CheckpointSubject(claimKey), []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	_, err = p.claim(ctx, false)
	if _, undoing := p.claimUndo(ctx, begun); !errors.Is(err, ErrMismatch) || !errors.Is(undoing, ErrMismatch) ||
		!errors.Is(p.claimStreams(ctx, began), ErrMismatch) || !errors.Is(p.release(ctx, began), ErrMismatch) {
		t.Errorf("a claim that cannot be read: %v, %v", err, undoing)
	}
	bucket, err := js.KeyValue(ctx, p.Opts.Prefix.CheckpointBucket())
	if err == nil {
		err = bucket.Delete(ctx, claimKey) // which a person may do
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.claim(ctx, false); err != nil {
		t.Errorf("after a person has deleted the claim: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := p.claim(ended, false); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
}
