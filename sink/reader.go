package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Errors of a Reader, to be told apart with errors.Is. Besides, a malformed
// collection or id is a wire.ErrInvalidName, and an error of Redis is passed on.
var (
	// ErrNotFound: there is no such document, or it is expired.
	ErrNotFound = errors.New("document not found")
	// ErrUnavailable: the partition is being rebuilt or was never initialised,
	// or the index that the answer needs is being built. Try again later.
	ErrUnavailable = errors.New("not available")
	// ErrInvalidRequest: a limit, a continuation or a forecast is out of range.
	ErrInvalidRequest = errors.New("invalid request")
)

// Document is a live document as it was read.
type Document struct {
	ID        string
	Etag      wire.Etag
	Ts        wire.Time
	ExpiresAt *wire.Time // nil if it never expires
	Body      []byte
}

// Reader reads documents. What it judges by (the document, its collection's
// configuration, the partition's log time and the clock of the Redis server) it
// reads at one moment, in one round trip, so that all readers agree:
//
//   - R1: a document is never returned at or after its deadline, by the later of
//     the server's clock and the log time.
//   - R2: a partition that lacks something is ErrUnavailable, and so is one that
//     is behind what this Reader has seen of it: never a document not found.
//
// It reads by EVALSHA_RO where the server lets it, and else by EVALSHA: by the count of the
// former (INFO commandstats) a processor sees that documents are read, and gives way.
//
// It is safe for concurrent use.
type Reader struct {
	scripts *combiner
	parts   []keyspace
	seen    []seen
	configs sync.Map // raw configuration → Config
	known   atomic.Int32
}

// seen is the furthest state that a Reader saw of a partition.
type seen struct {
	mu sync.Mutex
	position
}

// position is how far a log was applied.
type position struct {
	log    string
	offset uint64
}

// before says whether a position is an earlier one of the same log.
func (a position) before(b position) bool { return a.log == b.log && a.offset < b.offset }

// ReaderOptions say what a Reader reads.
type ReaderOptions struct {
	Prefix     wire.Prefix // wire.DefaultPrefix if empty
	Partitions int         // DefaultPartitions if 0; must be what the log was created with
}

// NewReader makes a Reader on a Redis (or Redis Cluster) that a lapse processor
// writes to.
func NewReader(client redis.UniversalClient, opts ReaderOptions) (*Reader, error) {
	if opts.Prefix == "" {
		opts.Prefix = wire.DefaultPrefix
	}
	if opts.Partitions == 0 {
		opts.Partitions = DefaultPartitions
	}
	if _, err := wire.ParsePrefix(string(opts.Prefix)); err != nil {
		return nil, err
	}
	if opts.Partitions < 1 || opts.Partitions > MaxPartitions {
		return nil, fmt.Errorf("%d partitions: allowed are 1 to %d", opts.Partitions, MaxPartitions)
	}
	r := &Reader{scripts: &combiner{client: client, most: readFlights}, seen: make([]seen, opts.Partitions)}
	r.scripts.reads.Store(true)
	for p := range opts.Partitions {
		r.parts = append(r.parts, newKeyspace(opts.Prefix, p, opts.Partitions))
	}
	return r, nil
}

// head is what a partition is judged by.
type head struct {
	now    int64 // the later of the server's clock and the log time
	config Config
	raw    string // config as it is stored
	docs   int64  // how many documents the collection has
	size   string // how many documents, and members of each index, it was left with
}

// ask runs a script that takes the state, the configuration and the documents, then
// more keys, and the collection, then more arguments. It refuses a partition that
// is not fit to be read.
func (r *Reader) ask(ctx context.Context, script *redis.Script, p int, collection string, more []string, args ...any) (head, reply, error) {
	k := r.parts[p]
	keys := append([]string{k.state(), k.config(), k.docs(collection)}, more...)
	// An answer can be overtaken by a later one on its way: it must not be behind
	// what was seen before it was asked for.
	seen := r.seen[p].get()
	v, err := run(ctx, r.scripts, script, keys, append([]any{collection}, args...)...)
	if err != nil {
		return head{}, nil, fmt.Errorf("read partition %d: %w", p, err)
	}
	h, err := r.head(p, collection, v.list(0), seen)
	return h, v, err
}

// head reads the head of a script's reply.
func (r *Reader) head(p int, collection string, v reply, seen position) (head, error) {
	unavailable := func(why string) error {
		return fmt.Errorf("%w: partition %d %s", ErrUnavailable, p, why)
	}
	clock, state := v.list(0), v.list(1)
	if !state.has(0) {
		return head{}, unavailable("was not initialised, or was lost and is not yet rebuilt")
	}
	if f := state.str(1); f != format {
		return head{}, fmt.Errorf("%w: partition %d has format %q, and this version of lapse has %q", ErrForeign, p, f, format)
	}
	if n := state.str(2); n != strconv.Itoa(len(r.parts)) {
		return head{}, fmt.Errorf("%w: the log has %s partitions, and this reader was made for %d", ErrForeign, n, len(r.parts))
	}
	if state.str(6) != "" {
		return head{}, unavailable("is being rebuilt")
	}
	at := position{log: state.str(3), offset: uint64(state.int(4))}
	if at.before(seen) {
		return head{}, unavailable("went back to an older state, and is to be rebuilt")
	}
	r.seen[p].advance(at)
	h := head{raw: v.str(2), docs: v.int(3), size: state.str(7)}
	if h.size == "" {
		h.size = "0 0 0"
	}
	if docs, _, _ := strings.Cut(h.size, " "); docs != strconv.FormatInt(h.docs, 10) {
		return head{}, unavailable("has lost documents of collection " + collection)
	}
	h.now = max(clock.int(0)*1000+clock.int(1)/1000, state.int(5))
	var err error
	if h.config, err = r.config(h.raw); err != nil {
		return head{}, err
	}
	if state.int(8) != v.int(4) {
		return head{}, unavailable("has lost configurations")
	}
	return h, nil
}

