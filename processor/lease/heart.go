package lease

import (
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

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
