package shard

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestG7_AFollowerWaitsForASnapshot: Redis is emptied in a region that follows another one, and the first region has
// replaced the snapshots that the record here names. The owner tries again: the next record names others.
func TestG7_AFollowerWaitsForASnapshot(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.write(start, "a", `{}`)
	r.idle()
	r.snapshot()
	r.idle()
	r.truncate(r.progress.Offset() + 1)
	if err := r.objects.Remove(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	r.wipe()
	r.TakeOverAgain()
	r.Mirror = nothingPublished{}
	if err := r.try(); err == nil || r.fatal(err) || !strings.Contains(err.Error(), "waiting for a snapshot") {
		t.Errorf("in a region that follows another one: %v", err)
	}
	r.Mirror = nil
	if err := r.try(); !errors.Is(err, streams.ErrLogTruncated) || !r.fatal(err) {
		t.Errorf("in the first region: %v", err)
	}
}

// nothingPublished is a Mirror of a region of which nothing is known.
type nothingPublished struct{}

func (nothingPublished) Published() (*Checkpoint, <-chan struct{}) { return nil, nil }
func (nothingPublished) Reached() bool                             { return true }
func (nothingPublished) Ended() context.Context                    { return context.Background() }
