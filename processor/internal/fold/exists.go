package fold

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// exists refuses a write to a collection that does not exist.
func (d *Decision) exists(m *Message, config store.Config) *Refusal {
	if config.Etag != 0 || d.catalog.AllExist() {
		return nil
	}
	return noCollection(m.Collection, d.catalog)
}

func noCollection(collection string, catalog Catalog) *Refusal {
	text := wire.NoCollection(collection, catalog.Nearest(collection))
	return &Refusal{Code: wire.StatusNotFound, Text: text, Reason: wire.ReasonNoCollection}
}

// readRule reads the body of a configuration of [wire.CollectionsRule].
func (m *Message) readRule() *Refusal {
	known := false
	for name, value := range Members(m.Body) {
		known = name == "open" && json.Unmarshal(value, &m.Config.Open) == nil && string(value) != "null"
		if !known {
			break
		}
	}
	if !known {
		return Refuse(wire.StatusBadRequest, "the rule of the collections is not valid: use {\"open\":true} or {\"open\":false}.")
	}
	return nil
}

// AllExist reports whether every collection exists, also one that is not configured.
func (s *Collections) AllExist() bool {
	return s.Config(wire.CollectionsRule).Open || s.Unruled()
}

// Unruled reports whether a person has begun the shard anew, and the log has had no rule since: see LacksBeginning.
func (s *Collections) Unruled() bool {
	return s.lacksBeginning && s.Config(wire.CollectionsRule).Etag == 0
}

// LacksBeginning notes that a person has begun the shard anew from a log that may lack configurations. Every collection
// exists then up to the first rule of the log: else the writes that are left would be rejected.
func (s *Collections) LacksBeginning() { s.lacksBeginning = true }

// Anew is NewCollections, of the same shard: see LacksBeginning.
func (s *Collections) Anew(configs map[string]store.Config, withDocuments []string) *Collections {
	next := NewCollections(configs, withDocuments)
	next.lacksBeginning = s.lacksBeginning
	return next
}

// mostNearest bounds the names that are compared for one rejection, and the answers that are kept.
const mostNearest = 1000

// Nearest is the name of the configured collection that is nearest to one that is not; "" if none is near, or if
// there are very many. The owner keeps the answers until it makes or removes a collection, because a client may repeat
// a misspelt name in every write.
func (s *Collections) Nearest(collection string) string {
	if len(s.all) > mostNearest {
		return ""
	}
	if len(s.near) >= mostNearest || s.near == nil {
		s.near = make(map[string]string)
	}
	nearest, ok := s.near[collection]
	if !ok {
		names := slices.Collect(maps.Keys(s.all))
		names = slices.DeleteFunc(names, func(name string) bool {
			return !s.all[name].stored || IsGeneration(name) || name == wire.CollectionsRule
		})
		nearest = wire.Nearest(collection, names)
		s.near[collection] = nearest
	}
	return nearest
}
