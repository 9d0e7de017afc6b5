package embedded

import (
	"hash/maphash"

	"github.com/tidwall/btree"
)

// dict is a map that can be scanned in pages: its entries have an order.
type dict[V any] struct {
	tree *btree.BTreeG[entry[V]]
}

// entry is a name and its value. The order is that of place, then of name.
type entry[V any] struct {
	place uint64
	name  string
	value V
}

// unlocked: the server runs one command at a time.
var unlocked = btree.Options{NoLocks: true}

func newDict[V any]() *dict[V] {
	return &dict[V]{btree.NewBTreeGOptions(func(a, b entry[V]) bool {
		return a.place < b.place || a.place == b.place && a.name < b.name
	}, unlocked)}
}

var seed = maphash.MakeSeed()

// placeOf is the hash of a name, of 63 bits, so that a cursor is also a signed number. It is
// never 0, which is the cursor of the beginning.
func placeOf(name string) uint64 { return max(1, maphash.String(seed, name)>>1) }

func (d *dict[V]) len() int { return d.tree.Len() }

func (d *dict[V]) get(name string) (V, bool) {
	e, ok := d.tree.Get(entry[V]{place: placeOf(name), name: name})
	return e.value, ok
}

// set reports whether the name is new.
func (d *dict[V]) set(name string, value V) bool {
	_, replaced := d.tree.Set(entry[V]{placeOf(name), name, value})
	return !replaced
}

// remove reports whether the name was there.
func (d *dict[V]) remove(name string) bool {
	_, removed := d.tree.Delete(entry[V]{place: placeOf(name), name: name})
	return removed
}

// scan visits about n entries from a cursor on, and returns the cursor of the rest: 0 at the
// end. Names of the same place are visited together, or the cursor would lose some.
func (d *dict[V]) scan(cursor uint64, n int, visit func(name string, value V)) (next uint64) {
	visited, last := 0, cursor
	d.tree.Ascend(entry[V]{place: cursor}, func(e entry[V]) bool {
		if visited >= n && e.place != last {
			next = e.place
			return false
		}
		visit(e.name, e.value)
		visited, last = visited+1, e.place
		return true
	})
	return next
}

// all visits all entries.
func (d *dict[V]) all(visit func(name string, value V)) {
	d.tree.Scan(func(e entry[V]) bool { visit(e.name, e.value); return true })
}
