package sink

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// Errors of a Reader, to be told apart with errors.Is. A malformed collection or id is a
// wire.ErrInvalidName. An error of Redis is passed on.
var (
	// ErrNotFound: the document does not exist, or it is expired.
	ErrNotFound = errors.New("document not found")
	// ErrNoCollection: the collection was never configured, or was dropped, and collections are not open. It is also
	// an ErrNotFound.
	ErrNoCollection = fmt.Errorf("%w: there is no such collection", ErrNotFound)
	// ErrUnavailable: the shard is being rebuilt or was never initialised. Try again later.
	ErrUnavailable = layout.ErrUnavailable
	// ErrInvalidRequest: a limit, a continuation or a forecast is out of range.
	ErrInvalidRequest = wire.ErrInvalidRequest
	// ErrNoIndex: no index of the collection serves the query. It is also an ErrInvalidRequest.
	ErrNoIndex = fmt.Errorf("%w: no index serves the query", ErrInvalidRequest)
	// ErrIndexMade: the index that would serve the query is still being made. It is also an ErrUnavailable.
	ErrIndexMade = fmt.Errorf("%w: the index is being made", ErrUnavailable)
	// ErrForeign: a key of lapse holds something that lapse did not store, or the documents are
	// divided into another number of shards than the Reader was made for.
	ErrForeign = layout.ErrForeign
)

// noIndex is an ErrNoIndex whose text is a sentence for the client.
type noIndex string

func (e noIndex) Error() string { return string(e) }
func (noIndex) Unwrap() error   { return ErrNoIndex }

func lacksIndex(format string, args ...any) error { return noIndex(fmt.Sprintf(format, args...)) }

// indexMade is an ErrIndexMade whose text is a sentence for the client.
type indexMade string

func (e indexMade) Error() string { return string(e) }
func (indexMade) Unwrap() error   { return ErrIndexMade }

// invalid makes an ErrInvalidRequest whose text is a sentence for the client.
func invalid(format string, args ...any) error { return wire.InvalidRequest(format, args...) }

// Document is a live document.
type Document struct {
	ID        string
	Etag      wire.Etag
	Ts        wire.Time
	ExpiresAt *wire.Time // nil if it never expires
	Target    string     // of the message that its expiry delivers, "" if none
	Clock     wire.Time  // from where its TTL counts
	Created   wire.Time  // when it was created, if that is before Clock and maxLife counts from there; else 0
	Deadline  *wire.Time // the absolute deadline that a write has named; nil if none
	NotAfter  *wire.Time // the limit of its TTL; nil if none
	Trace     string     // traceparent, "" if none
	Body      []byte
	// Slides reports that whoever serves a get of the document renews its clock, because its collection
	// has slideOnRead: see [service.Sliding]. A Reader writes nothing.
	Slides bool
}

// Reader reads documents. In one script, at one moment, it reads the document and everything
// that decides whether it is expired: the collection's configuration, the shard's
// watermark, and the clock of the Redis server. So all readers agree:
//
//   - R1: a Reader never returns a document at or after its deadline, by the later of
//     the server's clock and the watermark.
//   - R2: if a shard lacks documents, or is behind a state that this Reader has seen, the
//     Reader returns ErrUnavailable, and never ErrNotFound.
//
// A Reader is safe for concurrent use.
type Reader struct {
	client  redis.UniversalClient
	prefix  wire.Prefix
	finds   bool                   // it finds the number of shards by itself
	found   atomic.Pointer[shards] // nil until the number is known
	refuse  func() error
	configs layout.ConfigCache
	names   names
}

// ReaderOptions say what a Reader reads.
type ReaderOptions struct {
	Prefix wire.Prefix // wire.DefaultPrefix if empty
	// Shards is the number of shards. If it is 0, the Reader finds it in Redis, where shard 0 has it,
	// and returns ErrUnavailable until something is stored there. If it is not the stored number, the
	// Reader returns ErrForeign.
	Shards int
	// Refuse returns why no read may be answered now, and nil if reads may be. It may be nil.
	Refuse func() error
}

// readRoundTrips limits how many round trips of a Reader to a shard are under way at a time.
// Further reads share the next one.
const readRoundTrips = 4

