package redismodel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// ReadDocuments reads documents.
func (s *Server) ReadDocuments(_ context.Context, version string, wants []store.Want) ([][]*store.Stored, error) {
	var fenced error
	if s.state.Version != version {
		fenced = store.ErrFenced
	}
	found, bytes := make([][]*store.Stored, len(wants)), store.ReadBytes
	for i, w := range wants {
		c := s.at(w.Collection)
		if c.foreign { // also at another version
			return nil, c.check(w.Collection)
		} else if c.left[0] != len(c.docs) {
			return nil, cmp.Or(fenced, c.check(w.Collection))
		}
		found[i] = []*store.Stored{}
		for j, id := range slices.Concat(w.Headers, w.Whole) {
			whole := j >= len(w.Headers) && bytes > 0
			one := c.read(id, whole)
			if one != nil && whole {
				bytes -= size(one)
			}
			found[i] = append(found[i], one)
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
func (s *Server) Due(_ context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) ([]store.Due,
	error) {
	if s.state.Version != version {
		return nil, store.ErrFenced
	}
	for _, cut := range cuts {
		if err := s.at(cut.Collection).check(cut.Collection); err != nil {
			return nil, err
		}
	}
	var err error
	found, some := make([]store.Due, len(cuts)), false
	for i, cut := range cuts {
		c, d := s.at(cut.Collection), &found[i]
		d.IDs, d.Documents = []string{}, []store.Stored{}
		begin := int64(cut.Band) * ttlrules.BandWidth
		take := func(index int, cut int64, pass int) (next int64) {
			from := int64(math.MinInt64)
			if index == inherit && begin > 0 {
				from = begin
				if cut != ttlrules.NoCut {
					cut += begin
				}
			}
			at, end := c.place(index, from)+pass, c.place(index, min(cut, math.MaxInt64-1)+1)
			for ; at < end && limit > 0 && (bytes > 0 || !some); at++ {
				id := c.index[at].id
				stored := c.read(id, whole)
				if stored == nil {
					err = fmt.Errorf("%w: %s/%s is in the index, but is not a document", store.ErrDamaged,
						cuts[i].Collection, id)
					return 0
				}
				d.IDs, d.Documents = append(d.IDs, id), append(d.Documents, *stored)
				limit, bytes, some = limit-1, bytes-size(stored), true
			}
			d.Left += int64(max(end-at, 0))
			if at >= len(c.index) || c.index[at].index != index || c.index[at].score == neverScore {
				return store.NoScore
			}
			if index == inherit {
				if !cuts[i].IsIn(c.index[at].score) {
					return store.NoScore
				}
				return c.index[at].score - begin
			}
			return c.index[at].score
		}
		if d.NextInherit, d.NextOwn = take(inherit, cut.Cuts.Inherit, cut.PassInherit),
			take(own, cut.Cuts.Own, cut.PassOwn); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Between finds what comes after places in the indexes of a collection, up to scores.
func (s *Server) Between(_ context.Context, version, collection string, slices []store.Slice, limit,
	bytes int) ([]store.Found, error) {
	c := s.at(collection)
	if s.state.Version != version {
		return nil, store.ErrFenced
	}
	if err := c.check(collection); err != nil {
		return nil, err
	}
	found := make([]store.Found, len(slices))
	for i, slice := range slices {
		index, f := inherit, &found[i]
		f.IDs, f.Documents = []string{}, []store.Stored{}
		if slice.Index == ttlrules.ByOwn {
			index = own
		}
		at := c.place(index, slice.After.Score)
		for at < len(c.index) && c.index[at].index == index &&
			!slice.After.Before(store.Place{Score: c.index[at].score, ID: c.index[at].id}) {
			at++
		}
		f.Next = store.NoScore
		for ; at < len(c.index) && c.index[at].index == index; at++ {
			if c.index[at].score > slice.UpTo || limit <= 0 || bytes <= 0 {
				if f.More = true; c.index[at].score != neverScore {
					f.Next = c.index[at].score
				}
				break
			}
			id := c.index[at].id
			stored := c.read(id, true)
			if stored == nil {
				return nil, fmt.Errorf("%w: %s/%s is in the index, but is not a document", store.ErrDamaged, collection,
					id)
			}
			f.IDs, f.Documents = append(f.IDs, id), append(f.Documents, *stored)
			limit, bytes = limit-1, bytes-size(stored)
		}
	}
	return found, nil
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
func (s *Server) Get(collection, id string) (d Document, err error) {
	if err := cmp.Or(wire.CheckCollection(collection), wire.CheckID(id)); err != nil {
		return d, err
	}
	c := s.at(collection)
	if c.foreign {
		return d, c.check(collection)
	}
	if at := s.state; at.Version == "" || at.Refused || at.Rebuild != 0 || s.configsLeft != len(s.configs) ||
		c.left[0] != len(c.docs) {
		return d, sink.ErrUnavailable
	}
	config, configured := s.configs[collection]
	if !configured && !s.configs[wire.LogRules].Rules.Open {
		return d, sink.ErrNoCollection
	}
	found, history := c.docs[id], config.History
	now := max(s.Now().UnixMilli(), s.state.Watermark)
	if found == nil || history.Expired(found.Header.Clock(), now) {
		return d, sink.ErrNotFound
	}
	d = Document{Collection: collection, ID: id, Header: found.Header, Body: found.Body}
	if at, expires := d.Header.Clock().Deadline(history.Current()); expires {
		d.ExpiresAt = (*wire.Time)(&at)
		d.Slides = d.Header.Clock().Slides(at, now, float64(config.SlideOnRead))
	}
	return d, nil
}

// Documents are all stored documents, expired or not, by collection and id.
func (s *Server) Documents() (all []Document) {
	for _, name := range slices.Sorted(maps.Keys(s.collections)) {
		docs := s.at(name).docs
		for _, id := range slices.Sorted(maps.Keys(docs)) {
			all = append(all, Document{Collection: name, ID: id, Header: docs[id].Header, Body: docs[id].Body})
		}
	}
	return all
}

// Bytes are the bytes of the documents and the indexes, about.
func (s *Server) Bytes() (n int) {
	for _, c := range s.collections {
		for id, d := range c.docs {
			n += len(id) + size(d)
		}
		n += 16 * len(c.index)
	}
	for _, all := range s.entries {
		n += 32 * len(all)
	}
	return n
}
