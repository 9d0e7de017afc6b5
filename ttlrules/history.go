package ttlrules

import (
	"math"
)

// Epoch is a stretch of time in which a collection had one default TTL: from
// Since up to the Since of the next epoch, or for ever if it is the last.
type Epoch struct {
	Since   int64   // instant of the configuration change, in Unix milliseconds
	Seq     uint64  // log sequence of the configuration change, 0 before the first
	Default Default // of the collection, from Since on
}

// History is a collection's default TTL over time: epochs in log order, so that their Since never falls. A collection
// that was never configured has an empty history, which counts as Off.
//
// At the instant of a change both sides count, the old default first: a document whose deadline under the old one is
// that very instant has expired, since the deadline had been reached when the change came.
type History []Epoch

// Expiry is the first instant at which a document was expired, and the reason.
type Expiry struct {
	At  int64 // the first instant at which it was expired, in Unix milliseconds
	TTL int32 // the TTL under which it expired, in seconds; 0 if it was an instant that a write had named
	// Seq is the log sequence of the message that made it expired: a configuration change or, where it kept an older
	// clock, its own write. The deadline lay in the past then. It is 0 if the document expired because time passed.
	Seq uint64
}

// NoCut is the cut under which there is no document.
const NoCut = math.MinInt64

// Current is the default that counts at the end of the history.
func (h History) Current() Default {
	if len(h) == 0 {
		return Off
	}
	return h[len(h)-1].Default
}

// With is the history after the default was changed at an instant by the message
// with the log sequence seq. It is h itself where nothing changes. h is not modified.
//
// The instant must not lie before the Since of the last epoch. So pass log time (the greatest timestamp so far), not
// the message's own timestamp: timestamps in a stream can fall.
func (h History) With(at int64, seq uint64, d Default) History {
	if h.Current() == d {
		return h
	}
	next := make(History, len(h), len(h)+1)
	copy(next, h)
	if len(next) == 0 {
		// Before its first configuration TTL was off in the collection.
		next = append(next, Epoch{Since: math.MinInt64, Default: Off})
	}
	return append(next, Epoch{Since: at, Seq: seq, Default: d})
}

// Settled is the history of the current epoch alone. It may replace h at an instant at or after the Since of the last
// epoch, once every document that is expired at that instant under h is removed. From then on both give the same
// answers, whatever changes follow.
func (h History) Settled() History {
	if len(h) <= 1 {
		return h
	}
	return History{h[len(h)-1]}
}

// ExpiredAt finds the first instant at which a version was, or with no further change will be, expired; ok = false if
// it never is. Later epochs cannot bring back what an earlier one expired.
//
// That instant is the deadline, or the configuration change or the write that moved the deadline into the past. It can
// lie before or after any "now": whether the version is expired at an instant is [History.Expired].
func (h History) ExpiredAt(c Clock) (x Expiry, ok bool) {
	for i, e := range h {
		if i+1 < len(h) && c.Seq > h[i+1].Seq && h[i+1].Seq != 0 {
			continue // it ended before the version was written
		}
		deadline, seconds, expires := c.ends(e.Default)
		deadline = max(deadline, c.Ts)
		if !expires || deadline > h.end(i) {
			continue
		}
		x = Expiry{At: deadline, TTL: seconds}
		if deadline <= e.Since { // else it had expired under the default before
			x.At, x.Seq = e.Since, e.Seq
		}
		if x.At == c.Ts { // it was never live: the later of the two messages made it expired
			x.Seq = max(x.Seq, c.Seq)
		}
		return x, true
	}
	return Expiry{}, false
}

// Expired says whether a version is expired at the instant now.
func (h History) Expired(c Clock, now int64) bool {
	x, ok := h.ExpiredAt(c)
	return ok && x.At <= now
}

