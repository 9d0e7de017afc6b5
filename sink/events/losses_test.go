package events

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// An answer with a sequence that the stream had before shows that it has lost its end (G12). From then on
// the fences of before are refused, because their partitions may have lost outputs too.
//
// It goes red if a partition goes on publishing although another one has seen the loss.
func TestG12_AnEarlierSequenceIsALoss(t *testing.T) {
	p := newRig(t, natstest.Options{}, jetstream.StreamConfig{}).p
	old := p.fence(1, Place{Seq: 7, Key: Key{keyFence, 1}})
	if err := p.follows(0, 8, Place{Seq: 8, Key: Key{keyExpired, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := p.follows(7, 9, Place{Seq: 9, Key: Key{keyExpired, 2}}); err != nil || p.Last().Seq != 9 {
		t.Errorf("a later message: %v, and the last one is %v", err, p.Last())
	}
	if err := p.follows(9, 9, Place{Seq: 10, Key: Key{keyExpired, 3}}); !errors.Is(err, ErrLost) || p.Losses() != 1 {
		t.Errorf("a batch that begins where another message was: %v, %d losses", err, p.Losses())
	}
	if _, err := p.Publish(t.Context(), old, []Message{{Key: Key{keyExpired, 4}}}); !errors.Is(err, ErrLost) {
		t.Errorf("a fence of before: %v", err)
	}
	if now := p.fence(1, Place{Seq: 11}); now.losses != p.Losses() {
		t.Errorf("a new fence: %+v", now)
	}
}
