package redismodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/seed18712806/lapse/sink/store"
)

// entries are those of the property indexes, in the order in which Redis keeps them. A list never changes.
type entries map[store.IndexOf][]string

// Entries are the entries of each property index that has some.
func (s *Server) Entries() map[store.IndexOf][]string { return s.entries }

// LostEntries is how many entries a property index lacks of those that the last commit left.
func (s *Server) LostEntries(of store.IndexOf) int { return s.entriesLeft[of] - len(s.entries[of]) }

// Configs are the configurations of all collections.
func (s *Server) Configs() map[string]store.Config { return s.configs }

// checkEntries returns an error unless a property index has as many entries as the last commit left.
func (s *Server) checkEntries(of store.IndexOf) error {
	if s.LostEntries(of) != 0 {
		return fmt.Errorf("%w: property index %d of collection %s does not have the entries that the last commit left",
			store.ErrDamaged, of.Slot, of.Collection)
	}
	return nil
}

// changeEntries makes the changes of a property index.
func (s *Server) changeEntries(of store.IndexOf, to store.IndexChanges) {
	var was []string
	if !to.Unlink {
		was = s.entries[of]
	}
	all := slices.Concat(was, to.Add)
	slices.Sort(all)
	all = slices.Compact(all)
	if len(to.Remove) > 0 {
		gone := map[string]bool{}
		for _, entry := range to.Remove {
			gone[entry] = true
		}
		all = slices.DeleteFunc(all, func(entry string) bool { return gone[entry] })
	}
	s.setEntries(of, all)
	if s.entriesLeft[of] = len(all); len(all) == 0 {
		delete(s.entriesLeft, of)
	}
}

// setEntries sets the entries of a property index.
func (s *Server) setEntries(of store.IndexOf, all []string) {
	if s.entries[of] = all; len(all) == 0 {
		delete(s.entries, of)
	}
}

// setMaking notes what of the property indexes of a collection is being made.
func (s *Server) setMaking(collection string, m store.Making) {
	next := maps.Clone(s.state.Making)
	if delete(next, collection); len(m.Slots) > 0 {
		if next == nil {
			next = map[string]store.Making{}
		}
		next[collection] = m
	}
	if len(next) == 0 {
		next = nil
	}
	s.state.Making = next
}

// LoseEntry loses the n-th entry of the property indexes, by collection and slot.
func (s *Server) LoseEntry(n int) bool {
	var indexes []store.IndexOf
	for of, all := range s.entries {
		indexes = append(indexes, slices.Repeat([]store.IndexOf{of}, len(all))...)
	}
	if len(indexes) == 0 {
		return false
	}
	slices.SortFunc(indexes, func(a, b store.IndexOf) int {
		return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Slot, b.Slot))
	})
	n %= len(indexes)
	at := n - slices.Index(indexes, indexes[n])
	s.setEntries(indexes[n], slices.Delete(slices.Clone(s.entries[indexes[n]]), at, at+1))
	return true
}
