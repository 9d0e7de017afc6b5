package fold

import (
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// MayBeDue reports whether a document of a collection may be due at an instant, in the due queue or outside it.
func (s *Collections) MayBeDue(name string, at int64, queue *DueQueue) bool {
	c := s.all[name]
	return c != nil && min(c.due.at, queue.firstDueOf(name)) <= at
}

// Resume gives a collection that is paused the configuration with which a message at a log time ends the pause. A drop
// begins with that: what has expired meanwhile gets its events.
func (s *Collections) Resume(name string, at int64, seq uint64) {
	if c := s.all[name]; c != nil && c.Config.Paused() {
		s.Configure(c, c.Config.Pause(false, at, seq))
	}
}

// Drop drops a collection by the message with a sequence, at a log time. Where documents of it are
// due, the whole collection becomes an old generation, with a configuration by which no more
// documents become due. It returns what has to be committed.
func (s *Collections) Drop(name string, seq uint64, at int64,
	due bool) ([]store.ConfigChange, []store.CollectionChanges) {
	current := s.Config(name)
	gone := store.ConfigChange{Collection: name}
	drop := store.CollectionChanges{Collection: name, Drop: store.DropAll}
	if c := s.all[name]; c != nil {
		drop = c.withoutIndexes(drop)
	}
	if !due {
		s.Remove(name)
		return []store.ConfigChange{gone}, []store.CollectionChanges{drop}
	}
	drop.Drop = store.DropMoves
	to := GenerationName(name, seq)
	closed := store.Config{
		History: current.History.With(at, seq, ttlrules.Off),
		Bodies:  current.Bodies, Bands: current.Bands, Pauses: current.Pauses,
	}
	s.Move(name, to, closed)
	return []store.ConfigChange{gone, {Collection: to, Config: &closed}},
		[]store.CollectionChanges{drop, {Collection: to}}
}

// ToPause are the next configurations of those collections that are not paused, by a message at a log time that pauses
// all of them, up to so many; they are in no order.
func (s *Collections) ToPause(at int64, seq uint64, most int) (all []store.ConfigChange) {
	for _, c := range s.verifying.list {
		if !c.stored || IsGeneration(c.Name) || c.Name == wire.LogRules || c.Config.Paused() {
			continue
		}
		if len(all) == most {
			break
		}
		next := c.Config.Pause(true, at, seq)
		all = append(all, store.ConfigChange{Collection: c.Name, Config: &next})
	}
	return all
}

// Reconfigure gives a collection its next configuration. Its warnings begin at a log time. It returns
// what has to be committed.
func (s *Collections) Reconfigure(name string, next store.Config, at int64) []store.ConfigChange {
	c := s.Make(name)
	s.Configure(c, next)
	s.warnFrom(c, at)
	return []store.ConfigChange{{Collection: name, Config: &next}}
}

// Committed keeps the collections and the due queue true after a commit.
func (s *Collections) Committed(c store.CollectionChanges, queue *DueQueue) {
	if c.Emptied {
		defer s.Emptied(c.Collection)
	}
	place := s.all[c.Collection]
	if len(c.Changes) > 0 {
		place = s.Make(c.Collection)
	}
	if place == nil {
		return // it was dropped
	}
	for _, change := range c.Changes {
		queue.Remove(Key{Collection: c.Collection, ID: change.ID})
		if change.New != nil {
			s.Note(place, change.New)
		}
	}
	place.full = !c.Emptied
	if c.Making != nil {
		s.setMaking(place, *c.Making)
	}
}
