package fold

import (
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// MayBeDue reports whether a document of a collection may be due at an instant, in the due queue or
// outside it.
func (s *Collections) MayBeDue(name string, at int64, queue *DueQueue) bool {
	c := s.all[name]
	return c != nil && min(c.due.at, queue.firstDueOf(name)) <= at
}

// Drop drops a collection by the message with a sequence, at a log time. Where documents of it are
// due, the whole collection becomes an old generation, with a configuration by which no more
// documents become due. It returns what has to be committed.
func (s *Collections) Drop(name string, seq uint64, at int64, due bool) ([]store.ConfigChange, []store.CollectionChanges) {
	current := s.Config(name)
	gone := store.ConfigChange{Collection: name}
	if !due {
		s.Remove(name)
		return []store.ConfigChange{gone}, []store.CollectionChanges{{Collection: name, Drop: store.DropAll}}
	}
	to := GenerationName(name, seq)
	closed := store.Config{History: current.History.With(at, seq, ttlrules.Off), Bodies: current.Bodies, Bands: current.Bands}
	s.Move(name, to, closed)
	return []store.ConfigChange{gone, {Collection: to, Config: &closed}},
		[]store.CollectionChanges{{Collection: name, Drop: store.DropMoves}, {Collection: to}}
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
	if len(c.Changes) == 0 {
		return // a drop
	}
	place := s.Make(c.Collection)
	for _, change := range c.Changes {
		queue.Remove(Key{Collection: c.Collection, ID: change.ID})
		if change.New != nil {
			s.Note(place, change.New)
		}
	}
}
