package fold

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// Reap returns the documents of the queue that are due at an instant and can be reaped beside this decision: not those
// that its messages name, and not those that are being reaped. held reports that there are others, for which readers
// are not known to have reached the deadline: the owner has to commit the log time first. A step removes no more
// entries of property indexes than entriesAtOnce, but for one document.
func (d *Decision) Reap(queue *DueQueue, now, reached int64) (due []*DueDocument, held bool) {
	removed := 0
	for _, doc := range queue.Due(now) {
		switch {
		case doc.reaped || d.docs[doc.Key] != nil:
		case doc.Expiry.At > reached:
			held = true
		case removed >= entriesAtOnce:
			return due, held
		default:
			due = append(due, doc)
			if config := d.catalog.Config(doc.Key.Collection); len(config.Indexes) > 0 {
				removed += count(doc.values(config))
			}
		}
	}
	return due, held
}

// ExpireDue adds the expiry event of a document that is due, unless it was published.
func (d *Decision) ExpireDue(doc *DueDocument) {
	doc.reaped = true
	if doc.Body == nil || doc.Published {
		d.Expired++
		return
	}
	at, seq, _ := d.catalog.Config(doc.Key.Collection).Cause(doc.Expiry)
	d.expire(doc.Key, &Version{Header: doc.Header, Body: doc.Body}, doc.Expiry, Output{At: at, Seq: seq})
}

// Key names a document, or a document of an old generation of a collection.
type Key struct{ Collection, ID string }

// DueQueue holds documents that the owner has looked up before they are due, so that it
// reads nothing at their deadline. They are as they are stored: only the owner changes
// documents, and it takes each that it changes out of the queue.
type DueQueue struct {
	byKey map[Key]*DueDocument
	order []*DueDocument // by when their events are due, then by deadline
}

// DueDocument is a document that is due, or will be.
type DueDocument struct {
	Key    Key
	Header store.Header
	Body   []byte // nil if it was not read: its event was published before, and nobody else needs it
	Expiry ttlrules.Expiry
	// Published reports that its event was published before.
	Published bool
	// Resumed is when a pause of the collection has ended that held the event back; 0 if none did.
	Resumed int64
	gone    bool // it was taken out of the queue
	reaped  bool // its event is made; the commit takes it out
	indexed [][]entries.Value
}

// dueAt is the instant from which the event is to be published.
func (d *DueDocument) dueAt() int64 { return max(d.Expiry.At, d.Resumed) }

// Set replaces all documents of the queue.
func (q *DueQueue) Set(docs []*DueDocument) {
	slices.SortFunc(docs, func(a, b *DueDocument) int {
		return cmp.Or(cmp.Compare(a.dueAt(), b.dueAt()), cmp.Compare(a.Expiry.At, b.Expiry.At),
			cmp.Compare(a.Header.Etag, b.Header.Etag))
	})
	q.order = docs
	q.byKey = make(map[Key]*DueDocument, len(docs))
	for _, d := range docs {
		q.byKey[d.Key] = d
	}
}

// Add adds documents to the queue, which has none of them.
func (q *DueQueue) Add(docs []*DueDocument) {
	q.Set(slices.AppendSeq(docs, q.All()))
}

// Part is an index of a collection, or a band of one.
type Part struct {
	Collection string
	Index      ttlrules.Index
	Band       int
}

// Of counts the documents in each part of the indexes of collections.
func (q *DueQueue) Of(collections []*Collection) map[Part]int {
	asked, n := make(map[string]bool, len(collections)), make(map[Part]int, 2*len(collections))
	for _, c := range collections {
		asked[c.Name] = true
	}
	for key, d := range q.byKey {
		if asked[key.Collection] {
			_, in := d.Header.Clock().Score()
			n[Part{key.Collection, in, d.Header.Band}]++
		}
	}
	return n
}

// hasBand reports whether a document of a collection is in a band of the index but the first.
func (q *DueQueue) hasBand(collection string) bool {
	for key, d := range q.byKey {
		if key.Collection == collection && d.Header.Band > 0 {
			return true
		}
	}
	return false
}

// Remove takes a document out, if it is in the queue.
func (q *DueQueue) Remove(key Key) {
	d, ok := q.byKey[key]
	if !ok {
		return
	}
	d.gone = true
	delete(q.byKey, key)
	for len(q.order) > 0 && q.order[0].gone {
		q.order = q.order[1:]
	}
}

// Body is the body of a version; nil if the queue does not have it.
func (q *DueQueue) Body(key Key, etag uint64) []byte {
	if d, ok := q.byKey[key]; ok && d.Header.Etag == etag {
		return d.Body
	}
	return nil
}

// All are the documents of the queue, in no order.
func (q *DueQueue) All() iter.Seq[*DueDocument] { return maps.Values(q.byKey) }

// Len is the number of documents.
func (q *DueQueue) Len() int { return len(q.byKey) }

// FirstDue is the first deadline; math.MaxInt64 if the queue is empty.
func (q *DueQueue) FirstDue() int64 {
	if len(q.order) == 0 {
		return math.MaxInt64
	}
	return q.order[0].dueAt()
}

// firstDueOf is the first deadline of a collection; math.MaxInt64 if there is none.
func (q *DueQueue) firstDueOf(collection string) int64 {
	for _, d := range q.order {
		if !d.gone && d.Key.Collection == collection {
			return d.dueAt()
		}
	}
	return math.MaxInt64
}

// Due are the documents that are due at an instant, in the order of their deadlines.
func (q *DueQueue) Due(now int64) []*DueDocument {
	var due []*DueDocument
	for _, d := range q.order {
		if d.dueAt() > now {
			break
		}
		if !d.gone {
			due = append(due, d)
		}
	}
	return due
}

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
