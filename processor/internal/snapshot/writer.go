package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	chunkBytes = 1 << 20 // before compression; the last entry may exceed it
	// roomFor is how many chunks wait while a scan pauses, and the changes of the shard may take as many
	// again several times over. What is beyond that means that the store is too slow.
	roomFor    = 2
	mostChunks = 16

	attempts       = 4 // to store or to read an object
	attemptTimeout = 20 * time.Second
	attemptPause   = 500 * time.Millisecond
)

// errSlow: the store does not take the changes of a shard as fast as they come.
var errSlow = errors.New("the store of snapshots is slower than the changes of the shard")

// errAbandoned: the owner of the shard has not finished the snapshot.
var errAbandoned = errors.New("the snapshot was abandoned")

// Writer writes a snapshot of a shard. The owner of the shard calls its methods, which do
// not block: the chunks are stored in the background. After a failure the methods do nothing.
type Writer struct {
	buffer    []byte
	documents uint64
	manifest  *Manifest // once it is finished
	ended     bool

	chunks chan []byte // closed once the snapshot is finished or abandoned
	cause  atomic.Pointer[error]
}

func newWriter() *Writer {
	return &Writer{chunks: make(chan []byte, mostChunks)}
}

// Room reports whether there is room for more scanned documents. Changes of the shard are
// added whether there is or not.
func (w *Writer) Room() bool { return len(w.chunks) < roomFor }

// Add adds an entry.
func (w *Writer) Add(e Entry) {
	if w.ended || w.Failed() {
		return
	}
	if e.Kind == Put {
		w.documents++
	}
	w.buffer = appendEntry(w.buffer, e)
	if len(w.buffer) < chunkBytes {
		return
	}
	select {
	case w.chunks <- w.buffer:
		w.buffer = make([]byte, 0, chunkBytes+chunkBytes/8)
	default:
		w.fail(errSlow)
	}
}

// Failed reports whether the snapshot was given up.
func (w *Writer) Failed() bool { return w.cause.Load() != nil }

// Finish ends a snapshot. What is left goes on in the background. The caller gives the state of
// the shard; Finish completes the manifest.
func (w *Writer) Finish(m Manifest) { w.end(&m) }

// Abandon gives a snapshot up. It counts as little as if it had not begun.
func (w *Writer) Abandon(why error) {
	w.fail(fmt.Errorf("%w: %w", errAbandoned, why))
	w.end(nil)
}

func (w *Writer) end(m *Manifest) {
	if !w.ended {
		w.ended, w.manifest = true, m
		close(w.chunks)
	}
}

// fail notes the first failure.
func (w *Writer) fail(why error) { w.cause.CompareAndSwap(nil, &why) }

// err is the first failure, nil if there was none.
func (w *Writer) err() error {
	if cause := w.cause.Load(); cause != nil {
		return *cause
	}
	return nil
}

// run stores what the owner adds, until it finishes or fails.
func (s *Store) run(ctx context.Context, w *Writer, r record, begun time.Time) (wire.Generation, error) {
	g, err := s.write(ctx, w, r, begun)
	if err != nil {
		w.fail(err)
		return g, w.err() // which may be the cause of err
	}
	return g, nil
}

func (s *Store) write(ctx context.Context, w *Writer, r record, begun time.Time) (g wire.Generation, err error) {
	generation := r.Claimed
	var chunks []Chunk
	put := func(content []byte) error {
		if err := s.hook.At(crash.BeforeChunk); err != nil {
			return err
		}
		object := compress(content)
		name := objectName(s.shard, generation, strconv.Itoa(len(chunks)))
		if err := s.put(ctx, name, object); err != nil {
			return err
		}
		chunks = append(chunks, Chunk{Name: name, Bytes: len(object), SHA256: hash(object)})
		return s.hook.At(crash.AfterChunk)
	}
	for open := true; open; {
		var chunk []byte
		select {
		case chunk, open = <-w.chunks:
		case <-ctx.Done():
			return g, context.Cause(ctx)
		}
		if err := w.err(); err != nil {
			return g, err
		}
		if open {
			if err := put(chunk); err != nil {
				return g, err
			}
		}
	}
	if len(w.buffer) > 0 {
		if err := put(w.buffer); err != nil {
			return g, err
		}
	}
	m := w.manifest
	m.Format, m.Log, m.Shard, m.Generation = wire.Format, s.log, s.shard, generation
	m.Documents, m.Chunks, m.Bytes = w.documents, chunks, 0
	for _, c := range chunks {
		m.Bytes += uint64(c.Bytes)
	}
	m.Taken = time.Now().UnixMilli()
	if g, err = s.putManifest(ctx, m, begun); err != nil {
		return g, err
	}
	if err := s.hook.At(crash.BeforeRecord); err != nil {
		return g, err
	}
	return g, s.add(ctx, r, g)
}

