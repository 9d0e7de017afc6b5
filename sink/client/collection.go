package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Collection writes and reads the documents of one collection, which are JSON of a T: a struct,
// a map, or json.RawMessage for the bytes as they are. Several goroutines may use it.
//
// A document's TTL is not in T, unless T has a member "ttl": set it with [TTL].
type Collection[T any] struct {
	c    *Client
	name string
}

// Open returns a collection, which need not exist yet: [Collection.Configure] creates it, and until then a write is an
// [ErrNoCollection], unless collections are open. It sends nothing. The name is 1 to 128 of A-Z a-z 0-9 _ -; another
// one is an [ErrInvalid].
func Open[T any](c *Client, name string) (*Collection[T], error) {
	if err := wire.CheckCollection(name); err != nil {
		return nil, invalid("%s", err)
	}
	return &Collection[T]{c, name}, nil
}

// Name is the name of the collection.
func (o *Collection[T]) Name() string { return o.name }

// Written is the result of a write, a configuration or a drop that lapse has applied.
type Written struct {
	Created bool      // the document did not exist before
	Etag    wire.Etag // of the version; 0 after a delete or a drop
	Ts      time.Time // when it was written, to the millisecond, as NATS stamped it
	// ExpiresAt is the document's deadline; the zero time if it never expires. A later
	// change of the collection's default may move it.
	ExpiresAt time.Time
	// Warning is what the write does not do, although its author may think so: such as a TTL
	// in a collection whose TTL is off. It is empty if there is nothing of the kind.
	Warning string
	Seq     uint64 // of the message in the log; 0 if that is not known
	// Duplicate means that the log already had a message with the same [MessageID], at the
	// sequence Seq: this one changed nothing. The other fields are then zero.
	Duplicate bool
}

// newWritten is the result of a message; a rejection is an error.
func newWritten(r Result, err error) (Written, error) {
	w := Written{Seq: r.Seq, Duplicate: r.Duplicate}
	o := r.Outcome
	switch {
	case err != nil:
		return w, err
	case o.Status >= wire.StatusBadRequest:
		return w, &RejectedError{Code: o.Status, Reason: o.Error, Seq: r.Seq, Kind: o.Reason}
	}
	w.Created, w.Etag = o.Status == wire.StatusCreated, o.Etag
	if o.Ts != 0 {
		w.Ts = instant(&o.Ts)
	}
	w.ExpiresAt, w.Warning = instant(o.ExpiresAt), o.Warning
	return w, nil
}

// instant is the zero time if there is none.
func instant(t *wire.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(*t)).UTC()
}

// Upsert creates or replaces a document. The id is 1 to 255 bytes of UTF-8.
func (o *Collection[T]) Upsert(ctx context.Context, id string, document T, options ...Option) (Written, error) {
	return o.write(ctx, wire.Upsert, id, document, options)
}

// Create creates a document. If it exists, the error is [ErrExists]; an expired document does
// not exist.
func (o *Collection[T]) Create(ctx context.Context, id string, document T, options ...Option) (Written, error) {
	return o.write(ctx, wire.Create, id, document, options)
}

// Replace replaces a document. If it does not exist, the error is [ErrNotFound].
func (o *Collection[T]) Replace(ctx context.Context, id string, document T, options ...Option) (Written, error) {
	return o.write(ctx, wire.Replace, id, document, options)
}

// Patch changes members of a document: patch is a JSON merge patch (RFC 7396), such as a map
// or a struct whose other members are omitted. A null removes a member. If the document does
// not exist, the error is [ErrNotFound].
func (o *Collection[T]) Patch(ctx context.Context, id string, patch any, options ...Option) (Written, error) {
	return o.write(ctx, wire.Patch, id, patch, options)
}

// Touch renews a document: its time to live begins again. If the document does not exist, the
// error is [ErrNotFound].
func (o *Collection[T]) Touch(ctx context.Context, id string, options ...Option) (Written, error) {
	return o.write(ctx, wire.Touch, id, nil, options)
}

