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

// Settled is a sequence of the stream of events, and a place in the log of each shard. Whatever the stream stores up to
// it, and whatever follows from messages up to these places, is committed: a reader of the documents sees its effect.
// The places are those of the checkpoints, so they are about a second old.
func Settled(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, shards int) (reply wire.SettledReply, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return reply, err
	}
	bucket, err := js.KeyValue(ctx, prefix.CheckpointBucket())
	if err != nil {
		return reply, fmt.Errorf("read the checkpoints: %w", err)
	}
	reply.Settled = math.MaxUint64
	for i := range shards {
		var c shard.Checkpoint
		entry, err := bucket.Get(ctx, shard.CheckpointKey(i))
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound): // none is stored yet
		case err != nil:
			return reply, fmt.Errorf("read the checkpoint of shard %d: %w", i, err)
		default:
			if err := json.Unmarshal(entry.Value(), &c); err != nil {
				return reply, fmt.Errorf("read the checkpoint of shard %d: %w", i, err)
			}
		}
		reply.Settled = min(reply.Settled, c.From.Seq)
		reply.Shards = append(reply.Shards, wire.SettledShard{Seq: c.Seq, Watermark: wire.Time(c.Watermark)})
	}
	return reply, nil
}
