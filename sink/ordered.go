package sink

import (
	"cmp"
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

var (
	//go:embed nearest.lua
	nearestSource string
	//go:embed some.lua
	someSource string

	nearestScript = layout.NewHeadScript(layout.After + nearestSource)
	someScript    = layout.NewHeadScript(someSource)
)

// Positions in the replies of nearest.lua and some.lua.
const (
	_ = iota // the head
	nearestInheritSize
	nearestOwnSize
	nearestParts

	someValues = 1
)

// orderedPosition is the end of a page of a list by deadline. Documents up to the two places, which
// are the same in all shards, were returned. A change of the default TTL moves the deadlines of
// those that inherit it, and not the places: so each document is still returned once.
type orderedPosition struct {
	Until   int64 `json:"u,omitempty"` // Unix milliseconds; 0 for no limit
	Within  int64 `json:"w,omitempty"` // from which Until was made, milliseconds
	Inherit place `json:"i,omitzero"`
	Own     place `json:"n,omitzero"`
}

func (o orderedPosition) valid() bool {
	return o.Inherit.valid() && o.Own.valid() && o.Within >= 0 && o.Until > -layout.NeverScore &&
		o.Until < layout.NeverScore
}

// settle completes the options of a page, which were checked, from the position at which it begins. It completes the
// position of the first page of a list by deadline, but for Within.
func settle(o *ListOptions, pos *listPosition) error {
	if o.Order == "" && pos.Ordered == nil && (o.Until != nil || o.Within != 0) {
		return invalid("until and within limit a list by deadline: use them with the order %q", wire.ByDeadline)
	}
	until := int64(0)
	if o.Until != nil {
		until = min(max(int64(*o.Until), 1), layout.NeverScore-1)
	}
	if o.Continuation == "" {
		if o.Order == wire.ByDeadline {
			pos.Ordered = &orderedPosition{Until: until, Within: o.Within.Milliseconds()}
		}
		return nil
	}
	was, other := pos.Ordered, o.Prefix != "" && o.Prefix != pos.Prefix
	if was == nil {
		other = other || o.Order != ""
	} else {
		other = other || o.Within != 0 && o.Within.Milliseconds() != was.Within ||
			until != 0 && (was.Within != 0 || was.Until != until)
	}
	if other {
		return invalid("the continuation is of a list with another order, until, within or prefix: " +
			"use those of the page before, or begin anew without a continuation")
	}
	o.Prefix = pos.Prefix
	return nil
}

// mostRepeats limits how often a page is made anew after a configuration changed: for a quarter of a
// second in all.
const mostRepeats = 9

// repeat makes a page, and makes it anew while its error is errReconfigured.
func (ps *shards) repeat(ctx context.Context, collection string, page func() error) error {
	for n := range mostRepeats {
		if err := page(); !errors.Is(err, errReconfigured) {
			return err
		}
		select {
		case <-time.After(time.Millisecond << n):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return notReached(collection)
}

func notReached(collection string) error {
	return fmt.Errorf("%w: a change of the configuration of collection %s has not reached all shards", ErrUnavailable,
		collection)
}

// listOrdered reads a page of the documents that will expire.
func (ps *shards) listOrdered(ctx context.Context, collection string, opts ListOptions,
	from orderedPosition) (page Page, err error) {
	first, err := ps.view(ctx, 0, collection)
	if err != nil {
		return Page{}, err
	}
	if from.Within != 0 && from.Until == 0 {
		from.Until = first.now + from.Within
	}
	err = ps.repeat(ctx, collection, func() (err error) {
		m := merger{shards: ps, collection: collection, limit: opts.Limit, from: from, sources: make([]source, len(ps.keys))}
		if err = m.begin(ctx, first.cuts()); err == nil {
			page, err = m.page(ctx, opts)
		}
		return err
	})
	return page, err
}

// merger finds the documents of a page by deadline. It merges the indexes of all shards.
type merger struct {
	*shards
	collection string
	limit      int // of the page
	from       orderedPosition
	sources    []source // of each shard
}

// source is what comes next in the indexes of a shard.
type source struct {
	view  view
	asked bool
	parts []stretch // of the index of those that have a TTL of their own, then the bands of the other one
}

// stretch is a part of an index.
type stretch struct {
	index   layout.Index
	begin   int64    // the lowest score of the part
	cut     int64    // with which the script is to be asked
	members []member // that come next
	last    place    // the last one that was taken, or where the page begins
	more    bool     // there may be more members
}

// member is a document in an index.
type member struct {
	shard    int
	in       layout.Index // NotIndexed if its place in the order is its id
	score    int64
	deadline int64
	id       string
}

func (a member) compare(b member) int {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
}

// begin reads the beginnings of all indexes.
func (m *merger) begin(ctx context.Context, cuts ttlrules.Cuts) error {
	err := m.each(func(p int) error {
		s := &m.sources[p]
		s.parts = []stretch{{index: layout.ByOwn, cut: cuts.Own, last: m.from.Own},
			{index: layout.ByInherit, cut: cuts.Inherit, last: m.from.Inherit}}
		return m.read(ctx, p)
	})
	if err != nil {
		return err
	}
	for i := range m.sources {
		if m.sources[i].view.config.History.Current() != m.current() {
			return errReconfigured
		}
	}
	return nil
}

// current is the default in all shards.
func (m *merger) current() ttlrules.Default { return m.sources[0].view.config.History.Current() }

// page is the page of a list.
func (m *merger) page(ctx context.Context, opts ListOptions) (Page, error) {
	chosen, more, err := choose(ctx, m, opts.Limit)
	if err != nil {
		return Page{}, err
	}
	page, bytes := Page{Documents: make([]Document, 0, len(chosen))}, 0
	maxBytes := pageBytes(opts.MaxBytes)
	b := newBodies(m.shards, m.collection, maxBytes, m.sources)
	n, err := b.visit(ctx, chosen, func(d *Document) (full bool, err error) {
		if d == nil {
			return false, nil
		}
		bytes += len(d.Body) + len(d.ID)
		if len(page.Documents) > 0 && bytes > maxBytes {
			return true, nil
		}
		page.Documents = append(page.Documents, *d)
		return false, nil
	})
	if err != nil {
		return Page{}, err
	}
	if more || n < len(chosen) {
		o := m.from.after(chosen[n-1], m.current())
		page.Continuation = encodeContinuation(listPosition{Ordered: &o})
	}
	return page, nil
}

// after is the position after a document, the last one of a page, while a default counts.
func (o orderedPosition) after(last member, d ttlrules.Default) orderedPosition {
	if own := newPlace(last.deadline, last.id); o.Own.compare(own) < 0 {
		o.Own = own
	}
	ttl := int64(d) * 1000
	if ttl <= 0 {
		return o // documents that inherit may get deadlines
	}
	if inherit := newPlace(last.deadline-ttl, last.id); o.Inherit.compare(inherit) < 0 {
		o.Inherit = inherit
	}
	return o
}

// chooser finds documents in an order, and does not read them.
type chooser interface {
	// next is the next document, and stays so until it is taken; nil if there is none.
	next(ctx context.Context) (*member, error)
	take(member)
}

// choose takes the next documents. more reports that others come after them.
func choose(ctx context.Context, c chooser, most int) (chosen []member, more bool, err error) {
	for {
		next, err := c.next(ctx)
		if err != nil || next == nil {
			return chosen, false, err
		}
		if len(chosen) == most {
			return chosen, true, nil
		}
		chosen = append(chosen, *next)
		c.take(*next)
	}
}

// next implements [chooser]: it is the document that expires next; nil if none will by the limit of the list.
func (m *merger) next(ctx context.Context) (*member, error) {
	var next *member
	for p := range m.sources {
		s := &m.sources[p]
		if s.dry() {
			if err := m.read(ctx, p); err != nil {
				return nil, err
			}
		}
		if one := s.next(); one != nil && (m.from.Until == 0 || one.deadline <= m.from.Until) &&
			(next == nil || one.compare(*next) < 0) {
			next = one
		}
	}
	return next, nil
}

// dry reports whether the next document cannot be told from the members that were read.
func (s *source) dry() bool {
	return slices.ContainsFunc(s.parts, func(part stretch) bool { return part.more && len(part.members) == 0 })
}

// part is the one that has the next document; nil if none has.
func (s *source) part() (next *stretch) {
	for i := range s.parts {
		part := &s.parts[i]
		if len(part.members) > 0 && (next == nil || part.members[0].compare(next.members[0]) < 0) {
			next = part
		}
	}
	return next
}

func (s *source) next() *member {
	if part := s.part(); part != nil {
		return &part.members[0]
	}
	return nil
}

// take implements [chooser].
func (m *merger) take(d member) { m.sources[d.shard].take() }

// take takes the next document.
func (s *source) take() {
	part := s.part()
	part.last, part.members = newPlace(part.members[0].score, part.members[0].id), part.members[1:]
}

// cut takes the cuts of a view, and reports whether what the script was asked with passed over what may be live, or
// left out a band.
func (m *merger) cut(s *source, v view) (lowered bool) {
	for i := range s.parts {
		part, cut := &s.parts[i], v.cuts().Own
		if part.index == layout.ByInherit {
			cut = inBand(i-1, ttlrules.NoCut, v.config.InheritCut(i-1, v.now)).upTo
		}
		if part.begin > 0 {
			cut = max(cut, part.begin-1)
		}
		lowered = lowered || cut < part.cut
		part.cut = cut
	}
	for band := len(s.parts) - 1; band <= len(v.config.Bands); band++ {
		begin := int64(band) * ttlrules.BandWidth
		part := stretch{index: layout.ByInherit, begin: begin, cut: begin - 1}
		if score, err := strconv.ParseInt(m.from.Inherit.Score, 10, 64); err == nil {
			part.last = newPlace(begin+score, m.from.Inherit.ID)
		}
		s.parts, lowered = append(s.parts, part), true
	}
	return lowered
}

// read reads what comes next in the indexes of a shard.
func (m *merger) read(ctx context.Context, p int) error {
	s, k := &m.sources[p], m.keys[p]
	most := min(m.limit+1, 2*m.limit/len(m.keys)+8)
	for {
		args := []any{m.collection, most}
		for _, part := range s.parts {
			args = append(args, int(part.index), part.cut, part.last.Score, part.last.ID)
		}
		v, reply, err := m.ask(ctx, nearestScript, p, m.collection, []string{k.Inherit(m.collection), k.Own(m.collection)},
			args)
		if err != nil {
			return err
		}
		if s.asked && v.raw != s.view.raw {
			return errReconfigured
		}
		if layout.NewSize(v.documents, reply.Int(nearestInheritSize), reply.Int(nearestOwnSize)) != v.size {
			return m.lostIndex(p, m.collection)
		}
		s.view, s.asked = v, true
		if m.cut(s, v) {
			continue
		}
		d := v.config.History.Current()
		for i := range s.parts {
			s.parts[i].set(p, reply.List(nearestParts+i), most, d)
		}
		return nil
	}
}

// set sets the members from a reply; there are none unless documents of the part expire under a default.
func (s *stretch) set(p int, found layout.Reply, most int, d ttlrules.Default) {
	expire, end, shift := d != ttlrules.Off, int64(layout.NeverScore), int64(0)
	if s.index == layout.ByInherit {
		expire, end, shift = d > 0, s.begin+ttlrules.BandWidth, int64(d)*1000-s.begin
	}
	s.members, s.more = nil, expire && len(found)/2 == most
	for ; expire && len(found) > 1; found = found[2:] {
		score, _ := found.Score(1)
		if score >= end {
			s.more = false
			return
		}
		s.members = append(s.members, member{p, s.index, score, score + shift, found.Str(0)})
	}
}

// bodies reads the documents of a page, which were chosen by an index.
type bodies struct {
	*shards
	collection string
	maxBytes   int           // of the page
	sources    []source      // whose configurations count for the order; nil if none does
	left       [][]member    // by shard: those to be read
	read       [][]*Document // by shard: those that were read; nil for one that is gone, or has another place
	loaded     atomic.Int64  // bytes of values
}

func newBodies(ps *shards, collection string, maxBytes int, sources []source) *bodies {
	return &bodies{shards: ps, collection: collection, maxBytes: maxBytes, sources: sources,
		left: make([][]member, len(ps.keys)), read: make([][]*Document, len(ps.keys))}
}

// visit reads documents, and calls visit for each in order, until it returns that the page is full: the first n. Those
// that have changed since they were chosen, so that they have another place in the order, are nil.
func (b *bodies) visit(ctx context.Context, chosen []member, visit func(d *Document) (full bool, err error)) (n int,
	err error) {
	involved := 0
	for _, c := range chosen {
		if len(b.left[c.shard]) == 0 {
			involved++
		}
		b.left[c.shard] = append(b.left[c.shard], c)
	}
	budget := scriptBytes(b.maxBytes, max(involved, 1))
	if err := b.each(func(p int) error { return b.some(ctx, p, budget) }); err != nil {
		return 0, err
	}
	for i, c := range chosen {
		if len(b.read[c.shard]) == 0 {
			if err := b.some(ctx, c.shard, budget); err != nil {
				return i, err
			}
		}
		d := b.read[c.shard][0]
		b.read[c.shard] = b.read[c.shard][1:]
		if full, err := visit(d); full || err != nil {
			return i, err
		}
	}
	return len(chosen), nil
}

// some reads the next documents of a shard, until they have many bytes.
func (b *bodies) some(ctx context.Context, p, budget int) error {
	left := b.left[p]
	if len(left) == 0 {
		return nil
	}
	args := make([]any, 2, 2+len(left))
	args[0], args[1] = b.collection, budget
	for _, one := range left {
		args = append(args, one.id)
	}
	v, reply, err := b.ask(ctx, someScript, p, b.collection, nil, args)
	if err != nil {
		return err
	}
	if b.sources != nil && v.raw != b.sources[p].view.raw {
		return errReconfigured
	}
	values := reply.List(someValues)
	for i := range values {
		var found *Document
		if values.Has(i) {
			b.loaded.Add(int64(len(values.Str(i))))
			d, ok, err := v.document(left[i].id, values.Str(i))
			if err != nil {
				return err
			}
			h, _ := layout.ParseHeader(values.Str(i))
			in, score := h.Index()
			if ok && (left[i].in == layout.NotIndexed || in == left[i].in && score == left[i].score) {
				found = &d
			}
		}
		b.read[p] = append(b.read[p], found)
	}
	b.left[p] = left[len(values):]
	return nil
}
