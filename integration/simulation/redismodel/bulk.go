package redismodel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/store"
)

// Copy reads documents, with the effects and the errors of [store.Shard]. Each call reads one
// collection at most.
func (s *Server) Copy(_ context.Context, version string, collections []string, at store.CopyPlace, documents,
	_ int) (c store.Copied, err error) {
	if s.state.Version != version {
		return c, store.ErrFenced
	}
	if len(collections) == 0 {
		return c, nil
	}
	name, server := collections[0], fmt.Sprintf("run%d", s.run)
	if one := s.at(name); one.foreign || one.left[0] != len(one.docs) {
		return c, one.check(name)
	}
	if at.Cursor != "" && at.Server != server {
		return c, nil
	}
	_, last, _ := strings.Cut(at.Cursor, ":")
	docs := s.at(name).docs
	for _, id := range slices.Sorted(maps.Keys(docs)) {
		if at.Cursor != "" && id <= last {
			continue
		}
		if len(c.Documents) == documents {
			c.Next = store.CopyPlace{Cursor: "after:" + c.Documents[documents-1].ID, Server: server}
			return c, nil
		}
		d := docs[id]
		c.Documents = append(c.Documents, store.Document{Collection: name, ID: id,
			Value: string(d.Header.Append(nil)) + d.Body})
	}
	c.Done = 1
	return c, nil
}

// Fill writes documents.
func (s *Server) Fill(_ context.Context, version, next string, changes []store.CollectionFill) error {
	switch {
	case s.state.Version != version:
		return store.ErrFenced
	case s.full:
		return errFull
	}
	for _, c := range changes {
		at := s.open(c.Collection)
		if c.Drop {
			*at = collection{docs: map[string]*store.Stored{}}
		}
		if c.MoveTo != "" {
			to := s.open(c.MoveTo)
			*to, *at = *at, *to
			continue
		}
		for _, d := range c.Put {
			value, err := parse(d.Value)
			if err != nil {
				return err
			}
			at.set(d.ID, value)
		}
		for _, d := range c.Renew {
			value, err := parse(d.Value)
			if err != nil {
				return err
			}
			if old := at.docs[d.ID]; old != nil {
				value.Body = old.Body
				at.set(d.ID, value)
			}
		}
		for _, id := range c.Remove {
			at.set(id, nil)
		}
	}
	s.state.Version = next
	return nil
}

func parse(value string) (*store.Stored, error) {
	h, body, err := store.ParseDocument(value)
	return &store.Stored{Header: h, Body: body}, err
}

// set stores a document, with its entry in the index, in place of the one that is there; nil
// removes that.
func (c *collection) set(id string, d *store.Stored) {
	if old := c.docs[id]; old != nil {
		c.enter(id, &old.Header, false)
	}
	if delete(c.docs, id); d != nil {
		c.docs[id] = d
		c.enter(id, &d.Header, true)
	}
}

// Count notes the sizes of collections.
func (s *Server) Count(_ context.Context, version string, collections []string) (full []string, documents uint64,
	err error) {
	if s.state.Version != version {
		return nil, 0, store.ErrFenced
	}
	for _, name := range collections {
		c := s.open(name)
		if c.left = c.sizes(); c.left == (sizes{}) {
			delete(s.collections, name)
			continue
		}
		full = append(full, name)
		documents += uint64(len(c.docs))
	}
	return full, documents, nil
}
