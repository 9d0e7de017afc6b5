package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Changed is a change: what it is (wire.TypeCreated and so on), and the log sequence of the write or the drop.
type Changed = wire.Changed

// ErrNoChanges: the collection does not publish its changes.
var ErrNoChanges = errors.New("the collection does not publish its changes")

// State is a collection as it is when its changes begin. It has places in the logs, and the etags of those documents
// alone that were written behind them, while all were being read.
type State struct {
	After uint64 // where the changes begin: what the stream of events stores up to it is in the documents
	End   uint64 // behind it come only changes that the documents do not have

	collection string
	shards     []wire.SettledShard
	written    map[string]wire.Etag
	held       int64
}

// writtenHeld is about how many bytes a document of State takes, beside its id.
const writtenHeld = 64

// Held is about how many bytes the state takes.
func (s *State) Held() int64 { return s.held }

// Documents calls f with all documents of a collection that publishes its changes, or with one of them, a page at a
// time, and returns the state that they are. held is about how many bytes that takes so far.
//
// After is asked for before the documents are read, because lapse publishes a change before it commits that.
func (c *Client) Documents(
	ctx context.Context, collection, id string, f func(page []wire.Document, held int64) error,
) (s State, err error) {
	config, err := c.Config(ctx, collection)
	if err == nil && !config.Changes {
		err = fmt.Errorf("%s: %w: set its property changes (lapse config %s --changes)", collection, ErrNoChanges, collection)
	}
	if err != nil {
		return s, err
	}
	settled, err := read[wire.SettledReply](ctx, c, "settled", collection, nil)
	if err != nil {
		return s, err
	}
	s = State{collection: collection, shards: settled.Shards, written: make(map[string]wire.Etag)}
	err = c.pages(ctx, collection, id, func(page []wire.Document) error {
		for i := range page {
			s.note(&page[i])
		}
		return f(page, s.held)
	})
	if err != nil {
		return s, err
	}
	stream, err := eventsStream(ctx, c.l, c.l.Prefix.EventsStream())
	if err != nil {
		return s, err
	}
	later, err := read[wire.SettledReply](ctx, c, "settled", collection, nil)
	if err != nil {
		return s, err
	}
	last := stream.CachedInfo().State.LastSeq
	s.End = max(last, later.Settled)     // a mirror may be behind the documents
	s.After = min(settled.Settled, last) // the stream may have lost its end since
	return s, nil
}

// pages calls f with the documents of a collection, or with one of them if it is there.
func (c *Client) pages(ctx context.Context, collection, id string, f func([]wire.Document) error) error {
	if id != "" {
		d, err := c.Get(ctx, collection, id)
		if missing := (*ReadError)(nil); errors.As(err, &missing) && missing.Code == wire.StatusNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		return f([]wire.Document{d})
	}
	for request := (wire.ListRequest{}); ; {
		page, err := c.List(ctx, collection, request)
		if err == nil {
			err = f(page.Documents)
		}
		if err != nil || page.Continuation == "" {
			return err
		}
		request.Continuation = page.Continuation
	}
}

// place is that in the log of a document; of the first shard, which publishes drops, without an id. It is zero if it is
// not known: then each document counts as written behind it.
func (s *State) place(id string) wire.SettledShard {
	switch n := len(s.shards); {
	case n == 0:
		return wire.SettledShard{}
	case id == "":
		return s.shards[0]
	default:
		return s.shards[wire.ShardOf(n, s.collection, wire.EscapeID(id))]
	}
}

// note notes a document that was read, if it was written behind the place, or in the same millisecond.
func (s *State) note(d *wire.Document) {
	if p := s.place(d.ID); uint64(d.Etag) > p.Seq || d.Ts >= p.Watermark {
		s.written[d.ID] = d.Etag
		s.held += int64(len(d.ID)) + writtenHeld
	}
}

