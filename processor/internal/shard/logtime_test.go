package shard

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestG4_LogTime: log time is the greatest stamp so far, wherever the reading began, if
// the owner knows the log time there.
//
// Goes red if a second reading forgets a stamp that is greater than later ones, or knows
// one that comes later.
func TestG4_LogTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 40).Draw(t, "stamps")
		greatest := func(upTo int) int64 {
			if upTo == 0 {
				return 0
			}
			return slices.Max(stamps[:upTo])
		}
		// Sequence i+1 is stamped stamps[i].
		began := rapid.IntRange(0, len(stamps)-1).Draw(t, "began")
		var c logTime
		read := began
		for range rapid.IntRange(1, 5).Draw(t, "readings") {
			start := rapid.IntRange(began, read).Draw(t, "start")
			c.back(uint64(start))
			end := rapid.IntRange(start, len(stamps)).Draw(t, "end")
			for i := start; i < end; i++ {
				got := max(c.at(uint64(i+1), stamps[i]), greatest(began))
				if want := greatest(i + 1); got != want {
					t.Fatalf("from %d, back at %d: log time at %d of %v is %d, want %d", began, start, i+1, stamps, got, want)
				}
			}
			read = max(read, end)
		}
	})
}
