package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed18712806/lapse/sink/wire"
)

// errSuperseded: another owner has changed the record of the shard, so a snapshot that was
// taken meanwhile does not count.
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

// Generation is a snapshot that counts.
type Generation struct {
	Generation uint64 `json:"generation"`
	Manifest   string `json:"manifest"` // name of the object
	SHA256     string `json:"sha256"`   // of that object
	Offset     uint64 `json:"offset"`
	Configured uint64 `json:"configured,omitempty"`
	Documents  uint64 `json:"documents"`
	Bytes      uint64 `json:"bytes"` // of the chunks
	Begun      int64  `json:"begun"` // Unix milliseconds
	Taken      int64  `json:"taken"` // Unix milliseconds
}

// record is what a shard has of snapshots.
type record struct {
	Format int    `json:"format"`
	Log    string `json:"log"`
	// Claimed is the greatest generation that an owner has begun. One that begins another, or
	// records its own, does so by compare-and-set. So a generation that is not newer than
	// Claimed, and that Generations does not name, never counts.
	Claimed     uint64       `json:"claimed"`
	Generations []Generation `json:"generations,omitempty"` // newest first

	revision uint64
}

// RecordKey is the key of a shard's record.
func RecordKey(shard int) string { return "snapshot." + strconv.Itoa(shard) }

// record reads the record.
func (s *Store) record(ctx context.Context) (r record, err error) {
	value, revision, err := s.records.Value(ctx, RecordKey(s.shard))
	if err != nil {
		return r, fmt.Errorf("read the record of the snapshots: %w", err)
	}
	if value != nil {
		if err := wire.CheckStored(fmt.Sprintf("the record of the snapshots of shard %d", s.shard), value); err != nil {
			return r, err
		}
		if err := json.Unmarshal(value, &r); err != nil {
			return r, fmt.Errorf("read the record of the snapshots: %w", err)
		}
	}
	if !s.records.Is(r.Log, 0) { // they are of a log that was removed
		r = record{Claimed: r.Claimed}
	}
	r.Format, r.Log, r.revision = wire.Format, s.log, revision
	return r, nil
}

// change stores a record in place of the one that was read.
func (s *Store) change(ctx context.Context, r *record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	revision, err := s.records.Update(ctx, RecordKey(s.shard), value, r.revision)
	if err != nil {
		return fmt.Errorf("store the record of the snapshots: %w", err)
	}
	r.revision = revision
	return nil
}
