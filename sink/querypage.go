package sink

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// querier makes a page of a query. It has several ways to do so:
//
//   - It goes through the index of the order's pointer or, without an order, of the condition with the fewest entries.
//   - By deadline it goes through the expiry index, and by id through the ids of each value of a condition.
//   - If a condition has few entries in all, it reads them all and sorts the documents.
//   - If it may scan, and no index serves, it goes through all documents as a list does.
//
// Whether a document is selected follows from its body alone. So what an index has decides only what is examined.
type querier struct {
	*shards
	collection string
	selection
	limit, maxBytes int
	first           view // of the first shard
	pointers        []string

	documents []Document
	bytes     int             // of their bodies and ids
	taken     map[string]bool // the ids of the documents that were taken for the page
	examined  int
	loaded    int // bytes of values
}

// page makes the page that begins at a place.
func (q *querier) page(ctx context.Context, from queryPlace) (QueryPage, error) {
	for _, c := range q.where {
		q.pointers = append(q.pointers, c.Pointer)
	}
	if p := q.order.Pointer; p != "" && !slices.Contains(q.pointers, p) {
		q.pointers = append(q.pointers, p)
	}
	var next queryPlace
	var more bool
	var err error
	switch {
	case q.order.ByDeadline:
		next, more, err = q.byDeadline(ctx, *from.Deadline)
	case q.order.ByID:
		next, more, err = q.byID(ctx, from.ID)
	case q.order.Pointer != "":
		next, more, err = q.byPointer(ctx, string(from.Member))
	default:
		next, more, err = q.unordered(ctx, from)
	}
	if err != nil {
		return QueryPage{}, err
	}
	page := QueryPage{Documents: q.documents, Examined: int64(q.examined)}
	if q.count {
		n := int64(len(q.taken))
		page.Count = &n
	}
	if more {
		page.Continuation = q.encode(next)
	}
	return page, nil
}

// selects reports whether all conditions hold for a document, and returns its values at the pointers.
func (q *querier) selects(d Document) (of values, ok bool, err error) {
	if of, err = entries.Of(d.Body, q.pointers); err != nil {
		return nil, false, err
	}
	for i, c := range q.where {
		if !c.HoldsFor(of[i]) {
			return nil, false, nil
		}
	}
	return of, true, nil
}

// stands returns the entry at which a document stands in the index of a pointer, of those that it has there. ok is
// false if it has none for which the condition holds.
func (q *querier) stands(of values, pointer string, descending bool, id string) (entry string, ok bool) {
	c, there := q.on(pointer), of[slices.Index(q.pointers, pointer)]
	for i, v := range there {
		if descending {
			v = there[len(there)-1-i]
		}
		if c.Holds(v) {
			return entries.Member(v, id), true
		}
	}
	return "", false
}

// take takes a document for the page, unless it was taken before: it may have changed, and have two places. full
// reports that the page has no room for it.
func (q *querier) take(d Document) (full bool) {
	if q.taken[d.ID] {
		return false
	}
	if !q.count {
		bytes := q.bytes + len(d.Body) + len(d.ID)
		if len(q.documents) > 0 && bytes > q.maxBytes {
			return true
		}
		q.documents, q.bytes = append(q.documents, d), bytes
	}
	q.taken[d.ID] = true
	return false
}

// ended reports that the page ends before the next entry.
func (q *querier) ended() bool {
	return len(q.taken) >= q.limit || q.examined >= queryExamined || q.examined > 0 && q.loaded >= pageLoaded
}

// unordered makes a page in no particular order.
func (q *querier) unordered(ctx context.Context, from queryPlace) (next queryPlace, more bool, err error) {
	conditions := q.where
	if from.Driver != "" {
		conditions = []entries.Condition{q.on(from.Driver)}
	}
	conditions = q.indexed(conditions)
	begins := from == queryPlace{}
	switch {
	case from.Scanned != nil, begins && len(conditions) == 0 && q.scan:
		return q.examine(ctx, from.Scanned)
	case len(conditions) == 0 && !begins:
		return next, false, lacksIndex("the page before went through the index %s, which collection %s no longer has: "+
			"begin anew without a continuation", wire.Quote(from.Driver), q.collection)
	case len(conditions) == 0:
		return next, false, lacksIndex("no index serves this query: declare one with %s, or set scan to examine all "+
			"documents",
			q.declare(q.where[0].Pointer))
	}
	ready, making, err := q.ready(ctx, conditions)
	if err != nil {
		return next, false, err
	}
	if len(ready) == 0 {
		if begins && q.scan {
			return q.examine(ctx, nil)
		}
		return next, false, making
	}
	last, more, err := q.walk(ctx, ready[0].ranges, false, string(from.Member))
	return queryPlace{Driver: ready[0].pointer, Member: memberText(last)}, more, err
}

