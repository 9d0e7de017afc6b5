package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

const (
	buildChunk   = 500 // documents indexed in one step
	SettleAtOnce = 64  // collections considered in one step
)

// Tidy does what is not urgent: it builds a chunk of an index, or, once in a while,
// settles collections. Where there is no traffic, keep settles at once.
func (p *Owner) Tidy(ctx context.Context, now time.Time) (worked bool, err error) {
	if c := p.collections.Building(); c != nil {
		return true, p.build(ctx, c)
	}
	if now.Sub(p.duties.settled) < HeartbeatEvery {
		return false, nil
	}
	return p.settle(ctx)
}

// settle ends what had to wait until no document of a collection was due: an old
// generation is removed, an index that was turned off goes, and epochs that no longer
// matter are dropped. It considers some collections at a time, and reports whether there
// was anything to end.
func (p *Owner) settle(ctx context.Context) (worked bool, err error) {
	p.duties.settled = time.Now()
	found := p.collections.ToSettle(p.progress.Watermark(), SettleAtOnce, &p.due)
	if len(found) == 0 {
		return false, nil
	}
	configs := make([]store.ConfigChange, len(found))
	var changes []store.CollectionChanges
	ends := false
	for i, c := range found {
		settled, drop := c.Settled()
		configs[i] = store.ConfigChange{Collection: c.Name, Config: settled}
		if drop != store.DropNothing {
			ends = true
			changes = append(changes, store.CollectionChanges{Collection: c.Name, Drop: drop})
		}
	}
	if ends {
		if err := p.Hook.At(crash.BeforeFinish); err != nil {
			return false, err
		}
	}
	if err := p.commit(ctx, p.progress.Here(), configs, changes); err != nil {
		return false, err
	}
	for i, c := range found {
		if configs[i].Config == nil {
			p.collections.Remove(c.Name)
			continue
		}
		p.collections.Configure(c, *configs[i].Config)
	}
	if ends {
		return true, p.Hook.At(crash.AfterFinish)
	}
	return true, nil
}

// build adds a chunk of a collection's documents to its index. Documents that are written
// meanwhile come to the index with their own commits.
func (p *Owner) build(ctx context.Context, c *fold.Collection) error {
	if c.Build.Cursor == "" {
		c.Build.Cursor = "0"
	}
	callCtx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	found, next, server, err := p.Store.Scan(callCtx, p.progress.Version(), c.Name, c.Build.Cursor, buildChunk)
	if err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterScan); err != nil {
		return err
	}
	if c.Build.Server != "" && c.Build.Server != server {
		c.Build = fold.Build{} // Redis was restarted: its cursors are no longer valid
		return nil
	}
	changes := store.CollectionChanges{Collection: c.Name, Index: found}
	var configs []store.ConfigChange
	if next == "0" {
		configs = c.Indexed()
	}
	if err := p.commit(ctx, p.progress.Here(), configs, []store.CollectionChanges{changes}); err != nil {
		return err
	}
	c.Build = fold.Build{Cursor: next, Server: server}
	if next == "0" {
		p.collections.Built(c)
	}
	return nil
}
