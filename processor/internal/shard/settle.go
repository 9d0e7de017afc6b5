package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/store"
)

const SettleAtOnce = 64 // collections considered in one step

// Tidy settles collections, once in a while. Where there is no traffic, keep settles at once.
func (p *Owner) Tidy(ctx context.Context, now time.Time) (worked bool, err error) {
	if now.Sub(p.duties.settled) < HeartbeatEvery {
		return false, nil
	}
	return p.settle(ctx)
}

// settle ends what had to wait until no document of a collection was due: an old
// generation is removed, and epochs that no longer matter are dropped. It considers some collections at a time, and reports whether there
// was anything to end.
func (p *Owner) settle(ctx context.Context) (worked bool, err error) {
	p.duties.settled = time.Now()
	found := p.collections.ToSettle(p.progress.Watermark(), SettleAtOnce, &p.due)
	if len(found) == 0 {
		return false, nil
	}
	configs := make([]store.ConfigChange, len(found))
	var changes []store.CollectionChanges
	for i, c := range found {
		configs[i] = store.ConfigChange{Collection: c.Name, Config: c.Settled(&p.due)}
		if configs[i].Config == nil {
			changes = append(changes, store.CollectionChanges{Collection: c.Name, Drop: store.DropAll})
		}
	}
	ends := len(changes) > 0
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
