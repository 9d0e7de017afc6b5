package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// gather is how long a partition that has to read again waits for others that have to.
const gather = 50 * time.Millisecond

// CatchUp reads the log for one partition whenever that is away: it has to go back, or
// did not keep up. It reads the whole log from there, and puts the messages of the
// partition into its inbox, until it has come to the position of the main reader.
func (r *Reader) CatchUp(ctx context.Context, partition int) error {
	b := r.inboxes[partition]
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.left:
		}
		if !backoff.Wait(ctx, gather) {
			return nil
		}
		if r.mostAreHungry() {
			r.Rewind()
		}
		for failed := false; b.isAway() && ctx.Err() == nil; {
			last, times := b.from()
			err := r.catchUpOnce(ctx, partition, last, times)
			if ctx.Err() != nil {
				return nil
			}
			if !b.isReading(times) {
				continue // the log may have been truncated, as nobody needs this reading any more
			}
			if errors.Is(err, streams.ErrLogTruncated) {
				b.truncate(err)
				continue
			}
			if streams.AsRefusal(err) != nil {
				return fmt.Errorf("partition %d: %w", partition, err)
			}
			if err != nil && !failed {
				r.logger.Warn("a partition that reads the log for itself was interrupted", slog.Int("partition", partition), slog.Any("error", err))
			}
			if failed = err != nil; failed && !backoff.Wait(ctx, retryAfter) {
				return nil
			}
		}
	}
}

// catchUpOnce reads after a sequence until the partition is no longer away, or the reading is
// interrupted. times is that of the inbox (see from).
func (r *Reader) catchUpOnce(ctx context.Context, partition int, last, times uint64) error {
	b := r.inboxes[partition]
	return r.readLog(ctx, &reading{
		last: last, logTime: &logTime{}, first: partition, end: partition + 1,
		wanted: true, // there is one for I3, at least
		begun: func(end uint64) bool {
			return last < end || b.advance(fold.Position{Seq: last}, times)
		},
		put: func(_ int, m *fold.Message, over func() bool) bool { return b.fill(m, times, over) },
		passed: func(at fold.Position, meta *nats.MsgMetadata) bool {
			more := b.advance(at, times)
			if !more || meta.NumPending == 0 {
				b.Wake()
			}
			return more
		},
	})
}
