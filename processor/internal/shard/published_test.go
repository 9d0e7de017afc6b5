package shard

import (
	"math"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// TestG3_Published is the truth table of which outputs may have been published: around
// the checkpoint and around the end of the log at the takeover, for outputs that a message
// caused and for those that the passing of time caused. It fails if a boundary moves.
func TestG3_Published(t *testing.T) {
	s := newPublished(Checkpoint{Seq: 10, Watermark: 1000}, 20)
	check := func(o fold.Output, want novelty) {
		t.Helper()
		if got := s.of(o); got != want {
			t.Errorf("output of %d at %d: %d, want %d", o.Seq, o.At, got, want)
		}
	}
	bySeq := func() {
		t.Helper()
		for seq, want := range map[uint64]novelty{1: isPublished, 10: isPublished, 11: maybePublished, 20: maybePublished, 21: isNew} {
			check(fold.Output{Seq: seq, At: 1}, want)
			check(fold.Output{Seq: seq, At: math.MaxInt64}, want)
		}
	}
	bySeq()
	// Until the log was applied up to its end at the takeover, its time there is
	// not known.
	for at, want := range map[int64]novelty{1: isPublished, 1000: isPublished, 1001: maybePublished, math.MaxInt64: maybePublished} {
		check(fold.Output{At: at}, want)
	}
	s.Pass(2000)
	s.Pass(3000) // only the first counts
	bySeq()
	for at, want := range map[int64]novelty{1000: isPublished, 1001: maybePublished, 2000: maybePublished, 2001: isNew} {
		check(fold.Output{At: at}, want)
	}
	for _, c := range []struct {
		offset    uint64
		watermark int64
		want      bool
	}{{10, 1000, true}, {9, 999, true}, {11, 1000, false}, {10, 1001, false}} {
		if got := s.All(c.offset, c.watermark); got != c.want {
			t.Errorf("all up to %d at %d is published: %v, want %v", c.offset, c.watermark, got, c.want)
		}
	}
	for _, c := range []struct {
		offset    uint64
		watermark int64
		want      bool
	}{{20, 2000, true}, {21, 2001, true}, {19, 2000, false}, {20, 1999, false}} {
		if got := s.passed(c.offset, c.watermark); got != c.want {
			t.Errorf("what a former owner may have published is passed at %d at %d: %v, want %v", c.offset, c.watermark, got, c.want)
		}
	}
	if unknown := newPublished(Checkpoint{}, 5); unknown.passed(5, 1<<50) {
		t.Error("it is passed although log time at the end of the log is not known")
	}

	none := newPublished(Checkpoint{}, 0)
	none.Pass(0)
	if none.of(fold.Output{Seq: 1}) != isNew || none.of(fold.Output{At: 1}) != isNew || none.All(0, 1) {
		t.Error("without a checkpoint, in an empty log, everything is new")
	}
}
