package announce

import (
	"encoding/json"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/decide"
)

// Outcomes sends clients the outcomes of their messages: after the commit, and of a
// configuration or a drop after all partitions have committed it. An outcome is lost if
// the process dies in between, and may be sent again after a rebuild.
type Outcomes struct {
	nc      *nats.Conn
	applied Applied

	mu      sync.Mutex
	waiting []decide.Outcome
	some    atomic.Bool // waiting is not empty
}

// Applied tells how far all partitions have applied the log.
type Applied interface{ Applied() uint64 }

// NewOutcomes makes the outcomes of all partitions.
func NewOutcomes(nc *nats.Conn, applied Applied) *Outcomes {
	return &Outcomes{nc: nc, applied: applied}
}

// Send sends outcomes, except those that were sent before a rebuild: they are at or before
// the checkpoint.
func (o *Outcomes) Send(checkpoint uint64, list []decide.Outcome) {
	for _, one := range list {
		if one.Seq > checkpoint {
			o.send(one)
		}
	}
}

// send sends an outcome at most once: a client that does not get it can read.
func (o *Outcomes) send(one decide.Outcome) {
	if b, err := json.Marshal(one.Body); err == nil {
		_ = o.nc.Publish(one.ReplyTo, b)
	}
}

// SendWhenAll is Send, once all partitions have applied the messages.
func (o *Outcomes) SendWhenAll(checkpoint uint64, list []decide.Outcome) {
	o.mu.Lock()
	for _, one := range list {
		if one.Seq > checkpoint {
			o.waiting = append(o.waiting, one)
			o.some.Store(true)
		}
	}
	o.mu.Unlock()
	o.Poke()
}

// Poke sends the outcomes of messages that all partitions have applied by now.
func (o *Outcomes) Poke() {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	applied := o.applied.Applied()
	later := o.waiting[:0]
	for _, one := range o.waiting {
		if one.Seq <= applied {
			o.send(one)
		} else {
			later = append(later, one)
		}
	}
	o.waiting = later
	o.some.Store(len(later) > 0)
}
