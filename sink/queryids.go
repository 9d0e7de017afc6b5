package sink

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// byID makes a page in the order of ids. The ids of one value are in order in its index, so a condition that names few
// values serves it.
func (q *querier) byID(ctx context.Context, after string) (next queryPlace, more bool, err error) {
	equal := slices.DeleteFunc(slices.Clone(q.where), func(c entries.Condition) bool { return c.In == nil })
	conditions := q.indexed(equal)
	switch {
	case len(equal) == 0:
		return next, false, invalid("order %q needs a condition on a pointer with an index that a value is equal to one, "+
			"or to one of several", wire.ByID)
	case len(conditions) == 0:
		return next, false, lacksIndex("order %q needs an index that has the values of a condition: declare one with %s",
			wire.ByID, q.declare(equal[0].Pointer))
	}
	ready, making, err := q.ready(ctx, conditions)
	if err != nil {
		return next, false, err
	}
	if len(ready) == 0 {
		return next, false, making
	}
	m := idMerge{indexReader: newIndexReader(q, ready[0].pointer), values: ready[0].parts}
	m.sources = make([]idSource, len(q.keys))
	m.ofValue = min(q.limit+1, 2*q.limit/len(q.keys)/len(m.values)+8)
	err = m.each(func(p int) error {
		m.sources[p] = idSource{more: true, last: after}
		return m.fill(ctx, p)
	})
	if err != nil {
		return next, false, err
	}
	last, more, err := q.choose(ctx, &m, nil)
	return queryPlace{ID: last.id}, more, err
}

// idMerge goes through the ids of the documents with one of some values, in order, over all shards.
type idMerge struct {
	indexReader
	values  []entries.Range // one for each value
	ofValue int             // entries that a script reads of each
	sources []idSource
}

// idSource is what comes next in a shard.
type idSource struct {
	found []member // in order, each id once
	more  bool     // there may be more
	last  string   // the ids up to this one were read
}

// fill reads what comes next in a shard. It reads all values at one moment: a document whose value changes from one of
// them to another is among them.
func (m *idMerge) fill(ctx context.Context, p int) error {
	s := &m.sources[p]
	var bounds []any
	for _, r := range m.values {
		begin := "["
		if s.last != "" {
			begin = "("
		}
		bounds = append(bounds, begin+r.From+s.last, "("+r.To)
	}
	_, found, _, err := m.read(ctx, p, wanted{ofRange: m.ofValue, entries: math.MaxInt32, bounds: bounds})
	if err != nil {
		return err
	}
	s.found, s.more = nil, false
	horizon := ""
	for _, r := range m.values {
		n := 0
		for ; len(found) > 0 && found.Str(0) < r.To; found = found[2:] {
			_, id, err := entries.Parse(found.Str(0))
			if err != nil {
				return m.lostEntries(p, m.collection, m.pointer)
			}
			s.found = append(s.found, member{shard: p, id: id})
			n++
		}
		if n == m.ofValue {
			if last := s.found[len(s.found)-1].id; !s.more || last < horizon {
				s.more, horizon = true, last
			}
		}
	}
	if s.more {
		s.last = horizon
		s.found = slices.DeleteFunc(s.found, func(d member) bool { return d.id > horizon })
	}
	slices.SortFunc(s.found, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	s.found = slices.Compact(s.found)
	return nil
}

// next implements [chooser].
func (m *idMerge) next(ctx context.Context) (next *member, err error) {
	for p := range m.sources {
		s := &m.sources[p]
		if len(s.found) == 0 && s.more {
			if err := m.fill(ctx, p); err != nil {
				return nil, err
			}
		}
		if len(s.found) > 0 && (next == nil || s.found[0].id < next.id) {
			next = &s.found[0]
		}
	}
	return next, nil
}

// take implements [chooser].
func (m *idMerge) take(d member) { s := &m.sources[d.shard]; s.found = s.found[1:] }