func (s *seen) get() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// advance notes a position, unless it is behind what was seen.
func (s *seen) advance(at position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.before(s.position) {
		s.position = at
	}
}

// config decodes a configuration, and remembers some.
func (r *Reader) config(raw string) (Config, error) {
	const most = 1024
	if c, ok := r.configs.Load(raw); ok {
		return c.(Config), nil
	}
	c, err := decodeConfig(raw)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if r.known.Add(1) > most {
		r.configs.Clear()
		r.known.Store(1)
	}
	r.configs.Store(raw, c)
	return c, nil
}

// document judges a stored value; ok = false if it is expired.
func (h head) document(id, value string) (d Document, ok bool, err error) {
	hdr, body, err := parseValue(value)
	if err != nil {
		return d, false, fmt.Errorf("document %q: %w: %w", id, ErrForeign, err)
	}
	if h.config.History.Expired(hdr.Ts, hdr.TTL, h.now) {
		return d, false, nil
	}
	d = Document{ID: id, Etag: wire.Etag(hdr.Etag), Ts: wire.Time(hdr.Ts), Body: []byte(body)}
	if at, expires := ttlrules.Deadline(hdr.Ts, hdr.TTL, h.config.History.Current()); expires {
		d.ExpiresAt = (*wire.Time)(&at)
	}
	return d, true, nil
}

// Get reads one document.
func (r *Reader) Get(ctx context.Context, collection, id string) (Document, error) {
	if err := check(collection, id); err != nil {
		return Document{}, err
	}
	p := wire.Partition(len(r.parts), collection, id)
	found, err := r.get(ctx, p, collection, []string{id})
	if err != nil {
		return Document{}, err
	}
	if len(found) == 0 {
		return Document{}, ErrNotFound
	}
	return found[0], nil
}

// GetMany reads many documents of a collection, in the order asked for; those
// that are not there are left out.
func (r *Reader) GetMany(ctx context.Context, collection string, ids []string) ([]Document, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return nil, err
	}
	byPart := make([][]string, len(r.parts))
	for _, id := range ids {
		if err := wire.CheckID(id); err != nil {
			return nil, err
		}
		p := wire.Partition(len(r.parts), collection, id)
		byPart[p] = append(byPart[p], id)
	}
	found := make([][]Document, len(r.parts))
	err := r.each(func(p int) (err error) {
		const most = 4000 // what get.lua takes
		for ids := byPart[p]; len(ids) > 0 && err == nil; {
			var some []Document
			some, err = r.get(ctx, p, collection, ids[:min(most, len(ids))])
			found[p] = append(found[p], some...)
			ids = ids[min(most, len(ids)):]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	documents := make([]Document, 0, len(ids))
	for _, id := range ids {
		p := wire.Partition(len(r.parts), collection, id)
		if f := found[p]; len(f) > 0 && f[0].ID == id {
			documents, found[p] = append(documents, f[0]), f[1:]
		}
	}
	return documents, nil
}

func (r *Reader) get(ctx context.Context, p int, collection string, ids []string) ([]Document, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	h, v, err := r.ask(ctx, getScript, p, collection, nil, args...)
	if err != nil {
		return nil, err
	}
	var found []Document
	for i, values := 0, v.list(1); i < len(ids); i++ {
		if !values.has(i) {
			continue
		}
		d, ok, err := h.document(ids[i], values.str(i))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// Config reads a collection's configuration. One that was never configured has
// TTL off.
func (r *Reader) Config(ctx context.Context, collection string) (wire.Config, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.Config{}, err
	}
	var configs = make([]wire.Config, len(r.parts))
	err := r.each(func(p int) error {
		h, err := r.readHead(ctx, p, collection)
		configs[p] = h.config.Wire()
		return err
	})
	if err != nil {
		return wire.Config{}, err
	}
	c := configs[0]
	for _, other := range configs {
		c.IndexBuilding = c.IndexBuilding || other.IndexBuilding
	}
	return c, nil
}

func (r *Reader) readHead(ctx context.Context, p int, collection string) (head, error) {
	h, _, err := r.ask(ctx, getScript, p, collection, nil)
	return h, err
}

// each calls do for every partition, some at a time, and returns the first error.
func (r *Reader) each(do func(p int) error) error {
	const width = 16
	errs := make([]error, len(r.parts))
	var wg sync.WaitGroup
	gate := make(chan struct{}, width)
	for p := range r.parts {
		gate <- struct{}{}
		wg.Go(func() {
			errs[p] = do(p)
			<-gate
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func check(collection, id string) error {
	if err := wire.CheckCollection(collection); err != nil {
		return err
	}
	return wire.CheckID(id)
}
