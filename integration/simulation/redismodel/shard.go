package redismodel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed18712806/lapse/sink/store"
)

// The methods of the shard have the effects and the errors of those of [store.Shard], which
// describes them.

// State is the state without Configs and Collections, and whether there is one.
func (s *Server) State() (store.State, bool) { return s.state, s.state.Version != "" }

// Load reads the state.
func (s *Server) Load(context.Context) (store.State, error) {
	state, there := s.State()
	state.Stamp, _ = store.ParseStamp(state.Stamp.String()) // as the state keeps it
	switch {
	case !there && len(s.configs) > 0:
		return store.State{}, fmt.Errorf("%w: the shard has configurations and no state", store.ErrDamaged)
	case !there:
		return store.State{}, nil
	case state.Rebuild == store.Clearing:
		state.Making = nil
		return state, fmt.Errorf("%w: the removal of the shard was not ended", store.ErrDamaged)
	}
	state.Configs = maps.Clone(s.configs)
	for name, c := range s.collections {
		if c.left != (sizes{}) {
			state.Collections = append(state.Collections, name)
		}
	}
	slices.Sort(state.Collections)
	return state, nil
}

// Leftovers are the names of all keys.
func (s *Server) Leftovers(context.Context) (names []string, err error) {
	has := func(there bool, name string) {
		if there {
			names = append(names, fmt.Sprintf("lapse:{0}:%s", name))
		}
	}
	has(s.state.Version != "", "state")
	has(len(s.configs) > 0, "config")
	for name, c := range s.collections {
		n := c.sizes()
		has(n[0] > 0 || c.foreign, "docs:"+name)
		has(n[1] > 0, "inherit:"+name)
		has(n[2] > 0, "own:"+name)
	}
	for of := range s.entries {
		has(true, fmt.Sprintf("by%d:%s", of.Slot, of.Collection))
	}
	slices.Sort(names)
	return names, nil
}

// Verify verifies that the shard is at a version, and as the last commit left it.
func (s *Server) Verify(_ context.Context, version string, collections []string, indexes ...store.IndexOf) error {
	if s.state.Version != version {
		return store.ErrFenced
	}
	if s.configsLeft != len(s.configs) {
		return fmt.Errorf("%w: the shard has lost configurations", store.ErrDamaged)
	}
	for _, name := range collections {
		if err := s.at(name).check(name); err != nil {
			return err
		}
	}
	for _, of := range indexes {
		if err := s.checkEntries(of); err != nil {
			return err
		}
	}
	return nil
}

// Take takes the shard over.
func (s *Server) Take(_ context.Context, from store.State, version string, rebuild uint64) error {
	switch {
	case s.state.Version != from.Version:
		return store.ErrFenced
	case from.Version == "" && s.full:
		return errFull
	case from.Version == "":
		s.state = from
	}
	s.state.Version, s.state.Rebuild, s.state.Refused = version, rebuild, false
	return nil
}

// Refuse refuses the shard.
func (s *Server) Refuse(ctx context.Context, from store.State, version string) error {
	err := s.Take(ctx, from, version, 0)
	s.state.Refused = s.state.Refused || err == nil
	return err
}

// Clear removes everything, and begins anew.
func (s *Server) Clear(_ context.Context, version string, next store.State, rebuild uint64) error {
	if s.state.Version != version {
		return store.ErrFenced
	}
	s.contents = begun(next)
	s.state.Rebuild = rebuild
	return nil
}

// Clock is the server's clock.
func (s *Server) Clock() int64 { return s.Now().UnixMilli() }