// Admits says whether a version may come to the index at its Ts. It may not if the cuts of
// epochs before the current one reach it and it is not expired: they ended before the version was written.
// Only a version with a kept clock is ever refused. One that inherits comes to a band of the index instead, by whose
// cuts those epochs do not count ([History.From]). For another one, whose deadline is the very instant of the change,
// what is due has to be removed first, and the history settled.
func (h History) Admits(c Clock) bool {
	if len(h) <= 1 {
		return true
	}
	c.Band = 0
	score, in := c.Score()
	cuts := h.Cuts(c.Ts)
	under := in == ByInherit && score <= cuts.Inherit || in == ByOwn && score <= cuts.Own
	return !under || h.Expired(c, c.Ts)
}

// From is the history without the epochs before that of the message with a log sequence. A band of the index has the
// cuts of such a history.
func (h History) From(seq uint64) History {
	for i, e := range h {
		if e.Seq >= seq {
			return h[i:]
		}
	}
	return nil
}

// Before is the history without the epochs from that of the message with a log sequence on.
func (h History) Before(seq uint64) History {
	for i, e := range h {
		if e.Seq >= seq {
			return h[:i]
		}
	}
	return h
}

// Cuts are the greatest scores at which an indexed document is expired.
type Cuts struct {
	Inherit int64 // for documents that inherit, by the beginning of their clock
	Own     int64 // for the others that are indexed, by their deadline
}

// Cuts computes the cuts of the two indexes at the instant now: a document is expired exactly if its score is at or
// under its cut ([Clock.Score]). A document that never expires by its own ttl ([Never]) is in neither index. Cuts never
// fall as now goes on, nor by a change made at now or later: expired is final.
func (h History) Cuts(now int64) Cuts {
	cuts := Cuts{Inherit: NoCut, Own: NoCut}
	for i, e := range h {
		if e.Since > now || e.Default == Off {
			continue
		}
		until := min(h.end(i), now)
		cuts.Own = max(cuts.Own, until)
		if e.Default > 0 {
			cuts.Inherit = max(cuts.Inherit, until-int64(e.Default)*1000)
		}
	}
	return cuts
}

// FirstDue is the first instant at which a document with a given score is expired: the least now whose cut reaches the
// score. The score is the beginning of a clock if inherit is true, and else a deadline. ok = false if it never expires.
// With the lowest score of an index it is the instant at which the next document of that index falls due; if the
// instant lies in the past, a document is due already.
func (h History) FirstDue(score int64, inherit bool) (at int64, ok bool) {
	for i, e := range h {
		deadline := score
		switch {
		case e.Default == Off, inherit && e.Default == NoDefault:
			continue
		case inherit:
			deadline += int64(e.Default) * 1000
		}
		if deadline <= h.end(i) {
			return max(deadline, e.Since), true
		}
	}
	return 0, false
}

func (h History) end(i int) int64 {
	if i+1 < len(h) {
		return h[i+1].Since
	}
	return math.MaxInt64
}

// WarnAt is the instant at which a version is to be warned of, some seconds before its deadline, where
// that is asked for since an instant, and how the version expires. ok = false if there is no warning:
//
//   - the version has no deadline under the current default;
//   - the instant is not after the version was written or renewed, or not after the change that made the
//     deadline or the seconds count;
//   - the version has expired by then, under a default before this one.
//
// The caller has published what an earlier configuration asked for before it applied this one.
func (h History) WarnAt(c Clock, before int32, since int64) (at int64, x Expiry, ok bool) {
	if len(h) == 0 {
		return 0, x, false
	}
	current := h[len(h)-1]
	deadline, expires := c.Deadline(current.Default)
	at = deadline - int64(before)*1000
	if !expires || at <= max(c.Ts, c.Begin(), since, current.Since) {
		return 0, x, false
	}
	x, _ = h.ExpiredAt(c)
	return at, x, at < x.At
}

// WarnShift is the distance, in milliseconds, from the score of a version in an index to the instant at
// which it is to be warned of under the current default: so the versions that are to be warned of
// between two instants are a slice of the index. ok = false if no version in that index expires.
func (h History) WarnShift(in Index, before int32) (shift int64, ok bool) {
	shift = -int64(before) * 1000
	switch d := h.Current(); {
	case d == Off, in == NotIndexed:
		return 0, false
	case in == ByOwn:
		return shift, true
	default:
		return shift + int64(d)*1000, d > 0
	}
}
