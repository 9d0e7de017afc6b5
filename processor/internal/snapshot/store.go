package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Kept is how many generations of a shard count: the newest, and the one that is used if the
// newest is damaged.
const Kept = 2

// Store stores the snapshots of a shard.
//
//   - O1: A record names only generations that were read back and verified.
//   - O2: No object of a generation that a record names is removed.
//   - O3: What no record names is removed when the next snapshot begins, at the
//     latest.
//
// The names of a generation's objects begin with shard and generation. An owner takes a number
// that nobody had before, so it alone writes under these names.
type Store struct {
	objects Objects
	records Records
	log     string
	shard   int
	hook    crash.Hook
}

// NewStore makes the store of the snapshots of a shard, whose log has an identity.
func NewStore(objects Objects, records Records, shard int, log string, hook crash.Hook) *Store {
	return &Store{objects: objects, records: records, log: log, shard: shard, hook: hook}
}

// Recorded are the generations that the record names, newest first.
func (s *Store) Recorded(ctx context.Context) ([]wire.Generation, error) {
	r, err := s.record(ctx)
	return r.Generations, err
}

// Forget makes a record name no generation, unless it names one that is newer than another: then somebody has stored
// that since. The objects are removed when the next snapshot begins.
func (s *Store) Forget(ctx context.Context, newest uint64) error {
	r, err := s.record(ctx)
	if err != nil || len(r.Generations) == 0 || r.Generations[0].Generation > newest {
		return err
	}
	r.Generations = nil
	return s.change(ctx, &r)
}

