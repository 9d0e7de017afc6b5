package processor

import "slices"

// mark is a place in the log, and the log time there.
type mark struct {
	seq  uint64
	time int64 // Unix milliseconds
}

// clock tells log time: the greatest stamp of the log's messages up to a place. Stamps
// can fall, as another server that leads the stream has another clock.
type clock struct {
	last  mark   // the message with the greatest stamp so far
	highs []mark // those after which stamps fell, in order
}

// stamp is the log time at the next message.
func (c *clock) stamp(seq uint64, at int64) int64 {
	if at >= c.last.time {
		c.last = mark{seq, at}
	} else if i, found := slices.BinarySearchFunc(c.highs, c.last, compareMarks); !found {
		c.highs = slices.Insert(c.highs, i, c.last)
	}
	return c.last.time
}

// back goes back to a place: what comes next is the message after it. Of what lies
// before the place where the reading began first, it knows nothing: it is the
// partitions that know the log time there.
func (c *clock) back(seq uint64) {
	c.last = mark{}
	for _, high := range c.highs {
		if high.seq <= seq {
			c.last = high
		}
	}
}

func compareMarks(a, b mark) int { return int(a.time - b.time) }
