package redismodel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed18712806/lapse/sink/store"
)

// Partition is one partition. It implements processor.PartitionStore with the effects and
// the errors of [store.Partition], which describes the methods.
type Partition struct {
	server *Server
	id     int
	contents
}

// State is the state without Configs and Collections, and whether there is one.
func (p *Partition) State() (store.State, bool) { return p.state, p.state.Version != "" }

// Load reads the state.
func (p *Partition) Load(context.Context) (store.State, error) {
	s, there := p.State()
	s.Stamp, _ = store.ParseStamp(s.Stamp.String()) // as the state keeps it
	switch {
	case !there && len(p.configs) > 0:
		return store.State{}, fmt.Errorf("%w: partition %d has configurations and no state", store.ErrDamaged, p.id)
	case !there:
		return store.State{}, nil
	case s.Rebuild == store.Clearing:
		return s, fmt.Errorf("%w: the removal of partition %d was not ended", store.ErrDamaged, p.id)
	}
	s.Configs = maps.Clone(p.configs)
	for name, c := range p.collections {
		if c.left != (sizes{}) {
			s.Collections = append(s.Collections, name)
		}
		if c.left[0] != c.left[1]+c.left[2] && !p.configs[name].NoIndex {
			s.Unindexed = append(s.Unindexed, name)
		}
	}
	slices.Sort(s.Collections)
	slices.Sort(s.Unindexed)
	return s, nil
}

// Leftovers are the names of all keys.
func (p *Partition) Leftovers(context.Context) (names []string, err error) {
	has := func(there bool, name string) {
		if there {
			names = append(names, fmt.Sprintf("lapse:{%d}:%s", p.id, name))
		}
	}
	has(p.state.Version != "", "state")
	has(len(p.configs) > 0, "config")
	for name, c := range p.collections {
		n := c.sizes()
		has(n[0] > 0 || c.foreign, "docs:"+name)
		has(n[1] > 0, "inherit:"+name)
		has(n[2] > 0, "own:"+name)
	}
	slices.Sort(names)
	return names, nil
}

// Verify verifies that the partition is at a version, and as the last commit left it.
func (p *Partition) Verify(_ context.Context, version string, collections []string) error {
	if p.state.Version != version {
		return store.ErrFenced
	}
	if p.configsLeft != len(p.configs) {
		return fmt.Errorf("%w: partition %d has lost configurations", store.ErrDamaged, p.id)
	}
	for _, name := range collections {
		if err := p.at(name).check(name); err != nil {
			return err
		}
	}
	return nil
}

// Take takes the partition over.
func (p *Partition) Take(_ context.Context, s store.State, version string, rebuild uint64) error {
	switch {
	case p.state.Version != s.Version:
		return store.ErrFenced
	case s.Version == "" && p.server.full:
		return errFull
	case s.Version == "":
		p.state = s
	}
	p.state.Version, p.state.Rebuild, p.state.Refused = version, rebuild, false
	return nil
}

// Refuse refuses the partition.
func (p *Partition) Refuse(ctx context.Context, s store.State, version string) error {
	err := p.Take(ctx, s, version, 0)
	p.state.Refused = p.state.Refused || err == nil
	return err
}

// Clear removes everything, and begins anew.
func (p *Partition) Clear(_ context.Context, version string, next store.State, rebuild uint64) error {
	if p.state.Version != version {
		return store.ErrFenced
	}
	p.contents = begun(next)
	p.state.Rebuild = rebuild
	return nil
}

// Clock is the server's clock.
func (p *Partition) Clock() int64 { return p.server.Now().UnixMilli() }

// Commit commits a step.
func (p *Partition) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	if err := p.mayCommit(ctx, pr.Version, configs, changes); err != nil {
		return fmt.Errorf("commit partition %d: %w", p.id, err)
	}
	p.state = store.State{Version: pr.Next, Log: p.state.Log, Offset: pr.Offset, Watermark: pr.Watermark, Stamp: pr.Stamp, Rebuild: pr.Rebuild, Events: cmp.Or(pr.Events, p.state.Events)}
	for _, c := range configs {
		if delete(p.configs, c.Collection); c.Config != nil {
			p.configs[c.Collection] = *c.Config
		}
	}
	p.configsLeft = len(p.configs)
	for i := range changes {
		c := &changes[i]
		at := p.open(c.Collection)
		switch c.Drop {
		case store.DropAll:
			at.docs, at.index = map[string]*store.Stored{}, nil
		case store.DropIndex:
			at.index = nil
		case store.DropMoves:
			next := p.open(changes[i+1].Collection)
			*next, *at = *at, *next
		}
		at.change(c)
		if at.left = at.sizes(); at.left == (sizes{}) {
			c.Emptied = true
			delete(p.collections, c.Collection)
		}
	}
	return nil
}

