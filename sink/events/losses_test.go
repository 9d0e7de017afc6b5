package events

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// An answer with a sequence that the stream had before shows that it has lost its end (G12). From then on
// the fences of before are refused, because their shards may have lost outputs too.
//
// It goes red if a shard goes on publishing although another one has seen the loss.
func TestG12_AnEarlierSequenceIsALoss(t *testing.T) {
	p := newRig(t, natstest.Options{}, jetstream.StreamConfig{}).p
	old := p.fence(1, Place{Seq: 7, Key: Key{Kind: keyFence, Seq: 1}})
	if err := p.follows(0, 8, Place{Seq: 8, Key: Key{Kind: keyExpired, Seq: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := p.follows(7, 9, Place{Seq: 9, Key: Key{Kind: keyExpired, Seq: 2}}); err != nil || p.Last().Seq != 9 {
		t.Errorf("a later message: %v, and the last one is %v", err, p.Last())
	}
	if err := p.follows(9, 9, Place{Seq: 10, Key: Key{Kind: keyExpired, Seq: 3}}); !errors.Is(err, ErrLost) ||
		p.Losses() != 1 {
		t.Errorf("a batch that begins where another message was: %v, %d losses", err, p.Losses())
	}
	if _, err := p.Publish(t.Context(), old, []Message{{Key: Key{Kind: keyExpired, Seq: 4}}}); !errors.Is(err, ErrLost) {
		t.Errorf("a fence of before: %v", err)
	}
	if now := p.fence(1, Place{Seq: 11}); now.losses != p.Losses() {
		t.Errorf("a new fence: %+v", now)
	}
}

// Three shards publish at the same time, and the stream loses what two of them have stored before it
// stores what the third has sent (G12). The third has its answer where another one had its own, and what the
// others publish from then on is refused, although it is stored behind what they had.
//
// It goes red if an answer is compared only with what was stored when its messages were sent.
func TestG12_AnswersShowALoss(t *testing.T) {
	p := newRig(t, natstest.Options{}, jetstream.StreamConfig{}).p
	old := p.Losses()
	answer := func(seq uint64, n int) error {
		g := &group{messages: make([]Message, n), mode: atomicBatch, seq: seq}
		p.acks.mu.Lock()
		defer p.acks.mu.Unlock()
		return p.acks.follows(g)
	}
	for _, step := range []struct {
		seq  uint64
		n    int
		lost bool
	}{{9, 1, false}, {12, 3, false}, {10, 1, true}, {12, 2, false}, {14, 3, true}, {20, 1, false}} {
		if err := answer(step.seq, step.n); errors.Is(err, ErrLost) != step.lost {
			t.Errorf("%d messages up to sequence %d: %v", step.n, step.seq, err)
		}
	}
	if p.Losses() != old+2 {
		t.Errorf("%d losses, want 2", p.Losses()-old)
	}
}

// TestG12_ABarrierInPlaceOfALostOutput: the stream has lost an output, and a barrier takes its sequence before anything
// else is published. It fails if what follows is published behind the barrier, with a fence of before: nobody would
// miss the output any more.
func TestG12_ABarrierInPlaceOfALostOutput(t *testing.T) {
	r := newRig(t, natstest.Options{}, fastBatches)
	fence := r.fence()
	r.publishBehind(fence, rejections("a", 1, 1))
	at := r.p.Last()
	r.p.last = Place{at.Seq + 1, at.Key} // what was stored, and is lost
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if seq, err := r.p.barrier(ended); err == nil || seq != 0 {
		t.Fatalf("a barrier that is not published is at %d: %v", seq, err)
	}
	if seq, err := r.p.barrier(t.Context()); err != nil || seq != at.Seq+1 {
		t.Fatalf("the barrier is at %d, want %d: %v", seq, at.Seq+1, err)
	}
	if _, err := r.p.Publish(t.Context(), fence, rejections("a", 2, 1)); !errors.Is(err, ErrLost) {
		t.Errorf("with the fence of before: %v", err)
	}
	r.publishBehind(r.fence(), rejections("a", 2, 1))
}

// TestG12_ATailForgetsWhatIsLost: the stream loses its end, and grows again, while somebody holds the
// tail. The next one who covers it finds what the stream has now, and no output that it has lost.
//
// Goes red if a tail reads on from where it has ended.
func TestG12_ATailForgetsWhatIsLost(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		for _, grown := range []int{1, 5, 20} {
			r := newRig(t, natstest.Options{}, config)
			lost := rejections("x", 1, 10)
			end := r.publish(lost...)
			tail := r.p.NewTail(testLog)
			tail.Hold()
			r.cover(tail, 2, end.Seq)
			r.renew(config)
			if _, err := r.p.Fence(t.Context(), 1); err != nil { // as a takeover does
				t.Fatal(err)
			}
			again := rejections("x", 101, grown)
			end = r.publish(again...)
			r.cover(tail, 0, end.Seq)
			for _, m := range lost {
				if _, found := tail.Find(m); found {
					t.Errorf("grown by %d: the tail has %s, which is lost", grown, m.Key)
				}
			}
			for _, m := range again {
				if _, found := tail.Find(m); !found {
					t.Errorf("grown by %d: the tail does not have %s", grown, m.Key)
				}
			}
			if named := tail.Named(0, 0); named[len(named)-1].Seq != uint64(100+grown) {
				t.Errorf("grown by %d: it names %+v", grown, named)
			}
			tail.Release()
		}
	})
}
