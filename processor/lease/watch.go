package lease

import (
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// watch is what a standby knows of a lease. It decides when to take it. Time is an input:
// the monotonic clock.
type watch struct {
	me     string
	timing timing

	known  bool          // the lease was read
	lease  entry         // as last read, or as a beat told
	free   bool          // nobody has the lease
	former string        // the owner before this one
	since  time.Duration // when the lease became free, or the last sign of life
	limit  time.Duration // how long the owner may be silent
	atOnce bool          // take the lease whatever the rank
	reread bool          // read the lease, since something does not fit what is known

	blocked   bool          // an attempt to take it failed
	blockedAt time.Duration // the value of since at that attempt
}

// adopt takes over the lease as it was read. It tells whether it has another owner.
func (w *watch) adopt(e entry, now time.Duration) (another bool) {
	another = !w.known || e.Owner != w.lease.Owner
	if another || e.Revision != w.lease.Revision { // a change is a sign of life
		w.since, w.limit = now, w.timing.silence
	}
	if another {
		if w.known {
			w.former = w.lease.Owner
		}
		// It is this standby's own if JetStream stored a change and the answer was lost.
		w.free = e.Owner == "" || e.Owner == w.me
	}
	if another && w.known {
		w.atOnce = false // the new owner has just taken it
	}
	w.known, w.lease, w.reread = true, e, false
	return another
}

// heard notes a beat.
func (w *watch) heard(b wire.Beat, now time.Duration) {
	switch {
	case b.Owner == w.me:
	case !w.known || b.Owner != w.lease.Owner:
		w.reread = true
	case b.Released:
		w.adopt(entry{Revision: b.Revision}, now)
	default:
		w.since, w.limit, w.lease.Revision = now, w.timing.silence, b.Revision
	}
}

// restart counts silence from since, because the process stood still or had no connection. From now
// on the owner may be silent for least, at least.
func (w *watch) restart(since, now, least time.Duration) {
	if !w.free {
		w.since, w.limit = since, max(w.limit, now-since+least)
	}
}

// failed notes that an attempt to take the lease failed.
func (w *watch) failed() { w.blocked, w.blockedAt = true, w.since }

// stillBlocked tells whether the standby has to take the lease and could not, and there
// was no sign of life since.
func (w *watch) stillBlocked() bool {
	w.blocked = w.blocked && w.blockedAt == w.since
	return w.blocked
}

// owner is the present owner; empty if there is none.
func (w *watch) owner() string {
	if w.free {
		return ""
	}
	return w.lease.Owner
}

// loser is the process that has given the lease up, or that is silent if the lease is due.
func (w *watch) loser() string {
	if w.free {
		return w.former
	}
	return w.lease.Owner
}

// takeAt is when the member of a rank takes the lease if it hears nothing until then.
func (w *watch) takeAt(rank int) (at time.Duration, known bool) {
	before := time.Duration(rank)
	switch {
	case w.atOnce:
		return w.since, w.known
	case w.free: // members of lower ranks may have left just now as well
		return w.since + min(before*w.timing.freeDelay, w.timing.freeMost), w.known
	default:
		return w.since + w.limit + before*w.timing.delay, w.known
	}
}

// reason tells an operator why the standby takes the lease.
func (w *watch) reason(now time.Duration) string {
	switch {
	case w.free && w.lease.Revision == 0:
		return "nobody owned it"
	case w.free:
		return "its owner released it"
	case w.atOnce:
		return "told not to wait for its owner"
	default:
		return fmt.Sprintf("its owner was silent for %s", (now - w.since).Round(time.Millisecond))
	}
}
