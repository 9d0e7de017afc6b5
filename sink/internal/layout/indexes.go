package layout

import (
	"slices"

	"github.com/seed18712806/lapse/sink/wire"
)

// PropertyIndex is one of the pointers by whose values the documents of a collection can be queried. Its entries are
// under the key [Keys.By] of its slot, a number from 0 to wire.MaxIndexes-1 that no other index of the collection has.
type PropertyIndex struct {
	Pointer string
	Slot    int
}

// Pointers are those of the property indexes, in its order.
func (c Config) Pointers() (pointers []string) {
	for _, x := range c.Indexes {
		pointers = append(pointers, x.Pointer)
	}
	return pointers
}

// WithIndexes is the configuration with other indexes. A pointer that stays keeps its slot, and a new one gets the
// smallest that is free.
func (c Config) WithIndexes(pointers []string) Config {
	was := c.Indexes
	taken := make([]bool, wire.MaxIndexes)
	for _, x := range was {
		taken[x.Slot] = slices.Contains(pointers, x.Pointer)
	}
	c.Indexes = nil
	for _, pointer := range pointers {
		slot := slices.Index(taken, false)
		if i := slices.IndexFunc(was, func(x PropertyIndex) bool { return x.Pointer == pointer }); i >= 0 {
			slot = was[i].Slot
		}
		taken[slot] = true
		c.Indexes = append(c.Indexes, PropertyIndex{Pointer: pointer, Slot: slot})
	}
	return c
}

// decodeIndexes reads the indexes of a stored configuration.
func decodeIndexes(stored [][2]any) (indexes []PropertyIndex, ok bool) {
	for _, s := range stored {
		pointer, _ := s[0].(string)
		slot, ok := s[1].(float64)
		x := PropertyIndex{Pointer: pointer, Slot: int(slot)}
		again := func(y PropertyIndex) bool { return x.Pointer == y.Pointer || x.Slot == y.Slot }
		ok = ok && pointer != "" && float64(x.Slot) == slot && x.Slot >= 0 && x.Slot < wire.MaxIndexes
		if !ok || slices.ContainsFunc(indexes, again) {
			return nil, false
		}
		indexes = append(indexes, x)
	}
	return indexes, true
}
