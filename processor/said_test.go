package processor

import (
	"math"
	"testing"
)

// TestG3_Said is the truth table of what may have been said: around the checkpoint
// and around the end of the log at the takeover, for what a message caused and for
// what the passing of time caused. It fails if a boundary moves.
func TestG3_Said(t *testing.T) {
	s := newSaid(Checkpoint{Seq: 10, Watermark: 1000}, 20)
	check := func(o output, want novelty) {
		t.Helper()
		if got := s.of(o); got != want {
			t.Errorf("output of %d at %d: %d, want %d", o.seq, o.at, got, want)
		}
	}
	bySeq := func() {
		t.Helper()
		for seq, want := range map[uint64]novelty{1: isSaid, 10: isSaid, 11: maybeSaid, 20: maybeSaid, 21: isNew} {
			check(output{seq: seq, at: 1}, want)
			check(output{seq: seq, at: math.MaxInt64}, want)
		}
	}
	bySeq()
	// Until the log was applied up to its end at the takeover, its time there is
	// not known.
	for at, want := range map[int64]novelty{1: isSaid, 1000: isSaid, 1001: maybeSaid, math.MaxInt64: maybeSaid} {
		check(output{at: at}, want)
	}
	s.pass(2000)
	s.pass(3000) // only the first counts
	bySeq()
	for at, want := range map[int64]novelty{1000: isSaid, 1001: maybeSaid, 2000: maybeSaid, 2001: isNew} {
		check(output{at: at}, want)
	}
	for _, c := range []struct {
		offset    uint64
		watermark int64
		want      bool
	}{{10, 1000, true}, {9, 999, true}, {11, 1000, false}, {10, 1001, false}} {
		if got := s.all(c.offset, c.watermark); got != c.want {
			t.Errorf("all up to %d at %d is said: %v, want %v", c.offset, c.watermark, got, c.want)
		}
	}
	none := newSaid(Checkpoint{}, 0)
	none.pass(0)
	if none.of(output{seq: 1}) != isNew || none.of(output{at: 1}) != isNew || none.all(0, 1) {
		t.Error("without a checkpoint, in an empty log, everything is new")
	}
}
