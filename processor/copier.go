package processor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	copyEvery  = 500 * time.Millisecond
	copyAfter  = time.Second // since the shard has last applied one of these messages
	copyAtOnce = 100         // messages
)

// copier copies messages of the stream of configurations into the log, if the log lacks them. NATS
// sources that stream within milliseconds. But the log drops a message as a duplicate if it has the
// Nats-Msg-Id of a write, or of an earlier configuration. Without the copier, this shard would
// then decide by another configuration than the others.
//
// A copy does no harm if the log has the message already: the owner applies the messages of
// that stream in their order, and each once (fold.Progress.OutOfTurn).
type copier struct {
	js      jetstream.JetStream
	link    *streams.Link
	streams *streams.Streams
	session *session
	log     wire.Log
	logger  *slog.Logger
}

// run copies until ctx is done.
func (c *copier) run(ctx context.Context) {
	if c.streams.Configs == nil {
		return
	}
	var have seenAt // the last message of the stream that the shard has applied
	for backoff.Wait(ctx, copyEvery) {
		s := c.session
		stands := have.stands(s.status.Configured.Load(), true, time.Now())
		read := s.queue.ReadUpTo().Seq // 0 while the reading begins anew
		if read == 0 || s.queue.Backlog.Pending() > 0 || s.status.Applied.Load() < read || stands < copyAfter {
			continue
		}
		if err := c.copy(ctx, have.value+1); err != nil && ctx.Err() == nil {
			c.logger.Warn("cannot copy missing configurations to the log, retrying", slog.Any("error", err))
		}
	}
}

// copy copies the messages from a sequence on, if there are any.
func (c *copier) copy(ctx context.Context, from uint64) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	return c.link.Query(ctx, func(ctx context.Context) error {
		last, err := c.streams.LastConfig(ctx)
		if err != nil || last < from {
			return err
		}
		c.logger.Info("copying missing configurations to the log", slog.Uint64("from", from), slog.Uint64("to", last))
		for seq := from; seq <= min(last, from+copyAtOnce-1); seq++ {
			m, err := c.streams.Copy(ctx, c.log, seq)
			if err == nil {
				_, err = c.js.PublishMsg(ctx, m)
			}
			if err != nil {
				return fmt.Errorf("copy message %d of the stream of configurations: %w", seq, err)
			}
		}
		return nil
	})
}
