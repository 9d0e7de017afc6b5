package fold

import (
	"cmp"
	"container/heap"
	"math"
)

// dueHeap is a heap of collections by when they need the owner next.
type dueHeap struct {
	list    []*Collection
	visited *int
	of      func(*Collection) *entry
}

// entry is when a collection needs the owner next.
type entry struct {
	at    int64
	place int // in its heap; -1 if it is not there
}

func (h *dueHeap) compare(a, b *Collection) int {
	return cmp.Or(cmp.Compare(h.of(a).at, h.of(b).at), cmp.Compare(a.Name, b.Name))
}

// set puts a collection where it belongs.
func (h *dueHeap) set(c *Collection, at int64) {
	e := h.of(c)
	if at == e.at {
		return
	}
	e.at = at
	switch {
	case e.place < 0:
		heap.Push(h, c)
	case at == math.MaxInt64:
		heap.Remove(h, e.place)
	default:
		heap.Fix(h, e.place)
	}
}

// remove takes a collection out, if it is there.
func (h *dueHeap) remove(c *Collection) {
	if e := h.of(c); e.place >= 0 {
		heap.Remove(h, e.place)
	}
}

// first is when the first collection needs the owner; math.MaxInt64 if none does.
func (h *dueHeap) first() int64 {
	if len(h.list) == 0 {
		return math.MaxInt64
	}
	return h.of(h.list[0]).at
}

func (h *dueHeap) Len() int { return len(h.list) }

func (h *dueHeap) Less(i, j int) bool {
	*h.visited++
	return h.compare(h.list[i], h.list[j]) < 0
}

func (h *dueHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.of(h.list[i]).place, h.of(h.list[j]).place = i, j
}

// Push is for container/heap.
func (h *dueHeap) Push(x any) {
	c := x.(*Collection)
	h.of(c).place = len(h.list)
	h.list = append(h.list, c)
}

// Pop is for container/heap.
func (h *dueHeap) Pop() any {
	last := len(h.list) - 1
	c := h.list[last]
	h.list[last], h.list = nil, h.list[:last]
	h.of(c).place = -1
	return c
}
