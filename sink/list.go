package sink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// ListOptions ask for a page.
type ListOptions struct {
	Limit        int    // 1 to wire.MaxListLimit; wire.DefaultListLimit if 0
	MaxBytes     int    // end the page before its bodies and ids are more than this (but have one document); no limit if 0
	Continuation string // of the page before
}

// Page is a part of a collection. Without a continuation it is the last.
type Page struct {
	Documents    []Document
	Continuation string
}

// listPosition is where a page ended, in a continuation. A chunk is what one scan
// from a cursor finds, in the order of the ids.
type listPosition struct {
	Partition int    `json:"p"`
	Server    string `json:"s,omitempty"` // process that the cursor is good for
	Cursor    string `json:"c"`           // of the chunk
	Count     int    `json:"n,omitempty"` // with which it was scanned
	Next      string `json:"x,omitempty"` // the cursor after it, if After is set
	After     string `json:"a,omitempty"` // the last id of it that was returned
}

func (pos listPosition) encode() string {
	b, _ := json.Marshal(pos) // text and numbers: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func (r *Reader) decodePosition(s string) (pos listPosition, err error) {
	if s == "" {
		return listPosition{Cursor: "0"}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &pos)
	}
	_, cursor := strconv.ParseUint(pos.Cursor, 10, 63) // not what the server would call an error of its own
	bad := pos.Partition < 0 || pos.Partition >= len(r.parts) || cursor != nil || pos.Count < 0 ||
		pos.Count > wire.MaxListLimit
	if err != nil || bad {
		return listPosition{}, fmt.Errorf("%w: the continuation is not one that a list returned", ErrInvalidRequest)
	}
	return pos, nil
}

// List reads a collection in pages, in no particular order. A document that is
// there, unchanged, from the first page to the last is in one of them at least;
// only if the collection grows or shrinks by much in between may it be in two. A
// continuation is good until the Redis server is restarted.
func (r *Reader) List(ctx context.Context, collection string, opts ListOptions) (Page, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return Page{}, err
	}
	if opts.Limit == 0 {
		opts.Limit = wire.DefaultListLimit
	}
	if opts.Limit < 1 || opts.Limit > wire.MaxListLimit {
		return Page{}, fmt.Errorf("%w: limit %d: allowed are 1 to %d", ErrInvalidRequest, opts.Limit, wire.MaxListLimit)
	}
	pos, err := r.decodePosition(opts.Continuation)
	if err != nil {
		return Page{}, err
	}
	page := Page{Documents: []Document{}}
	for bytes := 0; ; {
		if pos.Count == 0 {
			pos.Count = opts.Limit
		}
		c, err := r.scan(ctx, collection, &pos)
		if err != nil {
			return Page{}, err
		}
		for i, d := range c.documents {
			bytes += len(d.Body) + len(d.ID)
			full := len(page.Documents) == opts.Limit || opts.MaxBytes > 0 && bytes > opts.MaxBytes && len(page.Documents) > 0
			if full {
				if i > 0 {
					pos.After, pos.Next = c.documents[i-1].ID, c.next
				}
				page.Continuation = pos.encode()
				return page, nil
			}
			page.Documents = append(page.Documents, d)
		}
		pos = listPosition{Partition: pos.Partition, Server: c.server, Cursor: c.next}
		if c.next == "0" {
			pos.Partition, pos.Server = pos.Partition+1, ""
		}
		if pos.Partition == len(r.parts) {
			return page, nil
		}
		if len(page.Documents) == opts.Limit {
			page.Continuation = pos.encode()
			return page, nil
		}
	}
}

// chunk is what one scan found and is still to be returned.
type chunk struct {
	documents []Document // by id
	next      string     // cursor
	server    string
}

func (r *Reader) scan(ctx context.Context, collection string, pos *listPosition) (chunk, error) {
	h, v, err := r.ask(ctx, scanScript, pos.Partition, collection, nil, pos.Cursor, pos.Count, 1)
	if err != nil {
		return chunk{}, err
	}
	c := chunk{server: v.str(1), next: v.str(2)}
	if pos.Server != "" && pos.Server != c.server {
		return chunk{}, fmt.Errorf("%w: the continuation is from before a restart of Redis: begin anew, without one", ErrInvalidRequest)
	}
	pos.Server = c.server
	// If the table of documents was resized since, the chunk is another: then
	// nothing of it is passed over, for rather twice than not at all.
	resumes := pos.After != "" && pos.Next == c.next
	values := v.list(3)
	for i := 0; i+1 < len(values); i += 2 {
		id := values.str(i)
		if resumes && id <= pos.After {
			continue
		}
		d, ok, err := h.document(id, values.str(i+1))
		if err != nil {
			return chunk{}, err
		}
		if ok {
			c.documents = append(c.documents, d)
		}
	}
	slices.SortFunc(c.documents, func(a, b Document) int { return strings.Compare(a.ID, b.ID) })
	return c, nil
}
