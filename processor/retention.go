package processor

import (
	"time"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// ObjectsInMemory are Objects of one process: for tests and simulations.
type ObjectsInMemory struct{ snapshot.Memory }

// objects is where the snapshots are.
func (p *Processor) objects(s *streams.Streams) snapshot.Objects {
	if p.opts.Objects != nil {
		return p.opts.Objects
	}
	return s.Snapshots
}

// Retention is what the processor knows of snapshots, and of bytes that should be gone; nil until it runs
// and knows.
func (p *Processor) Retention() *wire.Retention {
	s := p.current()
	if !p.running.Load() || !s.wired.Load() || s.keeper == nil {
		return nil
	}
	return s.keeper.Known(time.Now())
}
