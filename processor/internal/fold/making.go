package fold

import (
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// Making are the slots of a collection whose property indexes are being made.
func (s *Collections) Making(name string) []int {
	if c := s.all[name]; c != nil {
		return c.making.Slots
	}
	return nil
}

// BeginMaking is the beginning of making all property indexes of a configuration.
func BeginMaking(config store.Config) store.Making {
	m := store.Making{Index: ttlrules.ByInherit}
	for _, x := range config.Indexes {
		m.Slots = append(m.Slots, x.Slot)
	}
	return m
}

// ResumeMaking notes what a stored state says is being made.
func (s *Collections) ResumeMaking(all map[string]store.Making) {
	for name, m := range all {
		s.setMaking(s.Make(name), m)
	}
}

func (s *Collections) setMaking(c *Collection, m store.Making) {
	s.makes += len(m.Slots) - len(c.making.Slots)
	c.making = m
	s.making.set(c, len(m.Slots) > 0)
}

// IndexesMade is the number of property indexes that are being made.
func (s *Collections) IndexesMade() int { return s.makes }

// ToMake is the next collection of which something is being made, in turn, and how far that is; name is empty if there
// is none.
func (s *Collections) ToMake() (name string, m store.Making) {
	s.making.some(1, func(c *Collection) { name, m = c.Name, c.making })
	return name, m
}

// ToPass are the slices of the indexes of a collection that are still to be passed.
func ToPass(m store.Making) []store.Slice {
	here := store.Slice{Index: m.Index, After: store.Place{Score: m.Score, ID: m.ID}, UpTo: store.NoScore}
	if m.Index == ttlrules.ByOwn {
		return []store.Slice{here}
	}
	return []store.Slice{here, {Index: ttlrules.ByOwn, UpTo: store.NoScore}}
}

// Pass adds the entries of documents that were found in the slices of [ToPass]. It returns what is to be committed.
func (s *Collections) Pass(name string, m store.Making, found []store.Found) store.CollectionChanges {
	c := store.CollectionChanges{Collection: name}
	config := s.Config(name)
	none := make([][]entries.Value, len(config.Indexes))
	slots := m.Slots
	for _, f := range found {
		for i, id := range f.IDs {
			values := valuesOf([]byte(f.Documents[i].Body), config)
			for j, x := range config.Indexes {
				if !slices.Contains(slots, x.Slot) {
					values[j] = nil
				}
			}
			changeEntries(&c, config, nil, id, none, values)
		}
		m.Made += int64(len(f.IDs))
		if last := len(f.IDs) - 1; last >= 0 {
			_, score := f.Documents[last].Header.Index()
			m.Score, m.ID = score, f.IDs[last]
		}
		if f.More {
			break
		}
		m.Index, m.Score, m.ID = m.Index+1, 0, ""
	}
	if m.Index > ttlrules.ByOwn {
		m = store.Making{}
	}
	c.Making = &m
	return c
}

// Reindex notes that a collection gets other property indexes with its next configuration. It returns what has to be
// committed with that. An index that is new is made if the collection has documents; what is being made there begins
// anew then, with all its slots, because one place tells how far it is. Adding an entry again does no harm.
func (s *Collections) Reindex(name string, next store.Config) []store.CollectionChanges {
	c := s.Make(name)
	change := store.CollectionChanges{Collection: name}
	m, anew := c.making, false
	m.Slots = slices.Clone(m.Slots)
	for _, x := range c.Config.Indexes {
		if !slices.Contains(next.Indexes, x) {
			change.Indexes = append(change.Indexes, store.IndexChanges{Slot: x.Slot, Unlink: true})
			m.Slots = slices.DeleteFunc(m.Slots, func(slot int) bool { return slot == x.Slot })
		}
	}
	for _, x := range next.Indexes {
		if c.full && !slices.Contains(c.Config.Indexes, x) {
			m, anew = store.Making{Slots: append(m.Slots, x.Slot), Index: ttlrules.ByInherit}, true
		}
	}
	if anew || len(m.Slots) < len(c.making.Slots) {
		if len(m.Slots) == 0 {
			m = store.Making{}
		}
		s.setMaking(c, m)
		change.Making = &m
	}
	if change.Making == nil && len(change.Indexes) == 0 {
		return nil
	}
	return []store.CollectionChanges{change}
}

// withoutIndexes is the drop of a collection that has some property indexes: these go too.
func (c *Collection) withoutIndexes(drop store.CollectionChanges) store.CollectionChanges {
	for _, x := range c.Config.Indexes {
		drop.Indexes = append(drop.Indexes, store.IndexChanges{Slot: x.Slot, Unlink: true})
	}
	if len(c.making.Slots) > 0 {
		drop.Making = &store.Making{}
	}
	return drop
}

// IndexesOf are the property indexes of some collections.
func (s *Collections) IndexesOf(names []string) (all []store.IndexOf) {
	for _, name := range names {
		for _, x := range s.Config(name).Indexes {
			all = append(all, store.IndexOf{Collection: name, Slot: x.Slot})
		}
	}
	return all
}