// putManifest stores a manifest, and reads the whole snapshot back.
func (s *Store) putManifest(ctx context.Context, m *Manifest, begun time.Time) (g wire.Generation, err error) {
	text, err := json.Marshal(m)
	if err != nil {
		return g, err
	}
	if err := s.hook.At(crash.BeforeManifest); err != nil {
		return g, err
	}
	object := compress(text)
	g = wire.Generation{
		Generation: m.Generation, Manifest: objectName(m.Shard, m.Generation, "manifest"), SHA256: hash(object),
		Offset: m.Offset, Configured: m.Configured, Documents: m.Documents, Bytes: m.Bytes, Begun: begun.UnixMilli(),
		Taken: m.Taken,
	}
	if err := s.put(ctx, g.Manifest, object); err != nil {
		return g, err
	}
	if err := s.hook.At(crash.AfterManifest); err != nil {
		return g, err
	}
	stored, err := s.manifest(ctx, g)
	if err == nil {
		err = s.Verify(ctx, stored)
	}
	if err != nil {
		return g, fmt.Errorf("read the snapshot back: %w", err)
	}
	return g, nil
}

// put stores an object.
func (s *Store) put(ctx context.Context, name string, object []byte) error {
	err := again(ctx, func(ctx context.Context) error { return s.objects.Put(ctx, name, object) })
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	return nil
}

// again makes a request of the object store, and repeats it a few times if it fails. A server that has
// just lost its leader does not answer, and soon another one does; and an answer is lost with the
// connection.
func again(ctx context.Context, request func(context.Context) error) (err error) {
	for attempt := range attempts {
		if attempt > 0 && !backoff.Wait(ctx, attemptPause<<attempt) {
			return err
		}
		trying, cancel := context.WithTimeout(ctx, attemptTimeout)
		err = request(trying)
		cancel()
		if err == nil {
			return nil
		}
	}
	return err
}

// errNotBegun: the owner has not begun the snapshot in time.
var errNotBegun = errors.New("the owner of the shard did not begin a snapshot")

// beginWithin is how long an owner may take to begin. One that rebuilds the shard, or that fails,
// does not begin.
const beginWithin = 30 * time.Second

// Desk passes orders from the one who wants snapshots to the owner, who takes them. There is one
// order at a time.
type Desk struct {
	store *Store
	order atomic.Pointer[Writer]
}

// NewDesk makes a desk of a store.
func NewDesk(s *Store) *Desk { return &Desk{store: s} }

// Store is the store of the snapshots; nil if there is no desk.
func (d *Desk) Store() *Store {
	if d == nil {
		return nil
	}
	return d.store
}

// Order is the writer of a snapshot that the owner is to take now; nil if none is wanted. It
// hands each out once. The owner calls it between steps.
func (d *Desk) Order() *Writer {
	if d == nil {
		return nil
	}
	w := d.order.Load()
	if w == nil || !d.order.CompareAndSwap(w, nil) {
		return nil
	}
	return w
}

// Take orders a snapshot, and waits until it is stored. begun is the present instant,
// by the caller's clock. Only one goroutine may call Take at a time.
func (d *Desk) Take(ctx context.Context, begun time.Time) (wire.Generation, error) {
	r, err := d.store.claim(ctx)
	if err != nil {
		return wire.Generation{}, err
	}
	w := newWriter()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(beginWithin, func() {
		if d.order.CompareAndSwap(w, nil) {
			cancel(errNotBegun)
		}
	})
	defer late.Stop()
	d.order.Store(w)
	defer d.order.CompareAndSwap(w, nil)
	return d.store.run(ctx, w, r, begun)
}
