package sink

import (
	"context"
	_ "embed" // the script
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed entries.lua
var entriesSource string

var entriesScript = layout.NewHeadScript(entriesSource)

// Positions in the reply of entries.lua.
const (
	_ = iota // the head
	entriesMaking
	entriesLeft // the number after the last commit
	entriesSize
	entriesMore
	entriesFound
)

// entry is an entry of an index, with its document as it was at the same moment.
type entry struct {
	member string
	id     string
	value  string // of the document
	view   *view
}

// indexReader reads the entries of an index.
type indexReader struct {
	*shards
	collection string
	pointer    string
	configs    []layout.Config // of each shard, as far as known
}

func newIndexReader(q *querier, pointer string) indexReader {
	return indexReader{q.shards, q.collection, pointer, slices.Repeat([]layout.Config{q.first.config}, len(q.keys))}
}

// wanted is what entries.lua is to read.
type wanted struct {
	descending bool
	ofRange    int   // the most entries of a range
	entries    int   // the most of all
	bytes      int   // of values, about; 0 for no values
	bounds     []any // of the ranges
}

// read reads entries of a shard. more reports that it has stopped before the end of a range.
func (x *indexReader) read(ctx context.Context, p int, w wanted) (v view, found layout.Reply, more bool, err error) {
	command := "ZRANGEBYLEX"
	if w.descending {
		command = "ZREVRANGEBYLEX"
	}
	for {
		slot, ok := slotOf(x.configs[p], x.pointer)
		if !ok {
			return v, nil, false, errReconfigured
		}
		args := append([]any{x.collection, layout.EntriesField(slot, x.collection), layout.MakingPrefix + x.collection,
			command, w.ofRange, w.entries, w.bytes}, w.bounds...)
		v, reply, err := x.ask(ctx, entriesScript, p, x.collection, []string{x.keys[p].By(slot, x.collection)}, args)
		if err != nil {
			return v, nil, false, err
		}
		if x.configs[p] = v.config; !slices.Contains(v.config.Indexes, layout.PropertyIndex{Pointer: x.pointer, Slot: slot}) {
			continue
		}
		making, err := layout.DecodeMaking(reply.Str(entriesMaking))
		if err != nil {
			return v, nil, false, err
		}
		if slices.Contains(making.Slots, slot) {
			return v, nil, false, errReconfigured
		}
		if reply.Int(entriesLeft) != reply.Int(entriesSize) {
			return v, nil, false, x.lostEntries(p, x.collection, x.pointer)
		}
		return v, reply.List(entriesFound), reply.Int(entriesMore) == 1, nil
	}
}

// merge goes through the entries in parts of an index, in order, over all shards.
type merge struct {
	indexReader
	parts      []entries.Range // in the order in which it goes through them
	descending bool
	after      string // the entry behind which it begins; "" for the beginning
	atOnce     int    // entries that a script reads
	budget     int    // bytes of values that a script reads, about
	loaded     int    // bytes of values that were read
	sources    []mergeSource
}

// mergeSource is what comes next in a shard.
type mergeSource struct {
	found  []entry
	more   bool
	last   string // the last entry that was read
	loaded int
}

// mostAtOnce is how many entries one script reads with their documents.
const mostAtOnce = 250

// merge makes a merge over an index, which needs a begin.
func (q *querier) merge(r ranges, descending bool, after string) *merge {
	shards := len(q.keys)
	m := &merge{indexReader: newIndexReader(q, r.pointer), parts: r.parts, descending: descending, after: after,
		atOnce: min(mostAtOnce, q.limit+1, 2*q.limit/shards+8), budget: scriptBytes(q.maxBytes, shards),
		sources: make([]mergeSource, shards)}
	if descending {
		m.parts = slices.Clone(m.parts)
		slices.Reverse(m.parts)
	}
	return m
}

// begin reads the first entries of all shards.
func (m *merge) begin(ctx context.Context) error {
	err := m.each(func(p int) error {
		m.sources[p] = mergeSource{more: true, last: m.after}
		return m.fill(ctx, p)
	})
	for i := range m.sources {
		m.loaded += m.sources[i].loaded
	}
	return err
}

// bounds are what comes behind an entry, as the script takes it.
func (m *merge) bounds(after string) (bounds []any) {
	for _, r := range m.parts {
		from, to := "["+r.From, "("+r.To
		switch {
		case m.descending && after != "" && after <= r.From, !m.descending && after >= r.To:
			continue
		case m.descending && after != "" && after < r.To:
			to = "(" + after
		case !m.descending && after >= r.From:
			from = "(" + after
		}
		if m.descending {
			from, to = to, from
		}
		bounds = append(bounds, from, to)
	}
	return bounds
}

// fill reads what comes next in a shard.
func (m *merge) fill(ctx context.Context, p int) error {
	s := &m.sources[p]
	bounds := m.bounds(s.last)
	if s.loaded, s.more = 0, false; len(bounds) == 0 {
		return nil
	}
	v, found, more, err := m.read(ctx, p, wanted{m.descending, math.MaxInt32, m.atOnce, m.budget, bounds})
	if err != nil {
		return err
	}
	s.more, s.found = more, make([]entry, 0, len(found)/2)
	for ; len(found) > 1; found = found[2:] {
		e := entry{member: found.Str(0), value: found.Str(1), view: &v}
		_, e.id, err = entries.Parse(e.member)
		if err != nil || !found.Has(1) {
			return m.lostEntries(p, m.collection, m.pointer)
		}
		s.found, s.last, s.loaded = append(s.found, e), e.member, s.loaded+len(e.value)
	}
	return nil
}

// next is the next entry, and stays so until it is taken; nil if there is none.
func (m *merge) next(ctx context.Context) (next *entry, take func(), err error) {
	var of *mergeSource
	for p := range m.sources {
		s := &m.sources[p]
		if len(s.found) == 0 && s.more {
			m.atOnce = min(2*m.atOnce, mostAtOnce)
			if err := m.fill(ctx, p); err != nil {
				return nil, nil, err
			}
			m.loaded += s.loaded
		}
		if len(s.found) > 0 && (of == nil || (s.found[0].member < of.found[0].member) != m.descending) {
			of = s
		}
	}
	if of == nil {
		return nil, nil, nil
	}
	return &of.found[0], func() { of.found = of.found[1:] }, nil
}
