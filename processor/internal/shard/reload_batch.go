package shard

import (
	"fmt"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
)

// batch gathers entries that are written in one call. Of the entries of a document only the last
// is written, or, for a new header, that with the body before it.
type batch struct {
	changes []store.CollectionFill
	open    map[string]int // the last change of each collection, where more may be added to it
	at      map[key]place
	entries int
	bytes   int
}

type key struct{ collection, id string }

// place is where a change has the last entry of a document.
type place struct {
	kind  snapshot.Kind
	index int // in the list of the kind
}

// full reports whether the batch is large enough to be written.
func (b *batch) full() bool { return b.entries >= entriesAtOnce || b.bytes >= loadedAtOnce }

func (b *batch) clear() {
	*b = batch{open: make(map[string]int), at: make(map[key]place, entriesAtOnce)}
}

// add adds an entry, whose value it copies.
func (b *batch) add(e snapshot.Entry) error {
	b.entries++
	b.bytes += len(e.Value)
	switch e.Kind {
	case snapshot.Drop:
		b.end(e.Collection)
		b.open[e.Collection] = len(b.changes)
		b.changes = append(b.changes, store.CollectionFill{Collection: e.Collection, Drop: true})
		return nil
	case snapshot.Move:
		b.end(e.Collection)
		b.end(string(e.Value))
		b.changes = append(b.changes, store.CollectionFill{Collection: e.Collection, MoveTo: string(e.Value)})
		return nil
	}
	i, ok := b.open[e.Collection]
	if !ok {
		i = len(b.changes)
		b.open[e.Collection] = i
		b.changes = append(b.changes, store.CollectionFill{Collection: e.Collection})
	}
	c, k, value := &b.changes[i], key{e.Collection, e.ID}, string(e.Value)
	was, again := b.at[k]
	if again {
		if e.Kind == snapshot.Renew && was.kind != snapshot.Renew {
			if was.kind == snapshot.Remove {
				return nil // there is nothing to renew
			}
			old := c.Put[was.index].Value
			e.Kind, value = snapshot.Put, value+old[old[0]:]
		}
		b.forget(c, was)
	}
	document := store.Document{Collection: e.Collection, ID: e.ID, Value: value}
	switch e.Kind {
	case snapshot.Put:
		b.at[k] = place{snapshot.Put, len(c.Put)}
		c.Put = append(c.Put, document)
	case snapshot.Renew:
		b.at[k] = place{snapshot.Renew, len(c.Renew)}
		c.Renew = append(c.Renew, document)
	case snapshot.Remove:
		b.at[k] = place{snapshot.Remove, len(c.Remove)}
		c.Remove = append(c.Remove, e.ID)
	default:
		return fmt.Errorf("%w: it has an entry of kind %d, which this version of lapse does not know", snapshot.ErrDamaged, e.Kind)
	}
	return nil
}

// forget takes the entry at a place out of a change: the last one of the list takes its place. The caller
// gives its document another place.
func (b *batch) forget(c *store.CollectionFill, p place) {
	moved := func(id string) { b.at[key{c.Collection, id}] = p }
	switch p.kind {
	case snapshot.Put:
		c.Put = takeOut(c.Put, p.index, func(d store.Document) { moved(d.ID) })
	case snapshot.Renew:
		c.Renew = takeOut(c.Renew, p.index, func(d store.Document) { moved(d.ID) })
	default:
		c.Remove = takeOut(c.Remove, p.index, moved)
	}
}

func takeOut[T any](list []T, at int, moved func(T)) []T {
	last := len(list) - 1
	list[at] = list[last]
	moved(list[at])
	return list[:last]
}

// end ends the change of a collection: what comes next is another one.
func (b *batch) end(collection string) {
	delete(b.open, collection)
	for k := range b.at {
		if k.collection == collection {
			delete(b.at, k)
		}
	}
}
