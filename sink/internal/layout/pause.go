package layout

import (
	"math"
	"slices"

	"github.com/seed18712806/lapse/ttlrules"
)

// Pause is a time in which the property paused was set. What expires in it is hidden from readers, stays where it is,
// and gets its event when the pause ends:
//
//   - What had expired by log time when the pause began gets its event as ever (Reaped). Once no such document is
//     left, the pause is drained, and nothing of the collection is due until it ends.
//   - The cause of an event that had to wait is the message that has ended the pause (Cause).
type Pause struct {
	Since int64  // log time, Unix milliseconds
	Seq   uint64 // of the message that began it
	// Until and EndSeq are those of the message that ended it; EndSeq is 0 while it is open.
	Until   int64
	EndSeq  uint64
	Drained bool // no document is left that had expired when it began
}

// holds reports whether the event of a document that expired so had to wait for the end of the pause.
func (p Pause) holds(x ttlrules.Expiry) bool {
	after := x.At > p.Since || x.At == p.Since && x.Seq >= p.Seq
	return after && (p.EndSeq == 0 || x.At <= p.Until && x.Seq < p.EndSeq)
}

func (p Pause) encode() [5]int64 {
	return [5]int64{p.Since, int64(p.Seq), p.Until, int64(p.EndSeq), map[bool]int64{true: 1}[p.Drained]}
}

func decodePause(p [5]int64) Pause {
	return Pause{Since: p[0], Seq: uint64(p[1]), Until: p[2], EndSeq: uint64(p[3]), Drained: p[4] == 1}
}

// Paused reports whether the collection is paused.
func (c Config) Paused() bool { return len(c.Pauses) > 0 && c.Pauses[len(c.Pauses)-1].EndSeq == 0 }

// PausedBy is the pause that is open; the zero value if none is.
func (c Config) PausedBy() Pause {
	if !c.Paused() {
		return Pause{}
	}
	return c.Pauses[len(c.Pauses)-1]
}

// Pause is the configuration after a message with a sequence has set or unset the property, at a log time.
func (c Config) Pause(paused bool, at int64, seq uint64) Config {
	switch {
	case paused == c.Paused():
		return c
	case paused:
		c.Pauses = append(slices.Clip(c.Pauses), Pause{Since: at, Seq: seq})
	default:
		c.Pauses = slices.Clone(c.Pauses)
		last := &c.Pauses[len(c.Pauses)-1]
		last.Until, last.EndSeq = at, seq
	}
	return c
}

// Cause is the cause of the event of a document that expired so: the instant from which it was to be published, and the
// sequence of the message if one has caused it. held reports that it has to wait for the end of a pause.
func (c Config) Cause(x ttlrules.Expiry) (at int64, seq uint64, held bool) {
	for _, p := range c.Pauses {
		if p.holds(x) {
			return p.Until, p.EndSeq, p.EndSeq == 0
		}
	}
	return x.At, x.Seq, false
}

// DueAt is the instant from which the event of a document that expired at an instant is to be published, where that is
// no longer held back.
func (c Config) DueAt(expired int64) int64 {
	for _, p := range c.Pauses {
		if p.EndSeq != 0 && expired > p.Since && expired <= p.Until {
			return p.Until
		}
	}
	return expired
}

// Reaped is the history of a band of the index by which documents are reaped, and the last instant that counts. While
// the collection is paused, only what had expired before is reaped.
func (c Config) Reaped(band int) (h ttlrules.History, last int64) {
	switch p := c.PausedBy(); {
	case p.Seq == 0:
		return c.Band(band), math.MaxInt64
	case p.Drained:
		return nil, p.Since
	default:
		return c.Band(band).Before(p.Seq), p.Since
	}
}

// ReapCuts are the cuts of a band of the index, by which documents are reaped up to an instant.
func (c Config) ReapCuts(band int, until int64) ttlrules.Cuts {
	h, last := c.Reaped(band)
	cuts := h.Cuts(min(until, last))
	if band > 0 {
		cuts.Own = ttlrules.NoCut
	}
	return cuts
}

// FirstReaped is the first instant at which a document with a score is due; ok is false if it never is, or not before
// the end of a pause.
func (c Config) FirstReaped(band int, score int64, inherit bool) (at int64, ok bool) {
	h, last := c.Reaped(band)
	if at, ok = h.FirstDue(score, inherit); !ok || at > last {
		return 0, false
	}
	return c.DueAt(at), true
}

// underPause reports whether a version that is written into a paused collection would be taken for one that had expired
// before: it has expired as it is written. It has to wait until those are reaped.
func (c Config) underPause(clock ttlrules.Clock) bool {
	p := c.PausedBy()
	if p.Seq == 0 || p.Drained || clock.Seq < p.Seq {
		return false
	}
	clock.Band = 0
	score, in := clock.Score()
	cuts := c.ReapCuts(0, math.MaxInt64)
	return in == ttlrules.ByInherit && score <= cuts.Inherit || in == ttlrules.ByOwn && score <= cuts.Own
}

// Crowded reports whether a version has no place in the index before the pause of its collection ends: its deadline is
// the very instant of a change of the default since. See [ttlrules.History.Admits].
func (c Config) Crowded(clock ttlrules.Clock) bool {
	p := c.PausedBy()
	if _, in := clock.Score(); p.Seq == 0 || in != ttlrules.ByOwn || c.History.Admits(clock) {
		return false
	}
	return c.History[len(c.History)-1].Seq >= p.Seq
}

// IsUnsettled reports whether the configuration can be settled once no document is due.
func (c Config) IsUnsettled() bool {
	if c.Paused() {
		return !c.PausedBy().Drained
	}
	return len(c.History) > 1 || len(c.Pauses) > 0
}

// drained is the configuration of a paused collection once no document is left that had expired before.
func (c Config) drained() Config {
	p := c.PausedBy()
	p.Drained = true
	c.Pauses = []Pause{p}
	if before := len(c.History.Before(p.Seq)); before > 1 {
		c.History = c.History[before-1:]
	}
	bodies := 0
	for bodies < len(c.Bodies) && c.Bodies[bodies].Seq < p.Seq {
		bodies++
	}
	c.Bodies = c.Bodies[bodies-bodies%2:]
	return c
}

// MostPausedChanges is how many changes of defaultTtl and eventBody a paused collection takes: what has expired
// meanwhile needs each of them.
const MostPausedChanges = 32

// ChangedPaused is the number of changes of defaultTtl and eventBody since the collection is paused.
func (c Config) ChangedPaused() (n int) {
	p := c.PausedBy()
	if p.Seq == 0 {
		return 0
	}
	n = len(c.History) - len(c.History.Before(p.Seq))
	for _, b := range c.Bodies {
		if b.Seq >= p.Seq {
			n++
		}
	}
	return n
}
