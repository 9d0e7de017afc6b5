package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Changed is a change: what it is (wire.TypeCreated and so on), and the log sequence of the write or the drop.
type Changed struct {
	Type string `json:"type"`
	wire.Change
	Seq uint64 `json:"seq"`
}

// ErrNoChanges: the collection does not publish its changes.
var ErrNoChanges = errors.New("the collection does not publish its changes")

// current is the state with which a watch of changes began. Up to end, the stream has messages from
// before it.
type current struct {
	end    uint64
	listed map[string]wire.Etag
}

// sendCurrent calls f with each document that there is now, and at last says that these are all. after is a
// place in the stream: what it stores up to there is in the documents. It is asked for before they are
// read, because lapse publishes a change before it commits that.
func (c *Client) sendCurrent(ctx context.Context, opts WatchOptions, stream jetstream.Stream, f func(Notification) error) (after uint64, now current, err error) {
	config, err := c.Config(ctx, opts.Collection)
	if err == nil && !config.Changes {
		err = fmt.Errorf("%s: %w: set its property changes (lapse config %s --changes)", opts.Collection, ErrNoChanges, opts.Collection)
	}
	if err != nil {
		return 0, now, err
	}
	settled, err := read[wire.SettledReply](ctx, c, "settled", opts.Collection, nil)
	if err != nil {
		return 0, now, err
	}
	now.listed = make(map[string]wire.Etag)
	send := func(documents ...wire.Document) error {
		for i := range documents {
			now.listed[documents[i].ID] = documents[i].Etag
			if err := f(Notification{Document: &documents[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	if opts.ID != "" {
		d, err := c.Get(ctx, opts.Collection, opts.ID)
		if missing := (*ReadError)(nil); err == nil {
			err = send(d)
		} else if errors.As(err, &missing) && missing.Code == wire.StatusNotFound {
			err = nil
		}
		if err != nil {
			return 0, now, err
		}
	} else {
		for request := (wire.ListRequest{}); ; {
			page, err := c.List(ctx, opts.Collection, request)
			if err == nil {
				err = send(page.Documents...)
			}
			if err != nil {
				return 0, now, err
			}
			if request.Continuation = page.Continuation; page.Continuation == "" {
				break
			}
		}
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return 0, now, c.l.StreamError("look up the stream "+c.l.Prefix.EventsStream(), "", err)
	}
	later, err := read[wire.SettledReply](ctx, c, "settled", opts.Collection, nil)
	if err != nil {
		return 0, now, err
	}
	now.end = max(info.State.LastSeq, later.Settled) // a mirror may be behind the documents
	after = min(settled.Settled, info.State.LastSeq) // the stream may have lost its end since
	return after, now, f(Notification{Seq: after, Current: true})
}

// has reports whether a message is about a version before one that the state had. All messages about a
// document name sequences of one log.
func (s *current) has(n Notification) bool {
	if s.listed == nil {
		return false
	}
	if n.Seq > s.end {
		s.listed = nil // the rest is from after it
		return false
	}
	switch {
	case n.Changed != nil:
		return n.Changed.Seq <= uint64(s.listed[n.Changed.ID])
	case n.Expired != nil:
		return n.Expired.Etag < s.listed[n.Expired.ID]
	case n.Due != nil:
		return n.Due.Etag < s.listed[n.Due.ID]
	case n.Expiring != nil:
		return n.Expiring.Etag < s.listed[n.Expiring.ID]
	}
	return false
}

// readChanged reads the message about a change.
func readChanged(msg jetstream.Msg) (*Changed, error) {
	header := msg.Headers()
	n := &Changed{Type: header.Get("ce-type")}
	id := header.Get("ce-id") // it ends with the sequence and a word
	id = id[:max(0, strings.LastIndexByte(id, '/'))]
	_, seqErr := fmt.Sscan(id[strings.LastIndexByte(id, '/')+1:], &n.Seq)
	return n, errors.Join(json.Unmarshal(msg.Data(), &n.Change), seqErr)
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
// While it reads the documents, it keeps their ids and etags in memory.
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
		c = Change[T]{Kind: ChangeKind(d.Kind()), ID: d.ID, Omitted: d.Omitted, Unchanged: d.Unchanged, Etag: d.Etag, Seq: d.Seq, Ts: instant(&d.Ts)}
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

// Kind is the last word but one of the type: created, updated, deleted or dropped.
func (c Changed) Kind() string {
	kind := strings.TrimSuffix(c.Type, ".v1")
	return kind[strings.LastIndexByte(kind, '.')+1:]
}