// Delete removes a document, without an expiry event. If it does not exist, the error is
// [ErrNotFound].
func (o *Collection[T]) Delete(ctx context.Context, id string, options ...Option) (Written, error) {
	return o.write(ctx, wire.Delete, id, nil, options)
}

func (o *Collection[T]) write(
	ctx context.Context, op wire.Op, id string, document any, options []Option,
) (Written, error) {
	s, err := settle(options)
	if err != nil {
		return Written{}, o.wrap(id, err)
	}
	return o.settled(ctx, op, id, document, s)
}

// settled is write with options that are settled.
func (o *Collection[T]) settled(ctx context.Context, op wire.Op, id string, document any, s settings) (Written, error) {
	m, err := o.message(op, id, document, s)
	if err != nil {
		return Written{}, o.wrap(id, err)
	}
	w, err := newWritten(o.c.write(ctx, m, s.ackOnly))
	return w, o.wrap(id, err)
}

// message makes the message of a write.
func (o *Collection[T]) message(op wire.Op, id string, document any, s settings) (m Message, err error) {
	if err := wire.CheckID(id); err != nil {
		return m, invalid("%s", err)
	}
	var body []byte
	switch {
	case op.HasBody():
		if body, err = s.encode(document); err != nil {
			return m, err
		}
	case s.ttl != nil:
		return m, invalid("a %s has no document, and so no TTL: leave the option TTL out", op)
	}
	switch {
	case s.ttl != nil && s.expiresAt != "":
		return m, invalid("a document has a TTL or an absolute deadline: leave one of the options TTL and ExpiresAt out")
	case s.notAfter != "" && s.expiresAt != "":
		return m, invalid("an absolute deadline has no limit: leave one of the options ExpiresAt and NotAfter out")
	case s.notAfter != "" && op != wire.Upsert && op != wire.Create && op != wire.Replace:
		return m, invalid("a %s sets no limit: leave the option NotAfter out", op)
	case op == wire.Delete && s.expiresAt != "":
		return m, invalid("a delete leaves no document: leave the option ExpiresAt out")
	case op == wire.Delete && s.clock != "":
		return m, invalid("a delete leaves no document: leave the options KeepClock and ClockFrom out")
	case s.clock == wire.ClockKeep && op != wire.Upsert && op != wire.Replace && op != wire.Patch:
		return m, invalid("a %s keeps no clock: leave the option KeepClock out", op)
	case s.target != "" && op != wire.Upsert && op != wire.Create && op != wire.Replace:
		return m, invalid("a %s sets no target: leave the option Target out", op)
	case s.id != "":
		return m, invalid("the id is an argument of a %s: leave the option ID out, which is for Schedule", op)
	}
	return s.message(o.c.l.Prefix.Write(op, o.name, id), body), nil
}

