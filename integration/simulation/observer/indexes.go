package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/integration/simulation/conditions"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/sink/store"
)

// checkIndexes checks H20: the entries of a property index are those of the documents, and there are no others. One
// that is
// being made may lack some.
func (h *Observer) checkIndexes() {
	redis := h.servers.Redis
	state, ok := redis.State()
	if !ok || state.Rebuild != 0 || h.losses.damaged {
		return
	}
	if len(state.Making) > 0 {
		h.faults["index in the making"]++
	}
	entries := redis.Entries()
	for collection, config := range redis.Configs() {
		for _, x := range config.Indexes {
			h.checkIndex(store.IndexOf{Collection: collection, Slot: x.Slot}, x.Pointer,
				slices.Contains(state.Making[collection].Slots, x.Slot))
		}
	}
	for of, all := range entries {
		if !slices.ContainsFunc(redis.Configs()[of.Collection].Indexes,
			func(x store.PropertyIndex) bool { return x.Slot == of.Slot }) {
			h.Fail("H20", "collection %s has no index %d, and that has %d entries, the first one is %q", of.Collection,
				of.Slot, len(all), all[0])
		}
	}
	for collection, m := range state.Making {
		for _, slot := range m.Slots {
			if !slices.ContainsFunc(redis.Configs()[collection].Indexes,
				func(x store.PropertyIndex) bool { return x.Slot == slot }) {
				h.Fail("H20", "collection %s has no index %d, and that is being made", collection, slot)
			}
		}
	}
}

// checkIndex checks one property index.
func (h *Observer) checkIndex(of store.IndexOf, pointer string, making bool) {
	want := map[string]bool{}
	for _, d := range h.servers.Redis.Documents() {
		if d.Collection == of.Collection {
			for _, v := range h.values.at(d, pointer) {
				want[string(v)+d.ID] = true
			}
		}
	}
	for _, entry := range h.servers.Redis.Entries()[of] {
		if !want[entry] {
			h.Fail("H20", "index %s of collection %s has the entry %q, and no document has that value", pointer,
				of.Collection, entry)
		}
		delete(want, entry)
	}
	if missing := slices.Sorted(maps.Keys(want)); len(missing) > 0 && !making {
		h.Fail("H20", "index %s of collection %s lacks %d entries, the first one is %q", pointer, of.Collection,
			len(missing), missing[0])
	}
}

// Incomplete is why a property index is not to be used: it is being made, or it has lost entries; nil if all can be.
func (h *Observer) Incomplete() error {
	redis := h.servers.Redis
	state, _ := redis.State()
	for collection := range state.Making {
		return fmt.Errorf("an index of collection %s is being made", collection)
	}
	for collection, config := range redis.Configs() {
		for _, x := range config.Indexes {
			if n := redis.LostEntries(store.IndexOf{Collection: collection, Slot: x.Slot}); n != 0 {
				return fmt.Errorf("index %s of collection %s has lost %d entries", x.Pointer, collection, n)
			}
		}
	}
	return nil
}

// values are those of bodies that were looked at before: by pointer and body.
type values map[string][]conditions.Value

// at are the values of a document at a pointer.
func (v values) at(d redismodel.Document, pointer string) []conditions.Value {
	key := strings.Join([]string{pointer, d.Body}, "\x00")
	all, known := v[key]
	if !known {
		all = conditions.At([]byte(d.Body), pointer)
		v[key] = all
	}
	return all
}
