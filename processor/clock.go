package processor

import (
	"cmp"
	"slices"
)

// mark is a place in the log, and the log time there.
type mark struct {
	seq  uint64
	time int64 // Unix milliseconds
}

// clock tells log time: the greatest stamp of the log's messages up to a place. Stamps
// can fall, as another server that leads the stream has another clock.
type clock struct {
	last  mark   // the first message with the greatest stamp so far
	highs []mark // such messages, after which stamps fell or reading ended, in order
}

// stamp is the log time at the next message.
func (c *clock) stamp(seq uint64, at int64) int64 {
	if at > c.last.time {
		c.last = mark{seq, at}
	} else if at < c.last.time {
		c.remember()
	}
	return c.last.time
}

func (c *clock) remember() {
	byTime := func(a, b mark) int { return cmp.Compare(a.time, b.time) }
	if i, found := slices.BinarySearchFunc(c.highs, c.last, byTime); !found {
		c.highs = slices.Insert(c.highs, i, c.last)
	}
}

// back goes back to a place: what comes next is the message after it. Of what lies
// before the place where the reading began first, it knows nothing: it is the
// partitions that know the log time there.
func (c *clock) back(seq uint64) {
	c.remember()
	c.last = mark{}
	for _, high := range c.highs {
		if high.seq <= seq {
			c.last = high
		}
	}
}
