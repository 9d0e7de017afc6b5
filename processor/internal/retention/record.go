package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

const format = 1

// kept is what the keeper of a shard has done. It is stored in the bucket of checkpoints, for the next
// owner of the shard. If it is lost, the keeper does it again.
type kept struct {
	Format int    `json:"format"`
	Log    edges  `json:"log,omitempty"`
	Events edges  `json:"events,omitempty"`
	ID     string `json:"id"` // of the log
	// Turn is from when on the log has no room for a filling, and stores messages in place of others.
	Turn edge `json:"turn,omitzero"`
	// Objects are the edges of the snapshots.
	Objects edges `json:"objects,omitempty"`
	Redis   int64 `json:"redis"`  // when Redis began to write its files anew, Unix milliseconds
	Within  int64 `json:"within"` // the promise, milliseconds
	Since   int64 `json:"since"`  // from when on it is kept, Unix milliseconds
	// Stirred is when a document of the shard may have died last, Unix milliseconds.
	Stirred int64 `json:"stirred,omitempty"`
	// Rested is an instant for each place, Unix milliseconds: what had died before it had gone from there.
	Rested map[string]int64 `json:"rested,omitempty"`
	Floors []floor          `json:"floors,omitempty"` // of the last generations, if there are several shards
}

// turn notes an edge of a log that has no room for a filling: what it has stored since the last turn has
// ended the file of then.
func (k *kept) turn(info *jetstream.StreamInfo) {
	now := edge{At: info.TimeStamp.UnixMilli(), Seq: info.State.LastSeq}
	if k.Turn.At != 0 {
		if !streams.Turned(info, k.Turn.Seq) {
			return
		}
		k.Log = k.Log.add(edge{At: k.Turn.At, Seq: now.Seq})
	}
	k.Turn = now
}

// keyOf is the key of what the keeper of a shard has done.
func keyOf(shard int) string { return "retention." + strconv.Itoa(shard) }

// load reads what the keeper has done. A promise that is new, or shorter than before, begins now.
func (k *Keeper) load(ctx context.Context, info *jetstream.StreamInfo) (*kept, error) {
	value, _, err := k.Log.Value(ctx, keyOf(k.Names.Shard))
	if err != nil {
		return nil, fmt.Errorf("read the state of the retention: %w", err)
	}
	have := &kept{}
	if value != nil {
		if err := json.Unmarshal(value, have); err != nil {
			return nil, fmt.Errorf("read the state of the retention: %w", err)
		}
	}
	if have.ID != k.Log.ID() || have.Format != format {
		have = &kept{Format: format, ID: k.Log.ID()}
	}
	if within := k.within.Milliseconds(); have.Within != within {
		if have.Within == 0 || have.Within > within {
			have.Since = info.TimeStamp.UnixMilli()
		}
		have.Within = within
	}
	return have, nil
}

// save stores what the keeper has done. Two owners at the same time may take turns in it: each has done
// what it stores.
func (k *Keeper) save(ctx context.Context, next kept) error {
	value, err := json.Marshal(next)
	if err == nil {
		_, err = k.Log.Streams.Checkpoints.Put(ctx, keyOf(k.Names.Shard), value)
	}
	if err != nil {
		return fmt.Errorf("store the state of the retention: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.stored = &next, next
	return nil
}
