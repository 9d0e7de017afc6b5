package events

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

func (r *rig) holds(at Place) bool {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	holds, err := r.p.Holds(ctx, testLog, at)
	if err != nil {
		r.t.Fatal(err)
	}
	return holds
}

// renew makes the stream anew, as it is after it has lost everything.
func (r *rig) renew(config jetstream.StreamConfig) {
	r.t.Helper()
	if err := r.js.DeleteStream(r.t.Context(), prefix.EventsStream()); err != nil {
		r.t.Fatal(err)
	}
	r.stream = natstest.CreateStream(r.t, r.js, eventsConfig(config))
}

// TestG12_HoldsWhatWasStored: the stream still has what it had stored at a place, or its limits have
// removed that; or it has lost it.
//
// Goes red if Holds compares sequences alone, or takes what was removed for lost.
func TestG12_HoldsWhatWasStored(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		r := newRig(t, natstest.Options{}, config)
		check := func(what string, want bool, at Place) {
			t.Helper()
			if got := r.holds(at); got != want {
				t.Errorf("%s: the stream holds %q: %t", what, at, got)
			}
		}
		check("nothing is known", true, Place{})
		check("nothing is stored", false, Place{1, Key{Kind: keyExpired, Seq: 1}})
		expired, rejected := r.publish(event("a", 1, "{}")), r.publish(rejection("b", 2, "{}"))
		f := r.fence()
		fence := f.Place()
		for _, at := range []Place{expired, rejected, fence} {
			check("it is there", true, at)
			check("there is another kind", false, Place{at.Seq, Key{Kind: 'x', Seq: at.Key.Seq}})
			check("there is another output", false, Place{at.Seq, Key{Kind: at.Key.Kind, Seq: at.Key.Seq + 1}})
		}
		check("the stream is shorter", false, Place{1000, rejected.Key})
		if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: "lapse.rejected.orders.a"}); err != nil {
			t.Fatal(err)
		}
		_, last, err := r.p.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		check("a stranger's message is there", false, Place{last, rejected.Key})

		// Somebody deletes the rejection: the stream has a hole, and not another message there.
		if err := r.stream.DeleteMsg(t.Context(), rejected.Seq); err != nil {
			t.Fatal(err)
		}
		check("it is deleted", true, rejected)
		check("another is deleted", true, fence)
		// The stream's limits remove the beginning.
		if err := r.stream.Purge(t.Context(), jetstream.WithPurgeSequence(fence.Seq)); err != nil {
			t.Fatal(err)
		}
		check("it has aged out", true, expired)
		check("it is the first", true, fence)
		if err := r.stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("all have aged out", true, fence)

		// The stream has lost all, and grows again.
		r.renew(config)
		check("the stream has lost all", false, expired)
		if _, err := r.p.Fence(t.Context(), 1); err != nil { // as a takeover does
			t.Fatal(err)
		}
		for _, m := range rejections("x", 1001, int(fence.Seq)) {
			now := r.publish(m)
			for _, at := range []Place{expired, fence} {
				check("the stream has grown again, and "+now.String()+" is its last", false, at)
			}
			check("what it has now", true, now)
		}
	})
}

// TestG12_HoldsOnReplicas: Holds is right on a stream with three replicas, also while its leader
// steps down. Only if no server has the end of the stream is it lost.
func TestG12_HoldsOnReplicas(t *testing.T) {
	t.Parallel()
	r, _ := newCluster(t, jetstream.StreamConfig{Replicas: 3})
	fence := r.fence()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := fence.Place()
	beyond := Place{1_000_000, at.Key}
	for round := range 3 {
		m := rejections("x", 10*round+1, 10)
		for {
			stored, err := r.p.Publish(ctx, fence, m)
			if err == nil {
				at = stored
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			fence = r.fence() // as a taking over owner
		}
		places := map[Place]bool{at: true, beyond: false, {at.Seq, Key{Kind: keyExpired, Seq: 7}}: false}
		moved, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			answers := 0 // in a row, after the leader has moved
			for answers < 3*len(places) && ctx.Err() == nil {
				for place, want := range places {
					limited, cancel := context.WithTimeout(ctx, 2*time.Second) // a leader that has gone does not answer
					holds, err := r.p.Holds(limited, testLog, place)
					cancel()
					if err == nil && holds != want {
						t.Errorf("round %d: the stream holds %s: %t", round, place, holds)
					}
					select {
					case <-moved:
						answers++
					default:
					}
					if err != nil {
						answers = 0
					}
				}
			}
		}()
		r.stepDown()
		close(moved)
		<-done
	}
	if ctx.Err() != nil {
		t.Fatal("Holds did not return within a minute")
	}
	if err := r.stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	if !r.holds(at) {
		t.Error("what was purged counts as lost")
	}
	r.renew(jetstream.StreamConfig{Replicas: 3})
	if r.holds(at) {
		t.Error("a stream that has lost all holds what it had")
	}
	_, last, err := r.p.Ends(ctx)
	if err != nil || last >= at.Seq {
		t.Errorf("to see that, the stream got %d messages, and had %d: %v", last, at.Seq, err)
	}
}