// mayCommit returns why a step cannot be committed, as part 1 of commit.lua does.
func (p *Partition) mayCommit(ctx context.Context, version string, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	if err := p.Verify(ctx, version, nil); err != nil {
		return err
	}
	grows := slices.ContainsFunc(configs, func(c store.ConfigChange) bool { return c.Config != nil })
	shrinks := false
	for _, c := range changes {
		at := p.at(c.Collection)
		if err := at.check(c.Collection); err != nil {
			return err
		}
		for _, ch := range c.Changes {
			stored := at.docs[ch.ID] != nil
			if ch.New != nil && ch.Body == nil && (!stored || c.Drop == store.DropAll) {
				return fmt.Errorf("%w: %s/%s has no body", store.ErrDamaged, c.Collection, ch.ID)
			}
			grows = grows || ch.New != nil
		}
		grows = grows || len(c.Index) > 0
		shrinks = shrinks || c.Drop == store.DropIndex || c.Drop == store.DropMoves
	}
	if p.server.full && grows && !shrinks {
		return errFull
	}
	return nil
}

// change makes changes to a collection, after what their Drop says.
func (c *collection) change(to *store.CollectionChanges) {
	for _, ch := range to.Changes {
		if !to.NoIndex || to.Draining {
			c.enter(ch.ID, ch.Old, false)
		}
		if !to.NoIndex {
			c.enter(ch.ID, ch.New, true)
		}
		body := string(ch.Body)
		if old := c.docs[ch.ID]; old != nil && ch.Body == nil {
			body = old.Body
		}
		if delete(c.docs, ch.ID); ch.New != nil {
			c.docs[ch.ID] = &store.Stored{Header: *ch.New, Body: body}
		}
	}
	for _, ch := range to.Index {
		c.enter(ch.ID, ch.Old, true)
	}
}

// The faults below damage the partition as a server does that loses data, or another
// program. n counts from the first again after the last. They return false if there is
// nothing to take.

// LoseDocument loses the n-th of Documents, but not its entry in the index.
func (p *Partition) LoseDocument(n int) bool {
	all := p.Documents()
	if len(all) > 0 {
		d := all[n%len(all)]
		delete(p.open(d.Collection).docs, d.ID)
	}
	return len(all) > 0
}

// LoseIndexMember loses the n-th member of the indexes: by collection, inherit before own,
// the lowest score first.
func (p *Partition) LoseIndexMember(n int) bool {
	var names []string
	for name, c := range p.collections {
		names = append(names, slices.Repeat([]string{name}, len(c.index))...)
	}
	if len(names) == 0 {
		return false
	}
	slices.Sort(names)
	n %= len(names)
	at := n - slices.Index(names, names[n])
	c := p.open(names[n])
	c.index = slices.Delete(c.index, at, at+1)
	return true
}

// LoseConfig loses the n-th configuration, by collection.
func (p *Partition) LoseConfig(n int) bool {
	names := slices.Sorted(maps.Keys(p.configs))
	if len(names) > 0 {
		delete(p.configs, names[n%len(names)])
	}
	return len(names) > 0
}

// LoseState loses the state.
func (p *Partition) LoseState() bool {
	there := p.state.Version != ""
	p.state, p.configsLeft = store.State{}, 0
	for name := range maps.Clone(p.collections) {
		p.open(name).left = sizes{}
	}
	return there
}

// PutForeign replaces the documents of the first collection that has some by a key of
// another type.
func (p *Partition) PutForeign() bool {
	all := p.Documents()
	if len(all) > 0 {
		c := p.open(all[0].Collection)
		clear(c.docs)
		c.foreign = true
	}
	return len(all) > 0
}