// Generations are the manifests of the generations that the record names, newest
// first. A manifest that cannot be read is left out, and the error names it. So there may be both
// manifests and an error.
func (s *Store) Generations(ctx context.Context) ([]*Manifest, error) {
	recorded, err := s.Recorded(ctx)
	if err != nil {
		return nil, err
	}
	var all []*Manifest
	var errs []error
	for _, g := range recorded {
		m, err := s.manifest(ctx, g)
		if err != nil {
			errs = append(errs, fmt.Errorf("generation %d: %w", g.Generation, err))
			continue
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

// manifest reads the manifest of a generation.
func (s *Store) manifest(ctx context.Context, g wire.Generation) (*Manifest, error) {
	object, err := s.read(ctx, g.Manifest, g.SHA256)
	if err != nil {
		return nil, err
	}
	text, err := decompress(nil, object)
	if err != nil {
		return nil, err
	}
	if err := wire.CheckStored("its manifest", text); errors.Is(err, wire.ErrFormat) {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, g.Manifest, err)
	}
	if !s.records.Is(m.Log, m.Offset) || m.Shard != s.shard || m.Generation != g.Generation || m.Offset != g.Offset {
		return nil, fmt.Errorf("%w: %s is the manifest of another snapshot", ErrDamaged, g.Manifest)
	}
	return m, nil
}

// read reads an object and compares its hash.
func (s *Store) read(ctx context.Context, name, sha256 string) (object []byte, err error) {
	err = again(ctx, func(ctx context.Context) (err error) {
		object, err = s.objects.Get(ctx, name)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case object == nil:
		return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, name)
	case hash(object) != sha256:
		return nil, fmt.Errorf("%w: %s has another hash than when it was stored", ErrDamaged, name)
	}
	return object, nil
}

// Verify reads all chunks of a snapshot, and compares their hashes. ErrDamaged means that it
// cannot be used; after any other error it is not known.
func (s *Store) Verify(ctx context.Context, m *Manifest) error {
	for _, c := range m.Chunks {
		if _, err := s.read(ctx, c.Name, c.SHA256); err != nil {
			return err
		}
	}
	return nil
}

// Entries are the entries of a snapshot, in their order. The value of one is valid until the next
// is taken. They end with the first error.
func (s *Store) Entries(ctx context.Context, m *Manifest) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var chunk []byte
		for _, c := range m.Chunks {
			object, err := s.read(ctx, c.Name, c.SHA256)
			if err == nil {
				chunk, err = decompress(chunk[:cap(chunk)], object)
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for e, err := range entries(chunk) {
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// claim takes the number of a new generation, and removes what does not count.
func (s *Store) claim(ctx context.Context) (r record, err error) {
	if r, err = s.record(ctx); err != nil {
		return r, err
	}
	r.Claimed++
	if err := s.change(ctx, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errSuperseded, err)
	}
	return r, s.sweep(ctx, r)
}

// add names a generation in the record that its claim has left, and removes what does not count
// any more.
func (s *Store) add(ctx context.Context, r record, g wire.Generation) error {
	r.Generations = append([]wire.Generation{g}, r.Generations[:min(len(r.Generations), Kept-1)]...)
	if err := s.change(ctx, &r); err != nil {
		return fmt.Errorf("%w: %w", errSuperseded, err)
	}
	if err := s.hook.At(crash.AfterRecord); err != nil {
		return err
	}
	return s.sweep(ctx, r)
}

// Sweep removes what the record does not name. It is for a mirror: what the first region removes
// stays in it.
func (s *Store) Sweep(ctx context.Context) error {
	r, err := s.record(ctx)
	if err != nil {
		return err
	}
	return s.sweep(ctx, r)
}

// sweep removes the objects of the shard that a record of the caller's own does not name. It
// leaves what is newer: another owner has begun that, and may come to record it (O2).
func (s *Store) sweep(ctx context.Context, r record) error {
	dead, err := s.dead(ctx, r)
	if err != nil {
		return err
	}
	for g := range dead {
		if err := s.objects.Remove(ctx, generationName(s.shard, g)); err != nil {
			return fmt.Errorf("remove old snapshots: %w", err)
		}
	}
	return nil
}

// dead are the generations of the shard that have objects, and that a record neither names nor leaves
// to a newer owner.
func (s *Store) dead(ctx context.Context, r record) (map[uint64]bool, error) {
	counts, dead := make(map[uint64]bool), make(map[uint64]bool)
	for _, g := range r.Generations {
		counts[g.Generation] = true
	}
	all, err := s.objects.Names(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the objects of snapshots: %w", err)
	}
	for _, name := range all {
		if p, g, ok := parseName(name); ok && p == s.shard && g <= r.Claimed && !counts[g] {
			dead[g] = true
		}
	}
	return dead, nil
}

// Leftovers reports whether there are objects of the shard that its record does not name.
func (s *Store) Leftovers(ctx context.Context) (bool, error) {
	r, err := s.record(ctx)
	if err != nil {
		return false, err
	}
	dead, err := s.dead(ctx, r)
	return len(dead) > 0, err
}

// generationName begins the names of a generation's objects.
func generationName(shard int, generation uint64) string {
	return strconv.Itoa(shard) + "." + strconv.FormatUint(generation, 10)
}

// objectName is the name of a generation's object.
func objectName(shard int, generation uint64, part string) string {
	return generationName(shard, generation) + "." + part
}

// parseName is what objectName has made the name of.
func parseName(name string) (shard int, generation uint64, ok bool) {
	first, rest, _ := strings.Cut(name, ".")
	second, _, ok := strings.Cut(rest, ".")
	shard, err := strconv.Atoi(first)
	generation, err2 := strconv.ParseUint(second, 10, 64)
	return shard, generation, ok && err == nil && err2 == nil
}

// errSuperseded is the error of a snapshot that does not count, because another owner has changed the record of the
// shard meanwhile.
var errSuperseded = errors.New("another owner has changed the record of the shard's snapshots")

// Records is where the records of the shards are stored: a value per key, changed by
// compare-and-set.
type Records interface {
	// Value is the value of a key and its revision: nil if there is none.
	Value(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Update stores a value in place of the one at a revision; 0 if there is none.
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Is reports whether a snapshot of the log with an identity, up to an offset, is of the log of the records.
	Is(log string, offset uint64) bool
}

// record is the record of a shard, and the revision at which it was read.
type record struct {
	wire.SnapshotRecord
	revision uint64
}

// record reads the record.
func (s *Store) record(ctx context.Context) (r record, err error) {
	value, revision, err := s.records.Value(ctx, wire.SnapshotKey(s.shard))
	if err != nil {
		return r, fmt.Errorf("read the record of the snapshots: %w", err)
	}
	if value != nil {
		if err := wire.CheckStored(fmt.Sprintf("the record of the snapshots of shard %d", s.shard), value); err != nil {
			return r, err
		}
		if err := json.Unmarshal(value, &r.SnapshotRecord); err != nil {
			return r, fmt.Errorf("read the record of the snapshots: %w", err)
		}
	}
	if !s.records.Is(r.Log, 0) { // they are of a log that was removed
		r.SnapshotRecord = wire.SnapshotRecord{Claimed: r.Claimed}
	}
	r.Format, r.Log, r.revision = wire.Format, s.log, revision
	return r, nil
}

// change stores a record in place of the one that was read.
func (s *Store) change(ctx context.Context, r *record) error {
	value, err := json.Marshal(r.SnapshotRecord)
	if err != nil {
		return err
	}
	revision, err := s.records.Update(ctx, wire.SnapshotKey(s.shard), value, r.revision)
	if err != nil {
		return fmt.Errorf("store the record of the snapshots: %w", err)
	}
	r.revision = revision
	return nil
}

// Manifest describes a snapshot that was finished.
type Manifest struct {
	Format     int    `json:"format"` // see wire.Format
	Log        string `json:"log"`    // identity of the log
	Shard      int    `json:"shard"`
	Generation uint64 `json:"generation"` // 1 for the first of a shard

	// The state of the shard. Offset is the sequence up to which the log was applied.
	Offset     uint64            `json:"offset"`
	Watermark  int64             `json:"watermark"` // log time at the offset, Unix milliseconds
	Stamp      store.Stamp       `json:"stamp"`
	Configured uint64            `json:"configured,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"` // as the stored shard has them
	// Published is the position up to which all outputs of the shard were published. From is a
	// place in the stream of events, behind which it stores the outputs that are caused after that;
	// Last is where it has the last output that was published when the snapshot was finished.
	Published     uint64       `json:"published"`
	PublishedTime int64        `json:"publishedTime"`
	From          events.Place `json:"from,omitzero"`
	Last          events.Place `json:"last,omitzero"`

	Documents uint64  `json:"documents"` // entries of the kind Put
	Bytes     uint64  `json:"bytes"`     // of the chunks
	Taken     int64   `json:"taken"`     // when it was finished, Unix milliseconds
	Chunks    []Chunk `json:"chunks"`
}

// Chunk is a part of a snapshot: an object of the store.
type Chunk struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}
