package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

// Settled is a sequence of the stream of events. Whatever that stores up to it follows from messages that
// all shards have applied and committed: a reader of the documents sees their effect. It is that of the
// checkpoint that is furthest back, so it is about a second old.
func Settled(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, shards int) (uint64, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	bucket, err := js.KeyValue(ctx, prefix.CheckpointBucket())
	if err != nil {
		return 0, fmt.Errorf("read the checkpoints: %w", err)
	}
	settled := uint64(math.MaxUint64)
	for i := range shards {
		var c shard.Checkpoint
		entry, err := bucket.Get(ctx, shard.CheckpointKey(i))
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound): // none is stored yet
		case err != nil:
			return 0, fmt.Errorf("read the checkpoint of shard %d: %w", i, err)
		default:
			if err := json.Unmarshal(entry.Value(), &c); err != nil {
				return 0, fmt.Errorf("read the checkpoint of shard %d: %w", i, err)
			}
		}
		settled = min(settled, c.From.Seq)
	}
	return settled, nil
}