// Has reports whether the state has the effect of a message at a sequence of the stream. It has that of no rejection.
func (s *State) Has(seq uint64, m wire.About) bool {
	if s == nil || seq > s.End || m.Kind == wire.KindRejected {
		return false
	}
	p := s.place(m.ID)
	if m.Kind == wire.KindChanged {
		return m.Seq <= max(p.Seq, uint64(s.written[m.ID]))
	}
	return m.At < p.Watermark || wire.Etag(m.Seq) < s.written[m.ID]
}

// ChangeKind is what a [Change] is.
type ChangeKind string

// The kinds of changes.
const (
	Stored  ChangeKind = "stored"  // the document is there at the beginning
	Current ChangeKind = "current" // all documents of the beginning have come
	Created ChangeKind = "created"
	Updated ChangeKind = "updated"
	Deleted ChangeKind = "deleted"
	Expires ChangeKind = "expired"
	Dropped ChangeKind = "dropped" // the collection
)

// Change is what has happened to a document, or to the collection. Each kind leaves out what it does not
// have.
type Change[T any] struct {
	Kind    ChangeKind
	ID      string
	Value   T    // of Stored, Created, Updated and Expires; the zero value if Omitted
	Omitted bool // as in [Expired]; true also if Unchanged
	// Unchanged marks a touch, by a client or for a read: the document is as it was.
	Unchanged bool
	Etag      wire.Etag // of the version
	// Seq is the log sequence of the write or the drop; 0 of Stored and Current. With a drop those documents
	// are gone whose etag is smaller; with several shards, those whose Ts is earlier.
	Seq       uint64
	Ts        time.Time  // when it happened; of Expires, from when the document was expired
	ExpiresAt *time.Time // of Stored, Created and Updated; nil if the document never expires
}

// Watch calls handle with each document of the collection as it is now ([Stored]), then with [Current], and
// from there on with each change and each expiry in the order of the stream, without a gap, until ctx is
// done (then it returns nil) or handle returns an error. The changes of each document are in the order of
// the log. A document that is gone may come once more after Current, with its end after it. It returns
// [ErrNoChanges] unless the collection has Config.Changes.
//
// It keeps the ids and etags of those documents in memory that are written while it reads them all.
func (o *Collection[T]) Watch(ctx context.Context, handle func(Change[T]) error) error {
	return o.wrap("", o.c.Watch(ctx, WatchOptions{Collection: o.name, Changes: true}, func(n Notification) error {
		change, err := newChange[T](n)
		if err != nil {
			return err
		}
		return handle(change)
	}))
}

func newChange[T any](n Notification) (c Change[T], err error) {
	var body json.RawMessage
	var expiresAt *wire.Time
	switch {
	case n.Current:
		return Change[T]{Kind: Current}, nil
	case n.Document != nil:
		d := n.Document
		c = Change[T]{Kind: Stored, ID: d.ID, Etag: d.Etag, Ts: instant(&d.Ts)}
		body, expiresAt = d.Document, d.ExpiresAt
	case n.Expired != nil:
		e := n.Expired
		c = Change[T]{Kind: Expires, ID: e.ID, Omitted: e.Omitted, Etag: e.Etag, Ts: instant(&e.ExpiredAt)}
		body = e.Document
	case n.Due != nil:
		d := n.Due
		c = Change[T]{Kind: Expires, ID: d.ID, Omitted: d.Omitted, Etag: d.Etag, Ts: instant(&d.DueAt)}
		body = d.Document
	default:
		d := n.Changed
		c = Change[T]{Kind: ChangeKind(d.Kind()), ID: d.ID, Omitted: d.Omitted, Unchanged: d.Unchanged, Etag: d.Etag,
			Seq: d.Seq, Ts: instant(&d.Ts)}
		body, expiresAt = d.Document, d.ExpiresAt
	}
	if expiresAt != nil {
		at := instant(expiresAt)
		c.ExpiresAt = &at
	}
	if len(body) > 0 {
		c.Value, err = decode[T](body)
	}
	return c, err
}
