package redismodel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Read reads documents.
func (p *Partition) Read(_ context.Context, version string, wants []store.Want) ([][]*store.Stored, error) {
	err := p.isAt(version)
	found := make([][]*store.Stored, len(wants))
	for i, w := range wants {
		at := p.at(w.Collection)
		if at.foreign { // also at another version
			return nil, at.check()
		} else if err == nil && at.left[0] != len(at.docs.items) {
			err = at.check()
		}
		found[i] = make([]*store.Stored, 0, len(w.Headers)+len(w.Whole))
		for _, id := range w.Headers {
			found[i] = append(found[i], at.read(id, false))
		}
		for _, id := range w.Whole {
			found[i] = append(found[i], at.read(id, true))
		}
	}
	if err != nil {
		return nil, err
	}
	return found, nil
}

// read is a copy of a document, or of its header; nil if there is none.
func (c *collection) read(id string, whole bool) *store.Stored {
	at, ok := c.docs.find(document{id: id})
	if !ok {
		return nil
	}
	stored := *c.docs.items[at].Stored
	if !whole {
		stored.Body = ""
	}
	return &stored
}

// Due finds documents that are due.
func (p *Partition) Due(_ context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) (found []store.Due, err error) {
	if err := p.isAt(version); err != nil {
		return nil, err
	}
	for _, c := range cuts {
		if err := p.at(c.Collection).check(); err != nil {
			return nil, err
		}
	}
	p.server.learned = p.server.now()
	found = make([]store.Due, len(cuts))
	room := &room{limit: limit, bytes: bytes, whole: whole}
	for i, c := range cuts {
		if found[i], err = p.at(c.Collection).due(c.Cuts, room); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// room is how much more Due returns.
type room struct {
	limit, bytes int
	whole, some  bool // some document was read
}

func (r *room) hasBytes() bool { return r.bytes > 0 || !r.some }

// due finds documents at or under cuts, first those that inherit the default TTL.
func (c *collection) due(cuts ttlrules.Cuts, r *room) (d store.Due, err error) {
	take := func(own bool, cut int64) (some []entry, left int) {
		from, to := c.place(own, math.MinInt64), c.place(own, min(cut, math.MaxInt64-1)+1)
		n := min(to-from, r.limit)
		r.limit -= n
		return c.index.items[from : from+n], to - from - n
	}
	inherit, moreInherit := take(false, cuts.Inherit)
	own, moreOwn := take(true, cuts.Own)
	some := slices.Concat(inherit, own)
	d.IDs, d.Documents = make([]string, 0, len(some)), make([]store.Stored, 0, len(some))
	for _, e := range some {
		if !r.hasBytes() {
			break
		}
		at, ok := c.docs.find(document{id: e.id})
		if !ok {
			return d, fmt.Errorf("%w: %s/%s is in the index, but is not a document", store.ErrDamaged, c.name, e.id)
		}
		r.some = true
		r.bytes -= c.docs.items[at].size(r.whole)
		d.IDs, d.Documents = append(d.IDs, e.id), append(d.Documents, *c.read(e.id, r.whole))
	}
	if !r.hasBytes() {
		r.limit = 0
	}
	next := func(own bool, n int) int64 {
		if at := c.place(own, math.MinInt64) + n; at < len(c.index.items) && c.index.items[at].own == own {
			return c.index.items[at].score
		}
		return store.NoScore
	}
	n := len(d.IDs)
	d.NextInherit, d.NextOwn = next(false, min(n, len(inherit))), next(true, max(0, n-len(inherit)))
	d.Left = int64(moreInherit + moreOwn + len(some) - n)
	return d, nil
}

// Scan reads headers, for the index. A cursor of another process of the server finds nothing.
func (p *Partition) Scan(_ context.Context, version, collection, cursor string, count int) (found []store.Change, next, server string, err error) {
	const mostBytes = 1 << 20
	at := p.at(collection)
	if at.foreign {
		return nil, "", "", at.check()
	}
	if err := p.isAt(version); err != nil {
		return nil, "", "", err
	}
	server = p.server.name()
	rest, bytes := at.docs.items, 0
	if run, last, _ := strings.Cut(cursor, ":"); cursor != "0" && run != server {
		rest = nil
	} else if after, ok := at.docs.find(document{id: last}); ok {
		rest = rest[after+1:]
	} else {
		rest = rest[after:]
	}
	for len(rest) > 0 && len(found) < count && bytes < mostBytes {
		h := rest[0].Header
		found = append(found, store.Change{ID: rest[0].id, Old: &h})
		bytes += rest[0].size(true)
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return found, "0", server, nil
	}
	return found, server + ":" + found[len(found)-1].ID, server, nil
}

// Document is a stored document.
type Document struct {
	Collection, ID string
	Header         store.Header
	Body           string
	ExpiresAt      *wire.Time // set by Get alone; nil if it never expires
}

// Get reads a document as a new sink.Reader does, with the same errors. It judges by the
// later of the server's clock and the watermark.
func (p *Partition) Get(collection, id string) (d Document, err error) {
	if err := wire.CheckCollection(collection); err != nil {
		return d, err
	}
	if err := wire.CheckID(id); err != nil {
		return d, err
	}
	c := p.at(collection)
	if c.foreign {
		return d, c.check()
	}
	if s := p.state; s.Version == "" || s.Refused || s.Rebuild != 0 || p.configsLeft != p.configs || c.left[0] != len(c.docs.items) {
		return d, fmt.Errorf("%w: partition %d", sink.ErrUnavailable, p.id)
	}
	var history ttlrules.History
	if c.config != nil {
		history = c.config.History
	}
	found := c.read(id, true)
	if found == nil || history.Expired(found.Header.Ts, found.Header.TTL, max(p.server.now().UnixMilli(), p.state.Watermark)) {
		return d, sink.ErrNotFound
	}
	d = Document{Collection: collection, ID: id, Header: found.Header, Body: found.Body}
	if at, expires := ttlrules.Deadline(d.Header.Ts, d.Header.TTL, history.Current()); expires {
		d.ExpiresAt = (*wire.Time)(&at)
	}
	return d, nil
}

// Documents are all stored documents, expired or not, by collection and id.
func (p *Partition) Documents() (all []Document) {
	for _, c := range p.collections.items {
		for _, d := range c.docs.items {
			all = append(all, Document{Collection: c.name, ID: d.id, Header: d.Header, Body: d.Body})
		}
	}
	return all
}

// Bytes are the bytes of what the partition holds, about, with what was set aside.
func (p *Partition) Bytes() int { return p.bytes() + p.aside.bytes() }