// walk goes through parts of an index, behind an entry, until the page ends. last is the last entry that it has
// examined.
func (q *querier) walk(ctx context.Context, r ranges, descending bool, after string) (string, bool, error) {
	m := q.merge(r, descending, after)
	if err := m.begin(ctx); err != nil {
		return "", false, err
	}
	for {
		e, take, err := m.next(ctx)
		if q.loaded = m.loaded; err != nil || e == nil {
			return after, false, err
		}
		if q.ended() {
			return after, true, nil
		}
		d, _, ok, err := q.at(e, r.pointer, descending)
		if err != nil {
			return "", false, err
		}
		if ok && q.take(d) {
			return after, true, nil
		}
		take()
		after, q.examined = e.member, q.examined+1
	}
}

// values are those of a document at the pointers of a query.
type values [][]entries.Value

// at is the document of an entry. ok is false if the query does not select it, or if it stands at another of its
// entries.
func (q *querier) at(e *entry, pointer string, descending bool) (d Document, found values, ok bool, err error) {
	d, live, err := e.view.document(e.id, e.value)
	if err != nil || !live {
		return d, nil, false, err
	}
	found, ok, err = q.selects(d)
	if err != nil || !ok {
		return d, nil, false, err
	}
	member, ok := q.stands(found, pointer, descending, e.id)
	return d, found, ok && member == e.member, nil
}

// byPointer makes a page in the order of a pointer, behind an entry.
func (q *querier) byPointer(ctx context.Context, after string) (next queryPlace, more bool, err error) {
	own := q.on(q.order.Pointer)
	if len(q.indexed([]entries.Condition{own})) == 0 {
		return next, false, lacksIndex("order %s needs an index: declare it with %s",
			wire.Quote(q.order.String()), q.declare(own.Pointer))
	}
	others := slices.DeleteFunc(q.indexed(q.where), func(c entries.Condition) bool { return c.Pointer == own.Pointer })
	ready, making, err := q.ready(ctx, append([]entries.Condition{own}, others...))
	if err != nil {
		return next, false, err
	}
	i := slices.IndexFunc(ready, func(s indexState) bool { return s.pointer == own.Pointer })
	if i < 0 {
		return next, false, making
	}
	down := q.order.Descending
	if i > 0 && ready[0].counted <= queryExamined {
		found, ok, err := q.gather(ctx, ready[0].ranges, func(e *entry, d Document, of values) (placed, bool, error) {
			member, ok := q.stands(of, own.Pointer, down, e.id)
			return placed{Document: d, member: member}, ok && (after == "" || member != after && (member < after) == down), nil
		})
		if err != nil {
			return next, false, err
		}
		if ok {
			last, more := q.sorted(found, func(a, b placed) int {
				if down {
					a, b = b, a
				}
				return strings.Compare(a.member, b.member)
			})
			return queryPlace{Member: memberText(last.member)}, more, nil
		}
	}
	last, more, err := q.walk(ctx, ready[i].ranges, down, after)
	return queryPlace{Member: memberText(last)}, more, err
}

// placed is a document that the query selects, and its place in the order.
type placed struct {
	Document
	member string // in the order of a pointer
	at     member // in the order of deadlines
}

const (
	mostGathered       = 2 * queryExamined // entries, if there are more of them than were counted
	mostGatheredLoaded = 16 << 20          // bytes of values
)

// gather finds the documents in parts of an index that the query selects and that have a place behind that of the page
// before. ok is false if that takes too much.
func (q *querier) gather(ctx context.Context, r ranges,
	place func(e *entry, d Document, of values) (placed, bool, error)) (found []placed, ok bool, err error) {
	m := q.merge(r, false, "")
	m.atOnce = mostAtOnce
	if err := m.begin(ctx); err != nil {
		return nil, false, err
	}
	ids := map[string]bool{}
	for n := 0; ; n++ {
		e, take, err := m.next(ctx)
		if err != nil {
			return nil, false, err
		}
		if e == nil {
			q.examined = n
			return found, true, nil
		}
		if n == mostGathered || m.loaded > mostGatheredLoaded {
			return nil, false, nil
		}
		d, of, ok, err := q.at(e, r.pointer, false)
		if err != nil {
			return nil, false, err
		}
		if ok && !ids[e.id] {
			p, ok, err := place(e, d, of)
			if err != nil {
				return nil, false, err
			}
			if ok {
				found, ids[e.id] = append(found, p), true
			}
		}
		take()
	}
}

// sorted takes the first of some documents for the page. last is the last one that it takes.
func (q *querier) sorted(found []placed, compare func(a, b placed) int) (last placed, more bool) {
	slices.SortFunc(found, compare)
	for _, p := range found {
		if len(q.taken) >= q.limit || q.take(p.Document) {
			return last, true
		}
		last = p
	}
	return last, false
}