// NewReader makes a Reader on a Redis (or Redis Cluster) that a lapse processor
// writes to. It does not talk to the server.
func NewReader(client redis.UniversalClient, opts ReaderOptions) (*Reader, error) {
	prefix, err := opts.Prefix.OrDefault()
	if err != nil {
		return nil, err
	}
	if opts.Shards < 0 || opts.Shards > wire.MaxShards {
		return nil, fmt.Errorf("%d shards are not valid: use a number from 1 to %d, or 0 to find it in Redis", opts.Shards,
			wire.MaxShards)
	}
	r := &Reader{client: client, prefix: prefix, finds: opts.Shards == 0, refuse: opts.Refuse}
	if !r.finds {
		r.found.Store(r.newShards(opts.Shards))
	}
	return r, nil
}

// document decodes a stored document; ok = false if it is expired.
func (v view) document(id, value string) (d Document, ok bool, err error) {
	h, body, err := layout.ParseDocument(value)
	if err != nil {
		return d, false, fmt.Errorf("document %q: %w: %w", id, ErrForeign, err)
	}
	if v.expired(h) {
		return d, false, nil
	}
	d = Document{ID: id, Etag: wire.Etag(h.Etag), Ts: wire.Time(h.Ts), Target: h.Target,
		Clock: wire.Time(h.Clock().Begin()), Trace: h.Trace, Body: []byte(body)}
	if d.Created = wire.Time(h.Created); d.Created == d.Clock {
		d.Created = 0
	}
	if h.Absolute != 0 {
		d.Deadline = (*wire.Time)(&h.Absolute)
	}
	if h.NotAfter != 0 {
		d.NotAfter = (*wire.Time)(&h.NotAfter)
	}
	if at, expires := h.Clock().Deadline(v.config.History.Current()); expires {
		d.ExpiresAt = (*wire.Time)(&at)
		d.Slides = h.Clock().Slides(at, v.now, float64(v.config.SlideOnRead))
	}
	return d, true, nil
}

//go:embed get.lua
var getSource string

var getScript = layout.NewHeadScript(getSource)

// Positions in the reply of get.lua.
const (
	_ = iota // the head
	getValues
)

// mostIDs is how many ids get.lua takes.
const mostIDs = 4000

// Get reads one document.
func (r *Reader) Get(ctx context.Context, collection, id string) (Document, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return Document{}, err
	}
	if err := wire.CheckID(id); err != nil {
		return Document{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return Document{}, err
	}
	found, err := ps.get(ctx, ps.of(collection, id), collection, []string{id})
	if err != nil {
		return Document{}, err
	}
	if len(found) == 0 {
		return Document{}, ErrNotFound
	}
	return found[0], nil
}

// GetMany reads many documents of a collection, and returns them in the order of the ids. It
// leaves out those that do not exist.
func (r *Reader) GetMany(ctx context.Context, collection string, ids []string) ([]Document, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := wire.CheckID(id); err != nil {
			return nil, err
		}
	}
	ps, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	byPart := make([][]string, len(ps.keys))
	for _, id := range ids {
		p := ps.of(collection, id)
		byPart[p] = append(byPart[p], id)
	}
	found := make([][]Document, len(ps.keys))
	err = ps.each(func(p int) (err error) {
		for ids := byPart[p]; len(ids) > 0 && err == nil; {
			var some []Document
			some, err = ps.get(ctx, p, collection, ids[:min(mostIDs, len(ids))])
			found[p] = append(found[p], some...)
			ids = ids[min(mostIDs, len(ids)):]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	documents := make([]Document, 0, len(ids))
	for _, id := range ids {
		p := ps.of(collection, id)
		if f := found[p]; len(f) > 0 && f[0].ID == id {
			documents, found[p] = append(documents, f[0]), f[1:]
		}
	}
	return documents, nil
}

// get reads live documents of one shard, in the order of the ids.
func (ps *shards) get(ctx context.Context, p int, collection string, ids []string) ([]Document, error) {
	args := make([]any, 1, 1+len(ids))
	args[0] = collection
	for _, id := range ids {
		args = append(args, id)
	}
	view, reply, err := ps.ask(ctx, getScript, p, collection, nil, args)
	if err != nil {
		return nil, err
	}
	var found []Document
	for i, values := 0, reply.List(getValues); i < len(ids); i++ {
		if !values.Has(i) {
			continue
		}
		d, ok, err := view.document(ids[i], values.Str(i))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// Config reads a collection's configuration. If that was never configured, the error is an [ErrNoCollection], unless
// collections are open: then TTL is off.
func (r *Reader) Config(ctx context.Context, collection string) (wire.Config, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.Config{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return wire.Config{}, err
	}
	view, err := ps.view(ctx, 0, collection)
	return view.config.Wire(), err
}