// wrap says in an error what it is about.
func (o *Collection[T]) wrap(id string, err error) error {
	if err == nil {
		return nil
	}
	if id == "" {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return fmt.Errorf("%s/%s: %w", o.name, id, err)
}

// Document is a stored document.
type Document[T any] struct {
	ID        string
	Value     T
	Etag      wire.Etag
	Ts        time.Time // of its last write, to the millisecond
	ExpiresAt time.Time // its deadline; the zero time if it never expires
	Target    string    // of the message that its expiry delivers, "" if none: see [Collection.Schedule]
}

func newDocument[T any](d wire.Document) (Document[T], error) {
	value, err := decode[T](d.Document)
	return Document[T]{ID: d.ID, Value: value, Etag: d.Etag, Ts: instant(&d.Ts), ExpiresAt: instant(d.ExpiresAt),
		Target: d.Target}, err
}

// Get reads a document. If it does not exist, or has expired, the error is [ErrNotFound].
func (o *Collection[T]) Get(ctx context.Context, id string) (Document[T], error) {
	return o.get(ctx, id, o.c.Get)
}

// GetRenewed is a Get that waits until the read has renewed the clock of a document that slides ([Config].SlideOnRead),
// if it is to: ExpiresAt is the new deadline.
func (o *Collection[T]) GetRenewed(ctx context.Context, id string) (Document[T], error) {
	return o.get(ctx, id, o.c.GetRenewed)
}

func (o *Collection[T]) get(
	ctx context.Context, id string, read func(ctx context.Context, collection, id string) (wire.Document, error),
) (Document[T], error) {
	if err := wire.CheckID(id); err != nil {
		return Document[T]{}, o.wrap("", invalid("%s", err))
	}
	found, err := read(ctx, o.name, id)
	if err != nil {
		return Document[T]{}, o.wrap(id, err)
	}
	doc, err := newDocument[T](found)
	return doc, o.wrap(id, err)
}

// List yields all live documents, in no particular order, or those that the options select. It reads
// them page by page while you range over it. It yields each document that nobody writes meanwhile
// exactly once. In a collection without an index it may, in a rare case, yield one twice.
//
// If a page cannot be read, List yields the error, and ends. If a document is not a T, List
// yields its error with the document's ID, Etag and instants, and goes on.
func (o *Collection[T]) List(ctx context.Context, options ...ListOption) iter.Seq2[Document[T], error] {
	return func(yield func(Document[T], error) bool) {
		req := wire.ListRequest{Limit: wire.MaxListLimit}
		for _, set := range options {
			set(&req)
		}
		for {
			page, err := o.c.List(ctx, o.name, req)
			if err != nil {
				yield(Document[T]{}, o.wrap("", err))
				return
			}
			for _, found := range page.Documents {
				doc, err := newDocument[T](found)
				if !yield(doc, o.wrap(found.ID, err)) {
					return
				}
			}
			if page.Continuation == "" {
				return
			}
			req.Continuation = page.Continuation
		}
	}
}

// Count counts the documents. While lapse builds the collection's index, the error is
// [ErrUnavailable].
func (o *Collection[T]) Count(ctx context.Context) (wire.CountReply, error) {
	n, err := o.c.Count(ctx, o.name)
	return n, o.wrap("", err)
}

// Forecast counts the documents that will expire within a time, in so many buckets of the same
// length (1 to 1,000), if nobody writes or configures anything until then. While lapse builds
// the collection's index, the error is [ErrUnavailable].
func (o *Collection[T]) Forecast(ctx context.Context, within time.Duration, buckets int) ([]wire.Bucket, error) {
	reply, err := o.forecast(ctx, within, buckets, nil)
	return reply.Buckets, o.wrap("", err)
}

// ForecastFor is Forecast as if a default TTL were configured now: atOnce documents would
// expire at once, and the buckets have those that would later. Nothing is changed.
func (o *Collection[T]) ForecastFor(
	ctx context.Context, defaultTTL, within time.Duration, buckets int,
) (atOnce int64, later []wire.Bucket, err error) {
	ttl, err := defaultSeconds(defaultTTL)
	if err != nil {
		return 0, nil, o.wrap("", err)
	}
	text, _ := json.Marshal(ttl) // a number or null
	reply, err := o.forecast(ctx, within, buckets, text)
	if err == nil && reply.AtOnce == nil {
		err = fmt.Errorf("this lapse cannot forecast a change of the default TTL: its version is too old; update the server")
	}
	if err != nil {
		return 0, nil, o.wrap("", err)
	}
	return *reply.AtOnce, reply.Buckets, nil
}

func (o *Collection[T]) forecast(
	ctx context.Context, within time.Duration, buckets int, defaultTTL json.RawMessage,
) (wire.ForecastReply, error) {
	if within <= 0 || buckets < 1 || buckets > wire.MaxBuckets {
		return wire.ForecastReply{}, invalid("a forecast of %s in %d buckets is not valid: use a duration over 0, and 1 to "+
			"%d buckets", within, buckets, wire.MaxBuckets)
	}
	return o.c.Forecast(ctx, o.name, wire.ForecastRequest{Buckets: buckets, Within: within.String(),
		DefaultTTL: defaultTTL})
}
