package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
				b.lack(err)
				continue
			}
			if streams.MustStop(err) {
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
	lost := r.link.Lost()
	info, messages, forget, err := r.readFrom(ctx, last)
	if err != nil {
		return err
	}
	defer forget()
	messages.Wanted = true // there is one for I3, at least
	if last >= info.State.LastSeq && !b.advance(fold.Position{Seq: last}, times) {
		return nil
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-lost:
			stop()
		case <-reading.Done():
		}
	}()
	over := func() bool { return reading.Err() != nil }
	time := logTime{}
	for {
		msg, meta, err := messages.Next(reading.Done())
		if err != nil || msg == nil {
			return err
		}
		seq := meta.Sequence.Stream
		if err := r.checkGap(reading, last, seq); err != nil {
			return err
		}
		last = seq
		if err := r.guard.Wait(reading, meta.Timestamp); err != nil {
			return nil
		}
		at := fold.Position{Seq: seq, Time: time.at(seq, meta.Timestamp.UnixMilli()), Stamp: meta.Timestamp.UnixNano()}
		r.saw(at)
		if p, global := r.decoder.Route(msg.Subject); !r.decoder.IsTick(msg.Subject) && (global || p == partition) {
			m := r.decoder.Decode(msg.Subject, headerOf(msg), msg.Data, at)
			if ctx.Err() != nil {
				return nil // perhaps it was decoded without the rules of replies
			}
			if (p == partition || m.IsControl()) && !b.fill(m, times, over) {
				return nil
			}
		}
		if !b.advance(at, times) {
			b.Wake()
			return nil
		}
		if meta.NumPending == 0 {
			b.Wake()
		}
	}
}
