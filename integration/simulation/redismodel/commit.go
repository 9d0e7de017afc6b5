package redismodel

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/sink/store"
)

// Commit commits a step.
func (p *Partition) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	if err := p.mayCommit(ctx, pr.Version, configs, changes); err != nil {
		return fmt.Errorf("commit partition %d: %w", p.id, err)
	}
	p.state.Version, p.state.Offset, p.state.Watermark = pr.Next, pr.Offset, pr.Watermark
	p.state.Stamp, p.state.Rebuild, p.state.Refused = known(pr.Stamp), pr.Rebuild, false
	for _, c := range configs {
		p.configure(c)
	}
	p.configsLeft = p.configs
	for i := range changes {
		c := &changes[i]
		at := p.open(c.Collection)
		switch c.Drop {
		case store.DropAll:
			at.docs, at.index = list[document]{}, list[entry]{}
		case store.DropIndex:
			at.index = list[entry]{}
		case store.DropMoves:
			next := p.open(changes[i+1].Collection)
			at = p.open(c.Collection)
			next.docs, next.index, at.docs, at.index = at.docs, at.index, list[document]{}, list[entry]{}
		}
		at.change(c)
		at.left = at.sizes()
		c.Emptied = c.Emptied || at.left == sizes{}
		p.tidy(at)
	}
	return nil
}

// mayCommit returns why a step cannot be committed, as part 1 of commit.lua does.
func (p *Partition) mayCommit(ctx context.Context, version string, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	if err := p.Verify(ctx, version, nil); err != nil {
		return err
	}
	grows, shrinks := false, false
	for _, c := range configs {
		grows = grows || c.Config != nil
	}
	for _, c := range changes {
		at, exists := p.at(c.Collection), false
		if err := at.check(); err != nil {
			return err
		}
		for _, ch := range c.Changes {
			_, stored := at.docs.find(document{id: ch.ID})
			if ch.New != nil && ch.Body == nil && (!stored || c.Drop == store.DropAll) {
				return fmt.Errorf("%w: %s/%s has no body", store.ErrDamaged, c.Collection, ch.ID)
			}
			grows, exists = grows || ch.New != nil, exists || stored && ch.Body != nil
		}
		if c.Fresh && exists {
			return store.ErrExists
		}
		grows = grows || len(c.Index) > 0
		shrinks = shrinks || c.Drop == store.DropIndex || c.Drop == store.DropMoves
	}
	if p.server.full && grows && !shrinks {
		return errFull
	}
	return nil
}

func (p *Partition) configure(c store.ConfigChange) {
	at := p.open(c.Collection)
	if at.config != nil {
		p.configs--
	}
	at.config = nil
	if c.Config != nil {
		config := copied(*c.Config)
		at.config = &config
		p.configs++
	}
	p.tidy(at)
}

// tidy forgets a collection of which nothing is left.
func (p *Partition) tidy(at *collection) {
	if at.config == nil && at.left == (sizes{}) && at.sizes() == (sizes{}) && !at.foreign {
		p.collections.remove(*at)
	}
}

// change makes changes to a collection, after what c.Drop says.
func (at *collection) change(c *store.CollectionChanges) {
	add := func(id string, h *store.Header) {
		if e, ok := entryOf(id, h); ok {
			at.index.set(e)
		}
	}
	for _, ch := range c.Changes {
		if ch.Old != nil && (!c.NoIndex || c.Draining) {
			if e, ok := entryOf(ch.ID, ch.Old); ok {
				at.index.remove(e)
			}
		}
		if ch.New == nil {
			at.docs.remove(document{id: ch.ID})
			continue
		}
		d := document{ch.ID, &store.Stored{Header: *ch.New, Body: string(ch.Body)}}
		if old, ok := at.docs.find(d); ok && ch.Body == nil {
			d.Body = at.docs.items[old].Body
		}
		at.docs.set(d)
		if !c.NoIndex {
			add(ch.ID, ch.New)
		}
	}
	for _, ch := range c.Index {
		add(ch.ID, ch.Old)
	}
}
