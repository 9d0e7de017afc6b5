package processor

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/retention"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Store is where a processor keeps a shard: in Redis, as package store does. Its methods are safe for concurrent use.
// [store.Shard] describes those that only the shard's owner calls.
type Store interface {
	shard.Store
	// Time is the clock by which readers judge documents.
	Time(ctx context.Context) (time.Time, error)
	// Check refuses a server that cannot be used (store.ErrServer, store.ErrDenied).
	Check(ctx context.Context) error
	// Ping returns an error unless every server answers.
	Ping(ctx context.Context) error
	// Configured is up to which sequence all shards have applied the stream of configurations. It is asked only if
	// there are several shards.
	Configured(ctx context.Context) (uint64, error)
	// Reads counts the reads that the servers have answered since some instant.
	Reads(ctx context.Context) (int64, error)
	// Memory is the memory of the server that has the smallest share left.
	Memory(ctx context.Context) (store.Memory, error)
	// Rewrite lets the servers write their files anew (store.ErrDenied).
	retention.Redis
}

// Objects is where a processor keeps the snapshots: in an object store of
// JetStream, unless Options name another one. Its methods are safe for concurrent use.
type Objects interface{ snapshot.Objects }

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