// byDeadline makes a page in the order of deadlines.
func (q *querier) byDeadline(ctx context.Context, from orderedPosition) (next queryPlace, more bool, err error) {
	if from.Within != 0 && from.Until == 0 {
		from.Until = q.first.now + from.Within
	}
	if conditions := q.indexed(q.where); len(conditions) > 0 {
		ready, _, err := q.ready(ctx, conditions)
		if err != nil {
			return next, false, err
		}
		if len(ready) > 0 && ready[0].counted <= queryExamined {
			found, ok, err := q.gather(ctx, ready[0].ranges, func(e *entry, d Document, _ values) (placed, bool, error) {
				return q.expiring(e, d, from)
			})
			if err != nil {
				return next, false, err
			}
			if ok {
				last, more := q.sorted(found, func(a, b placed) int { return a.at.compare(b.at) })
				if more {
					from = from.after(last.at, q.first.config.History.Current())
				}
				return queryPlace{Deadline: &from}, more, nil
			}
		}
	}
	m := merger{shards: q.shards, collection: q.collection, limit: q.limit, from: from}
	m.sources = make([]source, len(q.keys))
	if err := m.begin(ctx, q.first.cuts()); err != nil {
		return next, false, err
	}
	last, more, err := q.choose(ctx, &m, m.sources)
	if more {
		from = from.after(last, m.current())
	}
	return queryPlace{Deadline: &from}, more, err
}

// expiring finds the place of a document in the order of deadlines. ok is false unless it comes behind another place.
func (q *querier) expiring(e *entry, d Document, from orderedPosition) (p placed, ok bool, err error) {
	current := e.view.config.History.Current()
	if current != q.first.config.History.Current() {
		return p, false, errReconfigured
	}
	if d.ExpiresAt == nil {
		return p, false, nil
	}
	h, _ := layout.ParseHeader(e.value)
	in, _ := h.Index()
	at := member{in: in, deadline: int64(*d.ExpiresAt), id: d.ID}
	behind := from.Own.compare(newPlace(at.deadline, d.ID)) < 0
	if in == layout.ByInherit {
		behind = from.Inherit.compare(newPlace(at.deadline-int64(current)*1000, d.ID)) < 0
	}
	return placed{Document: d, at: at}, behind && (from.Until == 0 || at.deadline <= from.Until), nil
}

// batch is how many documents a page at least reads at a time, of those that it chose by an index alone.
const batch = 100

// choose examines documents in an order in which they are found without their values, until the page ends. sources are
// those whose configurations count for the order, if they do. last is the last one that it has examined.
func (q *querier) choose(ctx context.Context, c chooser, sources []source) (last member, more bool, err error) {
	b := newBodies(q.shards, q.collection, q.maxBytes, sources)
	for {
		chosen, more, err := choose(ctx, c, min(max(q.limit-len(q.taken), batch), queryExamined-q.examined))
		if err != nil {
			return last, false, err
		}
		n, err := b.visit(ctx, chosen, func(d *Document) (full bool, err error) {
			if q.loaded = int(b.loaded.Load()); q.ended() {
				return true, nil
			}
			if d != nil {
				_, ok, err := q.selects(*d)
				if err != nil || ok && q.take(*d) {
					return true, err
				}
			}
			q.examined++
			return false, nil
		})
		if err != nil {
			return last, false, err
		}
		if n > 0 {
			last = chosen[n-1]
		}
		if n < len(chosen) || !more {
			return last, n < len(chosen), nil
		}
		if q.ended() {
			return last, true, nil
		}
	}
}

// examine makes a page of all documents, without an index of a pointer. from is nil at the beginning.
func (q *querier) examine(ctx context.Context, from *listPosition) (next queryPlace, more bool, err error) {
	at := beginning(0)
	if from != nil {
		at = *from
	}
	l := lister{shards: q.shards, collection: q.collection, cuts: q.first.cuts()}
	for {
		v, reply, err := l.read(ctx, &at, min(queryExamined-q.examined, mostAtOnce), math.MaxInt32, true)
		if err != nil {
			return next, false, err
		}
		for found := reply.List(walkDocuments); len(found) > 1; found = found[2:] {
			id, value := found.Str(0), found.Str(1)
			if !found.Has(1) {
				return next, false, q.lostDocuments(at.Shard, q.collection)
			}
			d, live, err := v.document(id, value)
			if err != nil {
				return next, false, err
			}
			if q.ended() {
				return queryPlace{Scanned: &at}, true, nil
			}
			if live {
				_, ok, err := q.selects(d)
				if err != nil {
					return next, false, err
				}
				if ok && q.take(d) {
					return queryPlace{Scanned: &at}, true, nil
				}
			}
			h, _ := layout.ParseHeader(value)
			in, score := h.Index()
			at.Index, at.At = in, newPlace(score, id)
			q.loaded, q.examined = q.loaded+len(value), q.examined+1
		}
		if reply.Int(walkLeft) == walkEnded {
			if at = beginning(at.Shard + 1); at.Shard == len(q.keys) {
				return next, false, nil
			}
		}
		if q.ended() {
			return queryPlace{Scanned: &at}, true, nil
		}
	}
}
