package shard

import (
	"cmp"
	"slices"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// logTime computes log time: the greatest stamp of the log's messages up to a position.
// Stamps can fall, because another server that leads the stream has another clock.
type logTime struct {
	last  fold.Position   // the first message with the greatest stamp so far
	highs []fold.Position // such messages, after which stamps fell or reading ended, in order
}

// at is the log time at the next message, by its stamp.
func (c *logTime) at(seq uint64, stamp int64) int64 {
	if stamp > c.last.Time {
		c.last = fold.Position{Seq: seq, Time: stamp}
	} else if stamp < c.last.Time {
		c.remember()
	}
	return c.last.Time
}

func (c *logTime) remember() {
	byTime := func(a, b fold.Position) int { return cmp.Compare(a.Time, b.Time) }
	if i, found := slices.BinarySearchFunc(c.highs, c.last, byTime); !found {
		c.highs = slices.Insert(c.highs, i, c.last)
	}
}

// back goes back to a sequence: the next message is the one after it. Log time from
// before the first message that was read is in the owner's watermark.
func (c *logTime) back(seq uint64) {
	c.remember()
	c.last = fold.Position{}
	for _, high := range c.highs {
		if high.Seq <= seq {
			c.last = high
		}
	}
}
