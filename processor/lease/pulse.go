package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// instant is a moment by two clocks. The monotonic clock stands still while a machine is
// suspended. The wall clock does not, but somebody may set it.
type instant struct{ Mono, Wall time.Duration }

// systemClock returns a clock that tells the time since now, and the time of day.
func systemClock() func() instant {
	began := time.Now()
	return func() instant {
		now := time.Now()
		return instant{Mono: now.Sub(began), Wall: time.Duration(now.UnixNano())}
	}
}

// within tells whether less than limit lies between two instants by both clocks. A wall
// clock that was set back proves nothing either.
func within(later, earlier instant, limit time.Duration) bool {
	mono, wall := later.Mono-earlier.Mono, later.Wall-earlier.Wall
	return mono < limit && wall < limit && wall > -limit
}

// pulse decides whether an owner may believe that it still has its lease.
//
// The proof is the instant at which a verified renewal was sent, or at which a beat was
// sent that came back. It holds for a limit. The instant of sending counts: a beat that
// lay in a buffer while the process was stopped proves nothing. Each proof must follow the
// one before within the limit. Otherwise the owner is in doubt until a renewal succeeds
// that began after the doubt.
type pulse struct {
	now   func() instant
	limit time.Duration

	proof atomic.Pointer[instant] // nil while in doubt

	mu     sync.Mutex
	doubts uint64             // counts the calls of Doubt and the gaps between proofs
	sent   map[uint64]instant // beats that have not come back
	seq    uint64             // of the last beat
}

// newPulse makes a pulse that is in doubt. A proof holds for limit.
func newPulse(now func() instant, limit time.Duration) *pulse {
	return &pulse{now: now, limit: limit, sent: map[uint64]instant{}}
}

// Good tells whether the proof holds. It is cheap.
func (p *pulse) Good() bool {
	proof := p.proof.Load()
	return proof != nil && within(p.now(), *proof, p.limit)
}

// Doubt takes the proof away.
func (p *pulse) Doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubt()
}

// doubt is Doubt, with the lock held.
func (p *pulse) doubt() {
	p.doubts++
	p.proof.Store(nil)
}

// Beat notes a beat that is about to be sent, and returns its number.
func (p *pulse) Beat() (seq uint64) {
	const remembered = 64
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	p.sent[p.seq] = p.now()
	delete(p.sent, p.seq-remembered)
	return p.seq
}

// Heard notes that a beat of the owner's own came back.
func (p *pulse) Heard(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.sent[seq]
	if !ok {
		return
	}
	delete(p.sent, seq)
	proof := p.proof.Load()
	switch {
	case proof == nil:
	case !within(at, *proof, p.limit):
		p.doubt()
	case at.Mono > proof.Mono: // a beat from before the last renewal proves less
		p.proof.Store(&at)
	}
}

// renewal is a renewal of the lease that is under way.
type renewal struct {
	Began  instant
	doubts uint64
}

// Renew begins a renewal.
func (p *pulse) Renew() renewal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return renewal{p.now(), p.doubts}
}

// Renewed notes that a renewal succeeded.
func (p *pulse) Renewed(r renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.doubts == p.doubts {
		p.proof.Store(&r.Began)
	}
}

// heart beats for an owner and hears beats. It is apart from the owner's loop, because
// that loop may wait for an answer of JetStream.
type heart struct {
	*shard
	held     *Held
	revision atomic.Uint64 // of the lease
	foreign  chan struct{} // holds a notice that another process beats as owner
}

// start beats until stop is called. stop waits until the last beat is sent, but only for a
// limited time, as a connection that accepts nothing may block it.
func (h *heart) start() (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		h.run(stopped)
	}()
	return func() {
		close(stopped)
		limit := time.NewTimer(h.timing.flush)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
		}
	}
}

// run beats and hears beats until stopped is closed.
func (h *heart) run(stopped <-chan struct{}) {
	tick := time.NewTicker(h.timing.beat)
	defer tick.Stop()
	h.beat()
	for {
		select {
		case <-stopped:
			return
		case <-tick.C:
			h.beat()
		case m := <-h.beats:
			h.seams.heart()
			if b, ok := h.parse(m); ok {
				h.hear(b)
			}
		}
	}
}

// beat publishes a beat, unless the lease is lost or there is no connection.
func (h *heart) beat() {
	h.seams.heart()
	if h.held.lost.Load() || !h.link.Up() || h.mute() {
		return
	}
	h.publish(wire.Beat{Owner: h.opts.ID, Revision: h.revision.Load(), Seq: h.pulse.Beat()})
}

// hear hears a beat of this owner, or of another process that believes to be the owner.
func (h *heart) hear(b wire.Beat) {
	if b.Owner == h.opts.ID {
		h.pulse.Heard(b.Seq)
		return
	}
	select {
	case h.foreign <- struct{}{}:
	default:
	}
}
