// Package pulse decides whether an owner may believe that it still has its lease.
//
// The proof is the instant at which a verified renewal was sent, or at which a beat was
// sent that came back. It holds for a limit. The instant of sending counts: a beat that
// lay in a buffer while the process was stopped proves nothing. Each proof must follow the
// one before within the limit. Otherwise the owner is in doubt until a renewal succeeds
// that began after the doubt.
package pulse

import (
	"sync"
	"sync/atomic"
	"time"
)

// Instant is a moment by two clocks. The monotonic clock stands still while a machine is
// suspended. The wall clock does not, but somebody may set it.
type Instant struct{ Mono, Wall time.Duration }

// SystemClock returns a clock that tells the time since now, and the time of day.
func SystemClock() func() Instant {
	began := time.Now()
	return func() Instant {
		now := time.Now()
		return Instant{Mono: now.Sub(began), Wall: time.Duration(now.UnixNano())}
	}
}

// within tells whether less than limit lies between two instants by both clocks. A wall
// clock that was set back proves nothing either.
func within(later, earlier Instant, limit time.Duration) bool {
	mono, wall := later.Mono-earlier.Mono, later.Wall-earlier.Wall
	return mono < limit && wall < limit && wall > -limit
}

// Pulse is the proof of one owner. It is safe for concurrent use.
type Pulse struct {
	now   func() Instant
	limit time.Duration

	proof atomic.Pointer[Instant] // nil while in doubt

	mu     sync.Mutex
	doubts uint64             // counts the calls of Doubt and the gaps between proofs
	sent   map[uint64]Instant // beats that have not come back
	seq    uint64             // of the last beat
}

// New makes a Pulse that is in doubt. A proof holds for limit.
func New(now func() Instant, limit time.Duration) *Pulse {
	return &Pulse{now: now, limit: limit, sent: map[uint64]Instant{}}
}

// Good tells whether the proof holds. It is cheap.
func (p *Pulse) Good() bool {
	proof := p.proof.Load()
	return proof != nil && within(p.now(), *proof, p.limit)
}

// Doubt takes the proof away.
func (p *Pulse) Doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubt()
}

func (p *Pulse) doubt() {
	p.doubts++
	p.proof.Store(nil)
}

// Beat notes a beat that is about to be sent, and returns its number.
func (p *Pulse) Beat() (seq uint64) {
	const remembered = 64
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	p.sent[p.seq] = p.now()
	delete(p.sent, p.seq-remembered)
	return p.seq
}

// Heard notes that a beat of the owner's own came back.
func (p *Pulse) Heard(seq uint64) {
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

// Renewal is a renewal of the lease that is under way.
type Renewal struct {
	Began  Instant
	doubts uint64
}

// Renew begins a renewal.
func (p *Pulse) Renew() Renewal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Renewal{p.now(), p.doubts}
}

// Renewed notes that a renewal succeeded.
func (p *Pulse) Renewed(r Renewal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.doubts == p.doubts {
		p.proof.Store(&r.Began)
	}
}
