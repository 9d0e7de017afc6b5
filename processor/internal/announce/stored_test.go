package announce

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestG12_NoCheckpointWithoutAnAnswer: a checkpoint that cannot be read is not one that does not exist, and one that
// cannot be stored is not one that is stored. Only a bucket that is gone is named as gone.
func TestG12_NoCheckpointWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := NewCheckpoints(streams.NewLog(r.streams, r.channel.Link))
	if c, err := s.Load(t.Context(), 0); c != (Checkpoint{}) || err != nil {
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
		if _, err := s.Load(tt.ctx, 0); err == nil || errors.Is(err, streams.ErrStreamGone) != tt.gone {
			t.Errorf("%s: read: %v", tt.name, err)
		}
		if err := s.Replace(tt.ctx, 0, Checkpoint{Seq: 1}); err == nil {
			t.Errorf("%s: it is replaced", tt.name)
		}
		if err := s.advance(tt.ctx, 0, Checkpoint{Seq: 1}, func() bool { t.Error("it goes on"); return true }); err == nil {
			t.Errorf("%s: it moves on", tt.name)
		}
	}
}

// TestG12_ACheckpointMovesOn: only to a later one of this log, and not if a takeover replaces it meanwhile.
func TestG12_ACheckpointMovesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	log := streams.NewLog(r.streams, r.channel.Link)
	s := NewCheckpoints(log)
	if err := s.Replace(t.Context(), 0, Checkpoint{Seq: 5, GivenUp: 3}); err != nil {
		t.Fatal(err)
	}
	replace := func() bool { return s.Replace(t.Context(), 0, Checkpoint{Seq: 6}) == nil }
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
		err := s.advance(t.Context(), 0, Checkpoint{Seq: tt.seq}, tt.counts)
		stored, _ := s.Load(t.Context(), 0)
		_, after, _ := log.Value(t.Context(), CheckpointKey(0))
		if stored.Seq != tt.want || (err != nil) != tt.fails || (after == before) != (tt.want == 5) {
			t.Errorf("%s: %+v, at revision %d after %d, %v", tt.name, stored, after, before, err)
		}
	}
	if _, err := r.streams.Checkpoints.PutString(t.Context(), CheckpointKey(0), `{"format":3,"log":"1"}`); err != nil {
		t.Fatal(err)
	}
	if err := s.advance(t.Context(), 0, Checkpoint{Seq: 9}, func() bool { return true }); !errors.Is(err, streams.ErrLogChanged) {
		t.Errorf("one of another log: %v", err)
	}
}

// TestG11_CheckpointsThatCannotBeStored: one that cannot be stored holds up no other, is tried again, and is named. One
// that has not moved on is not stored again.
func TestG11_CheckpointsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := NewCheckpoints(streams.NewLog(r.streams, r.channel.Link))
	var all []*Announcer
	for i := range 4 {
		if err := s.Replace(t.Context(), i, Checkpoint{}); err != nil {
			t.Fatal(err)
		}
		a := NewAnnouncer(r.channel, i, self{})
		if i > 0 { // the first has not settled anything
			r.takeOver(a, Checkpoint{}, 0)
			a.Settle(&Checkpoint{Seq: 7})
		}
		all = append(all, a)
	}
	var visited []crash.Point
	var fails func(visit int, here crash.Point) bool
	c := NewCheckpointer(s, all, nil, func(here crash.Point) error {
		if visited = append(visited, here); fails != nil && fails(len(visited), here) {
			return errFail
		}
		return nil
	})
	for _, tt := range []struct {
		name   string
		fails  func(int, crash.Point) bool
		visits int
		of     string
	}{
		{"two fail before", func(visit int, _ crash.Point) bool { return visit <= 2 }, 4, "partition 1"},
		{"one of them fails after", func(_ int, here crash.Point) bool { return here == crash.AfterCheckpoint }, 4, "partition 1"},
		{"they are tried again", nil, 4, ""},
		{"they have not moved on", nil, 0, ""},
	} {
		visited, fails = nil, tt.fails
		err := c.RunOnce(t.Context())
		if len(visited) != tt.visits || (err == nil) != (tt.of == "") || err != nil && (!errors.Is(err, errFail) || !strings.Contains(err.Error(), tt.of+":")) {
			t.Errorf("%s: %v, %v", tt.name, visited, err)
		}
	}
	all[3].Begin(Checkpoint{}, 0, all[3].Last()) // a takeover
	all[3].settled.Store(&Checkpoint{Seq: 9})
	fails = func(int, crash.Point) bool { all[3].settled.Store(nil); return false }
	if err := c.RunOnce(t.Context()); err != nil {
		t.Error(err)
	}
	if stored, err := s.Load(t.Context(), 3); stored.Seq != 7 || err != nil {
		t.Errorf("a checkpoint of before a takeover is stored after it: %+v, %v", stored, err)
	}
	fails = nil
	all[3].settled.Store(&Checkpoint{Seq: 10})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RunOnce(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
}

// TestG11_WhyCheckpointsAreNotStored: health names it as long as it lasts.
func TestG11_WhyCheckpointsAreNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAnnouncer(nil, 3, self{})
		a.settled.Store(&Checkpoint{Seq: 1})
		board := health.New(slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go NewCheckpointer(nil, []*Announcer{a}, board, func(crash.Point) error { return errFail }).Run(ctx)
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
