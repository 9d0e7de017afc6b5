package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// checkpointer stores, once in a while, up to where everything has been said: it
// spares a rebuild the look-ups, and keeps it right when events have aged out of
// their stream. One that was not stored costs look-ups, nothing else.
type checkpointer struct {
	bucket     jetstream.KeyValue
	partitions []*partition
	logger     *slog.Logger
	stored     []uint64 // per partition
	at         func(point) error
}

// run stores checkpoints until ctx is done.
func (c *checkpointer) run(ctx context.Context) {
	for failed := false; wait(ctx, checkpointEvery); {
		err := c.runOnce(context.WithoutCancel(ctx))
		if err != nil && !failed {
			c.logger.Warn("checkpoints could not be stored", slog.Any("error", err))
		}
		failed = err != nil
	}
}

// runOnce stores the checkpoints that have moved on.
func (c *checkpointer) runOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var first error
	for i, p := range c.partitions {
		point := p.settled.Load()
		if point == nil || point.Seq <= c.stored[i] {
			continue
		}
		if err := c.store(ctx, p.id, point); err != nil {
			if first == nil {
				first = fmt.Errorf("checkpoint of partition %d: %w", p.id, err)
			}
			continue
		}
		c.stored[i] = point.Seq
	}
	return first
}

// store stores a checkpoint unless a later one is there.
func (c *checkpointer) store(ctx context.Context, partition int, point *Checkpoint) error {
	value, err := json.Marshal(point)
	if err != nil {
		return err
	}
	if err := c.at(beforeCheckpoint); err != nil {
		return err
	}
	key := checkpointKey(partition)
	entry, err := c.bucket.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		_, err = c.bucket.Create(ctx, key, value)
		return err
	}
	if err != nil {
		return err
	}
	var there Checkpoint
	if err := json.Unmarshal(entry.Value(), &there); err == nil && there.Log == point.Log && there.Seq >= point.Seq {
		return nil
	}
	if _, err = c.bucket.Update(ctx, key, value, entry.Revision()); err != nil {
		return err
	}
	return c.at(afterCheckpoint)
}
