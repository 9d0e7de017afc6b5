package redismodel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// list is a sorted list. It may share its items with a snapshot: then the first change
// copies them.
type list[T interface{ compare(T) int }] struct {
	items  []T
	shared bool
}

// find is the place of an item, and whether it is there.
func (l *list[T]) find(item T) (at int, ok bool) {
	return slices.BinarySearchFunc(l.items, item, T.compare)
}

func (l *list[T]) own() {
	if l.shared {
		l.items, l.shared = slices.Clone(l.items), false
	}
}

// set adds an item, or replaces the one in its place, and returns the place.
func (l *list[T]) set(item T) (at int) {
	l.own()
	at, ok := l.find(item)
	if !ok {
		l.items = slices.Insert(l.items, at, item)
	}
	l.items[at] = item
	return at
}

// remove removes an item, if it is there.
func (l *list[T]) remove(item T) {
	if at, ok := l.find(item); ok {
		l.own()
		l.items = slices.Delete(l.items, at, at+1)
	}
}

// contents are all keys of a partition, or of the copy that was set aside.
type contents struct {
	state       store.State // without Configs and Collections; no Version if there is no state
	configsLeft int         // after the last commit; a field of the state
	configs     int         // number of configurations
	collections list[collection]
}

// collection is a collection that has a key or a field.
type collection struct {
	name    string
	config  *store.Config // never changes; nil if there is none
	docs    list[document]
	index   list[entry]
	left    sizes // after the last commit; a field of the state
	foreign bool  // the key of the documents is of another type
}

func (c collection) compare(other collection) int { return strings.Compare(c.name, other.name) }

// document is a stored document. What it points to never changes.
type document struct {
	id string
	*store.Stored
}

func (d document) compare(other document) int { return strings.Compare(d.id, other.id) }

// size is the bytes of a document's value, or of its header.
func (d document) size(whole bool) int {
	n := 255 - store.MaxTrace + len(d.Header.Trace)
	if whole {
		n += len(d.Body)
	}
	return n
}

// entry is a member of one of the two indexes, in the order in which Redis keeps each.
type entry struct {
	own   bool // it is in the index of documents that have a TTL of their own
	score int64
	id    string
}

func (e entry) compare(other entry) int {
	if e.own != other.own && e.own {
		return 1
	} else if e.own != other.own {
		return -1
	}
	return cmp.Or(cmp.Compare(e.score, other.score), strings.Compare(e.id, other.id))
}

// entryOf is the entry of a document; ok = false if it never expires.
func entryOf(id string, h *store.Header) (e entry, ok bool) {
	_, score := h.Index()
	return entry{h.TTL != ttlrules.Inherit, score, id}, h.TTL != ttlrules.Never
}

// place is that of the first entry of an index which has a score or a greater one.
func (c *collection) place(own bool, score int64) int {
	at, _ := c.index.find(entry{own: own, score: score})
	return at
}

// sizes are the numbers of documents, and of members of the two indexes.
type sizes [3]int

func (c *collection) sizes() sizes {
	inherit := c.place(true, math.MinInt64)
	return sizes{len(c.docs.items), inherit, len(c.index.items) - inherit}
}

// check returns an error unless the collection is as the last commit left it.
func (c *collection) check() error {
	if c.foreign {
		return fmt.Errorf("%w: the key of collection %s", store.ErrForeign, c.name)
	}
	if c.left != c.sizes() {
		return fmt.Errorf("%w: collection %s is not as the last commit left it", store.ErrDamaged, c.name)
	}
	return nil
}

// at is a collection to read.
func (c *contents) at(name string) *collection {
	if at, ok := c.collections.find(collection{name: name}); ok {
		return &c.collections.items[at]
	}
	return &collection{name: name}
}

// open is a collection to change, until a new one is opened.
func (c *contents) open(name string) *collection {
	at, ok := c.collections.find(collection{name: name})
	if !ok {
		at = c.collections.set(collection{name: name})
	}
	c.collections.own()
	return &c.collections.items[at]
}

// share is a copy that shares all items.
func (c *contents) share() contents {
	c.collections.own() // a snapshot's are not to be touched
	for i := range c.collections.items {
		one := &c.collections.items[i]
		one.docs.shared, one.index.shared = true, true
	}
	c.collections.shared = true
	return *c
}

// whole is the state with its configurations and collections.
func (c *contents) whole() store.State {
	s := c.state
	s.Configs = map[string]store.Config{}
	for _, one := range c.collections.items {
		if one.config != nil {
			s.Configs[one.name] = copied(*one.config)
		}
		if one.left != (sizes{}) {
			s.Collections = append(s.Collections, one.name)
		}
	}
	return s
}

func copied(c store.Config) store.Config {
	c.History = append(ttlrules.History(nil), c.History...)
	return c
}

// bytes are the bytes of what is stored, about.
func (c *contents) bytes() (n int) {
	for _, one := range c.collections.items {
		if one.config != nil {
			n += len(one.name) + 24*len(one.config.History)
		}
		for _, d := range one.docs.items {
			n += len(d.id) + d.size(true)
		}
		for _, e := range one.index.items {
			n += len(e.id) + 8
		}
	}
	return n
}
