package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestG7_TheOriginStays: a shard that was begun anew begins where the log began then. All later
// checkpoints say so: else it could not be rebuilt after a loss, as the log does not reach back to its
// own beginning.
//
// It fails if a checkpoint that moves on forgets the origin.
func TestG7_TheOriginStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	checkpoints := r.Checkpoints
	if err := checkpoints.Replace(t.Context(), Checkpoint{Origin: 7, Seq: 7}); err != nil {
		t.Fatal(err)
	}
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{Origin: 7, Seq: 7}, 7)
	c := NewCheckpointer(checkpoints, a, health.New(slog.New(slog.DiscardHandler)), nil)
	for _, seq := range []uint64{8, 9} {
		a.Settle(&Checkpoint{Seq: seq})
		if err := c.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := checkpoints.Load(t.Context()); err != nil || got.Seq != seq || got.Origin != 7 {
			t.Errorf("the checkpoint at %d: %+v, %v", seq, got, err)
		}
	}
}

// TestG7_ADamagedCheckpointIsNoOtherLog: a value that cannot be read is no reason to tell a person to remove
// the bucket. One of another log is.
func TestG7_ADamagedCheckpointIsNoOtherLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log, s := r.Log, r.Checkpoints
	for value, want := range map[string]bool{`{"seq":`: false, `{"format":3,"stamp":"x"}`: false,
		`{"format":99}`: false, `{"log":"1"}`: false, `{"format":3,"log":"1"}`: true} {
		if _, err := s.parse([]byte(value)); err == nil || errors.Is(err, streams.ErrLogChanged) != want {
			t.Errorf("checkpoint %s: %v", value, err)
		}
	}
	if c, err := s.parse(fmt.Appendf(nil, `{"format":3,"seq":7,"log":%q}`, log.ID())); err != nil || c.Seq != 7 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestG3_CheckpointsMoveOn: each round stores the checkpoints that have moved on since the one before.
func TestG3_CheckpointsMoveOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.Checkpoints
	if err := s.Replace(t.Context(), Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{}, 0)
	c := NewCheckpointer(s, a, nil, nil)
	for _, seq := range []uint64{5, 5, 9} {
		a.Settle(&Checkpoint{Seq: seq, Watermark: 1})
		if err := c.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stored, err := s.Load(t.Context()); err != nil || stored.Seq != seq {
			t.Errorf("after checkpoint %d, the stored one is %+v, %v", seq, stored, err)
		}
	}
}