// Commit commits a step.
func (s *Server) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
	if err := s.mayCommit(ctx, pr.Version, configs, changes); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.state = store.State{Version: pr.Next, Log: s.state.Log, Offset: pr.Offset, Watermark: pr.Watermark,
		Stamp: pr.Stamp, Rebuild: pr.Rebuild, Events: cmp.Or(pr.Events, s.state.Events), Making: s.state.Making}
	for _, c := range configs {
		if delete(s.configs, c.Collection); c.Config != nil {
			s.configs[c.Collection] = *c.Config
		}
	}
	s.configsLeft = len(s.configs)
	for i := range changes {
		c := &changes[i]
		at := s.open(c.Collection)
		switch c.Drop {
		case store.DropAll:
			at.docs, at.index = map[string]*store.Stored{}, nil
		case store.DropMoves:
			next := s.open(changes[i+1].Collection)
			*next, *at = *at, *next
		}
		at.change(c)
		if at.left = at.sizes(); at.left == (sizes{}) {
			c.Emptied = true
			delete(s.collections, c.Collection)
		}
		for _, x := range c.Indexes {
			s.changeEntries(store.IndexOf{Collection: c.Collection, Slot: x.Slot}, x)
		}
		if c.Making != nil {
			s.setMaking(c.Collection, *c.Making)
		}
	}
	return nil
}

// mayCommit returns why a step cannot be committed, as part 1 of commit.lua does.
func (s *Server) mayCommit(ctx context.Context, version string, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
	if err := s.Verify(ctx, version, nil); err != nil {
		return err
	}
	grows := slices.ContainsFunc(configs, func(c store.ConfigChange) bool { return c.Config != nil })
	moves := false
	for _, c := range changes {
		at := s.at(c.Collection)
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
		moves = moves || c.Drop == store.DropMoves
	}
	for _, c := range changes {
		for _, x := range c.Indexes {
			if err := s.checkEntries(store.IndexOf{Collection: c.Collection, Slot: x.Slot}); err != nil {
				return err
			}
			grows = grows || len(x.Add) > 0
		}
	}
	if s.full && grows && !moves {
		return errFull
	}
	return nil
}

// change makes changes to a collection, after what their Drop says.
func (c *collection) change(to *store.CollectionChanges) {
	for _, ch := range to.Changes {
		c.enter(ch.ID, ch.Old, false)
		c.enter(ch.ID, ch.New, true)
		body := string(ch.Body)
		if old := c.docs[ch.ID]; old != nil && ch.Body == nil {
			body = old.Body
		}
		if delete(c.docs, ch.ID); ch.New != nil {
			c.docs[ch.ID] = &store.Stored{Header: *ch.New, Body: body}
		}
	}
}

// The faults below damage the shard as a server does that loses data, or another
// program. n counts from the first again after the last. They return false if there is
// nothing to take.

// LoseDocument loses the n-th of Documents, but not its entry in the index.
func (s *Server) LoseDocument(n int) bool {
	all := s.Documents()
	if len(all) > 0 {
		d := all[n%len(all)]
		delete(s.open(d.Collection).docs, d.ID)
	}
	return len(all) > 0
}

// LoseIndexMember loses the n-th member of the indexes: by collection, inherit before own,
// the lowest score first.
func (s *Server) LoseIndexMember(n int) bool {
	var names []string
	for name, c := range s.collections {
		names = append(names, slices.Repeat([]string{name}, len(c.index))...)
	}
	if len(names) == 0 {
		return false
	}
	slices.Sort(names)
	n %= len(names)
	at := n - slices.Index(names, names[n])
	c := s.open(names[n])
	c.index = slices.Delete(c.index, at, at+1)
	return true
}

// LoseConfig loses the n-th configuration, by collection.
func (s *Server) LoseConfig(n int) bool {
	names := slices.Sorted(maps.Keys(s.configs))
	if len(names) > 0 {
		delete(s.configs, names[n%len(names)])
	}
	return len(names) > 0
}

// LoseState loses the state.
func (s *Server) LoseState() bool {
	there := s.state.Version != ""
	s.state, s.configsLeft, s.entriesLeft = store.State{}, 0, map[store.IndexOf]int{}
	for name := range maps.Clone(s.collections) {
		s.open(name).left = sizes{}
	}
	return there
}

// PutForeign replaces the documents of the first collection that has some by a key of
// another type.
func (s *Server) PutForeign() bool {
	all := s.Documents()
	if len(all) > 0 {
		c := s.open(all[0].Collection)
		clear(c.docs)
		c.foreign = true
	}
	return len(all) > 0
}
