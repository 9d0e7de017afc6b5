package processor

import (
	"encoding/json"
	"math"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// outcomes tells who asked what became of a message: after the commit, and of a
// configuration or a drop after all partitions have committed it. Nobody is told if
// the process dies in between, and somebody may be told again after a rebuild.
type outcomes struct {
	nc         *nats.Conn
	partitions []*partition

	mu      sync.Mutex
	waiting []outcome
	some    atomic.Bool // waiting is not empty
}

// send sends outcomes, save those that were sent before a rebuild.
func (o *outcomes) send(c Checkpoint, list []outcome) {
	for _, one := range list {
		if one.seq <= c.Seq {
			continue
		}
		b, err := json.Marshal(one.body)
		if err == nil {
			_ = o.nc.Publish(one.replyTo, b) // at most once: who asked can read
		}
	}
}

// sendWhenAll sends outcomes once all partitions have applied their messages.
func (o *outcomes) sendWhenAll(c Checkpoint, list []outcome) {
	o.mu.Lock()
	for _, one := range list {
		if one.seq > c.Seq {
			o.waiting = append(o.waiting, one)
			o.some.Store(true)
		}
	}
	o.mu.Unlock()
	o.poke()
}

// poke sends what all partitions have applied by now.
func (o *outcomes) poke() {
	if !o.some.Load() {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	applied := uint64(math.MaxUint64)
	for _, p := range o.partitions {
		applied = min(applied, p.applied.Load())
	}
	later := o.waiting[:0]
	for _, one := range o.waiting {
		if one.seq <= applied {
			o.send(Checkpoint{}, []outcome{one})
		} else {
			later = append(later, one)
		}
	}
	o.waiting = later
	o.some.Store(len(later) > 0)
}