// TestG12_NoCheckpointWithoutAnAnswer: a checkpoint that cannot be read is not one that does not exist, and one that
// cannot be stored is not one that is stored. Only a bucket that is gone is named as gone.
func TestG12_NoCheckpointWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.Checkpoints
	if c, err := s.Load(t.Context()); c != (Checkpoint{}) || err != nil {
		t.Errorf("there is none: %+v, %v", c, err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		gone bool
	}{{"without an answer", canceled, false}, {"without a bucket", t.Context(), true}} {
		if tt.gone {
			if err := r.js.DeleteKeyValue(t.Context(), r.streams.Checkpoints.Bucket()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Load(tt.ctx); err == nil || errors.Is(err, streams.ErrStreamGone) != tt.gone {
			t.Errorf("%s: read: %v", tt.name, err)
		}
		if err := s.Replace(tt.ctx, Checkpoint{Seq: 1}); err == nil {
			t.Errorf("%s: it is replaced", tt.name)
		}
		if err := s.advance(tt.ctx, Checkpoint{Seq: 1},
			func() bool { t.Error("it goes on"); return true }); err == nil {
			t.Errorf("%s: it moves on", tt.name)
		}
	}
}

// TestG12_ACheckpointMovesOn: only to a later one of this log, and not if a takeover replaces it meanwhile.
func TestG12_ACheckpointMovesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log, s := r.Log, r.Checkpoints
	if err := s.Replace(t.Context(), Checkpoint{Seq: 5, GivenUp: 3}); err != nil {
		t.Fatal(err)
	}
	replace := func() bool { return s.Replace(t.Context(), Checkpoint{Seq: 6}) == nil }
	for _, tt := range []struct {
		name   string
		seq    uint64
		counts func() bool
		want   uint64
		fails  bool
	}{
		{"an earlier one", 4, func() bool { return true }, 5, false},
		{"the same", 5, func() bool { return true }, 5, false},
		{"one that does not count any more", 8, func() bool { return false }, 5, false},
		{"one that is replaced meanwhile", 8, replace, 6, true},
		{"a later one", 8, func() bool { return true }, 8, false},
	} {
		_, before, _ := log.Value(t.Context(), CheckpointKey(0))
		err := s.advance(t.Context(), Checkpoint{Seq: tt.seq}, tt.counts)
		stored, _ := s.Load(t.Context())
		_, after, _ := log.Value(t.Context(), CheckpointKey(0))
		if stored.Seq != tt.want || (err != nil) != tt.fails || (after == before) != (tt.want == 5) {
			t.Errorf("%s: %+v, at revision %d after %d, %v", tt.name, stored, after, before, err)
		}
	}
	if _, err := r.streams.Checkpoints.PutString(t.Context(), CheckpointKey(0), `{"format":3,"log":"1"}`); err != nil {
		t.Fatal(err)
	}
	if err := s.advance(t.Context(), Checkpoint{Seq: 9}, func() bool { return true }); !errors.Is(err,
		streams.ErrLogChanged) {
		t.Errorf("one of another log: %v", err)
	}
}

// TestG11_ACheckpointThatCannotBeStored: it is tried again, and named. One that has not moved on is not stored again,
// and one of before a takeover not after it.
func TestG11_ACheckpointThatCannotBeStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.Checkpoints.Replace(t.Context(), Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	a := NewAnnouncer(&r.Parts, self{})
	var visited []crash.Point
	var fails func(here crash.Point) bool
	c := NewCheckpointer(r.Checkpoints, a, nil, func(here crash.Point) error {
		if visited = append(visited, here); fails != nil && fails(here) {
			return errFail
		}
		return nil
	})
	if err := c.RunOnce(t.Context()); err != nil || len(visited) > 0 {
		t.Errorf("nothing is settled: %v, %v", visited, err)
	}
	r.begin(a, Checkpoint{}, 0)
	a.Settle(&Checkpoint{Seq: 7})
	for _, tt := range []struct {
		name   string
		fails  crash.Point
		visits int
		stored uint64
	}{
		{"it fails before", crash.BeforeCheckpoint, 1, 0},
		{"it fails after", crash.AfterCheckpoint, 2, 7},
		{"it is tried again", "", 2, 7},
		{"it has not moved on", "", 0, 7},
	} {
		visited, fails = nil, func(here crash.Point) bool { return here == tt.fails }
		err := c.RunOnce(t.Context())
		stored, _ := r.Checkpoints.Load(t.Context())
		if len(visited) != tt.visits || stored.Seq != tt.stored || tt.fails == "" && err != nil ||
			tt.fails != "" && (!errors.Is(err, errFail) || err.Error() != "checkpoint of shard 0: fails") {
			t.Errorf("%s: %v, %+v, %v", tt.name, visited, stored, err)
		}
	}
	a.Begin(Checkpoint{}, 0, a.Last()) // a takeover
	a.settled.Store(&Checkpoint{Seq: 9})
	fails = func(crash.Point) bool { a.settled.Store(nil); return false }
	if err := c.RunOnce(t.Context()); err != nil {
		t.Error(err)
	}
	if stored, err := r.Checkpoints.Load(t.Context()); stored.Seq != 7 || err != nil {
		t.Errorf("a checkpoint of before a takeover is stored after it: %+v, %v", stored, err)
	}
	fails = nil
	a.settled.Store(&Checkpoint{Seq: 10})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RunOnce(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
}

// TestG11_WhyCheckpointsAreNotStored: health names it as long as it lasts.
func TestG11_WhyCheckpointsAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAnnouncer(&Parts{}, self{})
		a.settled.Store(&Checkpoint{Seq: 1})
		board := health.New(slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go NewCheckpointer(NewCheckpoints(nil, 0), a, board, func(crash.Point) error { return errFail }).Run(ctx)
		for _, problem := range []bool{true, false} {
			time.Sleep(checkpointEvery)
			synctest.Wait()
			if err := board.Err(); errors.Is(err, errFail) != problem {
				t.Errorf("the problem is %v", err)
			}
			a.settled.Store(nil)
		}
	})
}
