package fold

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// The entries of property indexes follow from the bodies of documents, and change with them:
//
//   - X1: after each commit an index that is not being made has exactly the entries of the documents that are
//     stored: for each value that one has at the pointer, one entry.
//   - X2: an index that is being made has no other entries than these. It has all those of the documents that were
//     written or renewed since it was declared, and of those that the owner has passed (store.Making).
//
// So a write to a collection with indexes needs the stored body. A touch changes no entry, but moves the document in
// the order in which the owner passes: while something is being made, it needs the body too.

// entriesAtOnce is how many entries a step changes for its messages, and as many for the documents that are due.
const entriesAtOnce = 16_384

// isIndexed reports whether a message needs the stored body for the property indexes.
func (d *Decision) isIndexed(m *Message, config store.Config) bool {
	return len(config.Indexes) > 0 && (m.Op != wire.Touch || len(d.catalog.Making(m.Collection)) > 0)
}

// valuesOf are the values of a body for the property indexes, which has none of a body that is nil.
func valuesOf(body []byte, config store.Config) [][]entries.Value {
	var values [][]entries.Value
	if body != nil {
		values, _ = entries.Of(body, config.Pointers()) // Check has accepted it
	}
	if values == nil {
		values = make([][]entries.Value, len(config.Indexes))
	}
	return values
}

// indexing is what a step knows of a document for the property indexes.
type indexing struct {
	were  [][]entries.Value // of the stored body
	are   [][]entries.Value // of the body of; nil if they are not known
	of    []byte
	bound int // how many entries the document has now, at most
	total int // how many entries the step changes of the document, at most
}

// body is the stored body; nil if there is none, or it was not read.
func (s *Slot) body() []byte {
	if s.was == nil {
		return nil
	}
	return s.was.Body
}

// indexing is made when the step needs it first; the stored body was read by then.
func (s *Slot) indexing(config store.Config) *indexing {
	if s.indexed == nil {
		were := valuesOf(s.body(), config)
		s.indexed = &indexing{were: were, bound: count(were)}
	}
	return s.indexed
}

func count(values [][]entries.Value) (n int) {
	for _, some := range values {
		n += len(some)
	}
	return n
}

// countEntries counts the entries that a message has changed. The bytes of a document that patches change are not known
// yet: its new values come from the patches, and each takes two bytes at least.
func (d *Decision) countEntries(s *Slot, m *Message, config store.Config) {
	x := s.indexing(config)
	switch v := s.Now; {
	case v == nil:
		x.bound = 0
	case m.Op == wire.Touch:
	case v.document != nil:
		x.bound += min(len(m.Body)/2+1, entries.MaxElements*len(config.Indexes))
	default:
		x.are, x.of = valuesOf(v.Body, config), v.Body
		x.bound = count(x.are)
	}
	total := count(x.were) + x.bound
	d.entries += total - x.total
	x.total = total
}

// leftOut is the warning that what a message has written at a pointer is not indexed; empty if all of it is. What a
// patch writes there is as it is in the patch.
func (s *Slot) leftOut(m *Message, config store.Config) string {
	written := s.indexed.are
	switch {
	case !m.Op.HasBody():
		return ""
	case s.Now.document != nil:
		written = valuesOf(m.Body, config)
	}
	for i, values := range written {
		if len(values) == 1 && values[0].Kind == entries.LeftOut {
			return fmt.Sprintf("no query by %s finds this document: what it has there is not indexed. Use a string "+
				"of up to %d bytes, a number, true, false, null, or an array of up to %d of these.",
				wire.Quote(config.Indexes[i].Pointer), entries.MaxValue, entries.MaxElements)
		}
	}
	return ""
}

// index adds the entries that a change of a document changes.
func (d *Decision) index(c *store.CollectionChanges, s *Slot, change store.Change) {
	config := d.catalog.Config(c.Collection)
	if len(config.Indexes) == 0 {
		return
	}
	making := d.catalog.Making(c.Collection)
	unchanged := bytes.Equal(change.Body, s.body())
	if change.New != nil && (change.Body == nil || unchanged && len(making) == 0) {
		return
	}
	x := s.indexing(config)
	are := make([][]entries.Value, len(config.Indexes))
	switch {
	case change.New == nil:
	case unchanged:
		are = x.were
	case x.are != nil && &x.of[0] == &change.Body[0]:
		are = x.are
	default:
		are = valuesOf(change.Body, config)
	}
	changeEntries(c, config, making, change.ID, x.were, are)
}

// unindex adds the removal of the entries of a document that is due.
func (d *Decision) unindex(c *store.CollectionChanges, doc *DueDocument) {
	config := d.catalog.Config(c.Collection)
	if len(config.Indexes) > 0 {
		changeEntries(c, config, nil, doc.Key.ID, doc.values(config), make([][]entries.Value, len(config.Indexes)))
	}
}

// values are those of the document for the property indexes.
func (d *DueDocument) values(config store.Config) [][]entries.Value {
	if d.indexed == nil {
		d.indexed = valuesOf(d.Body, config)
	}
	return d.indexed
}

// changeEntries adds the entries that a document gets and loses, in the order of the indexes of a configuration. In the
// slots that are being made it gets all of them.
func changeEntries(c *store.CollectionChanges, config store.Config, making []int, id string,
	were, are [][]entries.Value) {
	for i, x := range config.Indexes {
		old, now := were[i], are[i]
		all := len(making) > 0 && slices.Contains(making, x.Slot)
		if !all && slices.Equal(old, now) {
			continue
		}
		var changes *store.IndexChanges
		at := func() *store.IndexChanges {
			if changes == nil {
				changes = slotOf(c, x.Slot)
			}
			return changes
		}
		for _, v := range now {
			if all || !slices.Contains(old, v) {
				at().Add = append(at().Add, entries.Member(v, id))
			}
		}
		for _, v := range old {
			if !slices.Contains(now, v) {
				at().Remove = append(at().Remove, entries.Member(v, id))
			}
		}
	}
}

// slotOf is what a step does to a slot so far.
func slotOf(c *store.CollectionChanges, slot int) *store.IndexChanges {
	for i := range c.Indexes {
		if c.Indexes[i].Slot == slot {
			return &c.Indexes[i]
		}
	}
	c.Indexes = append(c.Indexes, store.IndexChanges{Slot: slot})
	return &c.Indexes[len(c.Indexes)-1]
}
