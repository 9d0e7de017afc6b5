package fold

import "github.com/seed18712806/lapse/sink/store"

// Build is how far the index of a collection has been built. It is not stored: after a
// takeover the build begins anew, which adds no entry twice.
type Build struct {
	Cursor string // of the scan over the documents; "" at the beginning
	Server string // process of Redis in which the cursor is valid
}

// Building is a collection whose index is being built; nil if there is none.
func (s *Collections) Building() *Collection {
	for c := range s.building {
		return c
	}
	return nil
}

// Index has the indexes built of collections in which documents are in no index, although it is not
// turned off: a build was not ended, or an earlier lapse did not index what never expires.
func (s *Collections) Index(unindexed []string) {
	for _, name := range unindexed {
		c := s.Make(name)
		c.Config.Building = true
		set(s.building, c, true)
	}
}

// Indexed is what has to be committed with the last chunk of a build.
func (c *Collection) Indexed() []store.ConfigChange {
	if !c.stored {
		return nil
	}
	built := c.Config
	built.Building = false
	return []store.ConfigChange{{Collection: c.Name, Config: &built}}
}

// Built notes that the last chunk of a build is committed.
func (s *Collections) Built(c *Collection) {
	c.Build, c.Config.Building = Build{}, false
	set(s.building, c, false)
	s.refresh(c)
}
