package redismodel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
	var fenced error
	if p.state.Version != version {
		fenced = store.ErrFenced
	}
	found := make([][]*store.Stored, len(wants))
	for i, w := range wants {
		c := p.at(w.Collection)
		if c.foreign { // also at another version
			return nil, c.check(w.Collection)
		} else if c.left[0] != len(c.docs) {
			return nil, cmp.Or(fenced, c.check(w.Collection))
		}
		found[i] = []*store.Stored{}
		for j, id := range slices.Concat(w.Headers, w.Whole) {
			found[i] = append(found[i], c.read(id, j >= len(w.Headers)))
		}
	}
	if fenced != nil {
		return nil, fenced
	}
	return found, nil
}

// read is a copy of a document, or of its header; nil if there is none.
func (c *collection) read(id string, whole bool) *store.Stored {
	if c.docs[id] == nil {
		return nil
	}
	stored := *c.docs[id]
	if !whole {
		stored.Body = ""
	}
	return &stored
}

// size is the bytes of a document's value.
func size(d *store.Stored) int { return d.Header.Len() + len(d.Body) }

// Due finds documents that are due.
func (p *Partition) Due(_ context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) ([]store.Due, error) {
	if p.state.Version != version {
		return nil, store.ErrFenced
	}
	for _, cut := range cuts {
		if err := p.at(cut.Collection).check(cut.Collection); err != nil {
			return nil, err
		}
	}
	var err error
	found, some := make([]store.Due, len(cuts)), false
	for i, cut := range cuts {
		c, d := p.at(cut.Collection), &found[i]
		d.IDs, d.Documents = []string{}, []store.Stored{}
		take := func(index int, cut int64) (next int64) {
			at, end := c.place(index, math.MinInt64), c.place(index, min(cut, math.MaxInt64-1)+1)
			for ; at < end && limit > 0 && (bytes > 0 || !some); at++ {
				id := c.index[at].id
				stored := c.read(id, whole)
				if stored == nil {
					err = fmt.Errorf("%w: %s/%s is in the index, but is not a document", store.ErrDamaged, cuts[i].Collection, id)
					return 0
				}
				d.IDs, d.Documents = append(d.IDs, id), append(d.Documents, *stored)
				limit, bytes, some = limit-1, bytes-size(stored), true
			}
			d.Left += int64(end - at)
			if at == len(c.index) || c.index[at].index != index || c.index[at].score == neverScore {
				return store.NoScore
			}
			return c.index[at].score
		}
		if d.NextInherit, d.NextOwn = take(inherit, cut.Cuts.Inherit), take(own, cut.Cuts.Own); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Between finds what comes after places in the indexes of a collection, up to scores.
func (p *Partition) Between(_ context.Context, version, collection string, slices []store.Slice, limit, bytes int) ([]store.Found, error) {
	c := p.at(collection)
	if p.state.Version != version {
		return nil, store.ErrFenced
	}
	if err := c.check(collection); err != nil {
		return nil, err
	}
	found := make([]store.Found, len(slices))
	for i, slice := range slices {
		index, f := inherit, &found[i]
		if slice.Index == ttlrules.ByOwn {
			index = own
		}
		at := c.place(index, slice.After.Score)
		for at < len(c.index) && c.index[at].index == index && !slice.After.Before(store.Place{Score: c.index[at].score, ID: c.index[at].id}) {
			at++
		}
		f.Next = store.NoScore
		for ; at < len(c.index) && c.index[at].index == index && c.index[at].score != neverScore; at++ {
			if c.index[at].score > slice.UpTo || limit <= 0 || bytes <= 0 {
				f.Next = c.index[at].score
				break
			}
			id := c.index[at].id
			stored := c.read(id, true)
			if stored == nil {
				return nil, fmt.Errorf("%w: %s/%s is in the index, but is not a document", store.ErrDamaged, collection, id)
			}
			f.IDs, f.Documents = append(f.IDs, id), append(f.Documents, *stored)
			limit, bytes = limit-1, bytes-size(stored)
		}
	}
	return found, nil
}

// Scan reads headers, for the index. A cursor of another process of the server finds nothing.
func (p *Partition) Scan(_ context.Context, version, collection, cursor string, count int) (found []store.Change, next, server string, err error) {
	c, server := p.at(collection), fmt.Sprintf("run%d", p.server.run)
	if c.foreign {
		return nil, "", "", c.check(collection)
	}
	if p.state.Version != version {
		return nil, "", "", store.ErrFenced
	}
	run, last, _ := strings.Cut(cursor, ":")
	if cursor != "0" && run != server {
		return nil, "0", server, nil
	}
	for _, id := range slices.Sorted(maps.Keys(c.docs)) {
		if id <= last {
			continue
		}
		if len(found) == count {
			return found, server + ":" + found[count-1].ID, server, nil
		}
		found = append(found, store.Change{ID: id, Old: &c.read(id, false).Header})
	}
	return found, "0", server, nil
}

// Document is a stored document.
type Document struct {
	Collection, ID string
	Header         store.Header
	Body           string
	ExpiresAt      *wire.Time // set by Get alone; nil if it never expires
	Slides         bool       // set by Get alone: as in sink.Document
}

// Get reads a document as a new sink.Reader does, with the same errors. It judges by the
// later of the server's clock and the watermark.
func (p *Partition) Get(collection, id string) (d Document, err error) {
	if err := cmp.Or(wire.CheckCollection(collection), wire.CheckID(id)); err != nil {
		return d, err
	}
	c := p.at(collection)
	if c.foreign {
		return d, c.check(collection)
	}
	if s := p.state; s.Version == "" || s.Refused || s.Rebuild != 0 || p.configsLeft != len(p.configs) || c.left[0] != len(c.docs) {
		return d, fmt.Errorf("%w: partition %d", sink.ErrUnavailable, p.id)
	}
	found, history := c.docs[id], p.configs[collection].History
	now := max(p.server.Now().UnixMilli(), p.state.Watermark)
	if found == nil || history.Expired(found.Header.Clock(), now) {
		return d, sink.ErrNotFound
	}
	d = Document{Collection: collection, ID: id, Header: found.Header, Body: found.Body}
	if at, expires := d.Header.Clock().Deadline(history.Current()); expires {
		d.ExpiresAt = (*wire.Time)(&at)
		d.Slides = p.configs[collection].SlideOnRead && d.Header.Clock().Slides(at, now)
	}
	return d, nil
}

// Documents are all stored documents, expired or not, by collection and id.
func (p *Partition) Documents() (all []Document) {
	for _, name := range slices.Sorted(maps.Keys(p.collections)) {
		docs := p.at(name).docs
		for _, id := range slices.Sorted(maps.Keys(docs)) {
			all = append(all, Document{Collection: name, ID: id, Header: docs[id].Header, Body: docs[id].Body})
		}
	}
	return all
}

// Bytes are the bytes of the documents and the indexes, about.
func (p *Partition) Bytes() (n int) {
	for _, c := range p.collections {
		for id, d := range c.docs {
			n += len(id) + size(d)
		}
		n += 16 * len(c.index)
	}
	return n
}
