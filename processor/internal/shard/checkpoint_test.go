package shard

import (
	"log/slog"
	"testing"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestG7_TheOriginStays: a partition that was begun anew begins where the log began then. All later
// checkpoints say so: else it could not be rebuilt after a loss, as the log does not reach back to its
// own beginning.
//
// It fails if a checkpoint that moves on forgets the origin.
func TestG7_TheOriginStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	checkpoints := NewCheckpoints(streams.NewLog(r.streams, r.channel.Link))
	if err := checkpoints.Replace(t.Context(), 0, Checkpoint{Origin: 7, Seq: 7}); err != nil {
		t.Fatal(err)
	}
	a := NewAnnouncer(r.channel, 0, self{})
	r.takeOver(a, Checkpoint{Origin: 7, Seq: 7}, 7)
	c := NewCheckpointer(checkpoints, []*Announcer{a}, health.New(slog.New(slog.DiscardHandler)), nil)
	for _, seq := range []uint64{8, 9} {
		a.Settle(&Checkpoint{Seq: seq})
		if err := c.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := checkpoints.Load(t.Context(), 0); err != nil || got.Seq != seq || got.Origin != 7 {
			t.Errorf("the checkpoint at %d: %+v, %v", seq, got, err)
		}
	}
}
