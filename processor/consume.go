package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/streams"
)

// ErrLogTruncated: messages that were never applied are no longer in the log.
var ErrLogTruncated = errors.New("the log no longer reaches back far enough")

// ErrLogBehind: the log ends before what was applied.
var ErrLogBehind = errors.New("the log ends before what was applied")

// consumer reads the log, once for all partitions, and puts each message into the
// inboxes that it is for:
//
//   - C1: a partition gets every message that is for it, after the offset that it
//     asked for, once and in order.
//   - C2: position is never past a message that is not yet in its inboxes.
type consumer struct {
	nc      *nats.Conn
	log     jetstream.Stream
	id      string // identity of the log
	line    *line
	decode  decoder
	inboxes []*inbox
	logger  *slog.Logger

	rewound  chan struct{} // has one element if an inbox was rewound
	clock    clock
	mu       sync.Mutex
	read     mark          // up to which all was put
	pending  atomic.Uint64 // how many messages the log has behind position
	age      atomic.Int64  // of the message that was read last, when it was read, in nanoseconds
	latest   atomic.Int64  // when a message was read last, Unix milliseconds
	stamps   func(isTick bool, stamp time.Time)
	passed   func(time int64) // called as log time goes on
	handedOn func()           // called when the end of the log was reached first
}

// position is how far the log was read.
func (c *consumer) position() mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

func (c *consumer) move(to mark) (from mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, c.read = c.read, to
	return from
}

// rewind asks to read again from where the inboxes say.
func (c *consumer) rewind() {
	select {
	case c.rewound <- struct{}{}:
	default:
	}
}

// run reads until ctx is done. It returns an error only if going on would be wrong.
func (c *consumer) run(ctx context.Context) error {
	for {
		err := c.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrLogTruncated) || errors.Is(err, ErrLogBehind) || errors.Is(err, ErrLogChanged) {
			return err
		}
		if err != nil {
			c.logger.Warn("reading the log was interrupted", slog.Any("error", err))
			if !wait(ctx, retryAfter) {
				return nil
			}
		}
	}
}

// runOnce reads from the lowest offset until reading has to begin again.
func (c *consumer) runOnce(ctx context.Context) error {
	select {
	case <-c.rewound:
	default:
	}
	read := c.move(mark{}).seq // before the inboxes begin: see partition.position
	start := ^uint64(0)
	for _, b := range c.inboxes {
		start = min(start, b.begin(read))
	}
	c.clock.back(start)
	info, err := c.info(ctx)
	if err != nil {
		return err
	}
	if err := checkLog(info, c.id, start); err != nil {
		return err
	}
	lost := c.line.lost()
	messages, forget, err := c.open(ctx, start)
	if err != nil {
		return fmt.Errorf("consume the log: %w", err)
	}
	defer forget()
	c.progress(info.State.LastSeq-min(start, info.State.LastSeq), math.MaxInt64)
	if start >= info.State.LastSeq {
		c.move(mark{start, c.clock.last.time})
		c.handedOn()
	}
	// Whatever ends the reading ends a wait for the next message too.
	reading, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	again := false
	var another error
	go func() {
		defer close(watched)
		again, another = c.watch(reading, lost)
		stop()
	}()
	err = c.handOut(reading, messages, start)
	stop()
	<-watched
	switch {
	case another != nil:
		return another
	case again:
		return nil
	}
	return err
}

// info asks where the log stands.
func (c *consumer) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = c.line.look(ctx, func(ctx context.Context) (err error) {
		info, err = c.log.Info(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the log: %w", err)
	}
	return info, nil
}

// open begins to read behind a place. What has begun is to be forgotten.
func (c *consumer) open(ctx context.Context, start uint64) (messages *pull, forget func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var made jetstream.Consumer
	err = c.line.look(ctx, func(ctx context.Context) (err error) {
		made, err = c.log.CreateConsumer(ctx, jetstream.ConsumerConfig{
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       start + 1,
			AckPolicy:         jetstream.AckNonePolicy,
			InactiveThreshold: pullForgotten,
			Replicas:          1,
			MemoryStorage:     true,
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	stream, name := made.CachedInfo().Stream, made.CachedInfo().Name
	if messages, err = newPull(c.nc, stream, name, pullBytes); err != nil {
		return nil, nil, err
	}
	return messages, func() {
		messages.close()
		if !c.nc.IsConnected() {
			return // the server forgets by itself
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.log.DeleteConsumer(ctx, name)
	}, nil
}

// progress notes how many messages are still to be read, and how old the one was
// that was read last.
func (c *consumer) progress(pending uint64, age time.Duration) {
	c.pending.Store(pending)
	c.age.Store(int64(age))
	c.latest.Store(time.Now().UnixMilli())
}

// behind says whether what is read is of the past, and more of it is to come.
func (c *consumer) behind() bool {
	const past = int64(250 * time.Millisecond)
	const still = 1000 // milliseconds without a message: what was to come may be gone
	return c.pending.Load() > 0 && c.age.Load() > past && time.Now().UnixMilli()-c.latest.Load() < still
}

// watch waits until the reading is over, or has to begin again, or is found to be of
// another log: one that was made anew with fewer messages would never tell.
func (c *consumer) watch(reading context.Context, lost <-chan struct{}) (again bool, another error) {
	tick := time.NewTicker(identifyEvery)
	defer tick.Stop()
	for {
		select {
		case <-c.rewound:
			return true, nil
		case <-lost:
			return true, nil
		case <-reading.Done():
			return false, nil
		case <-tick.C:
			// Not for long: meanwhile nobody sees that reading has to begin again.
			ctx, cancel := context.WithTimeout(reading, identifyEvery)
			var info *jetstream.StreamInfo
			err := c.line.ask(ctx, func(ctx context.Context) (err error) {
				info, err = c.log.Info(ctx)
				return err
			})
			cancel()
			if err == nil && streams.Identity(info) != c.id {
				return false, checkLog(info, c.id, 0)
			}
		}
	}
}

// handOut hands messages out until reading is done.
func (c *consumer) handOut(reading context.Context, messages *pull, last uint64) error {
	for caughtUp := false; ; {
		msg, meta, err := messages.next(reading.Done())
		if err != nil || msg == nil {
			return err
		}
		seq := meta.Sequence.Stream
		if seq > last+1 {
			if err := c.check(reading, last); err != nil {
				return err
			}
			c.logger.Warn("messages were deleted from the middle of the log", slog.Uint64("after", last), slog.Uint64("before", seq))
		}
		last = seq
		isTick := msg.Subject == c.decode.prefix.Tick()
		c.stamps(isTick, meta.Timestamp)
		now := c.clock.stamp(seq, meta.Timestamp.UnixMilli())
		if !isTick && !c.hand(msg, seq, now) {
			return nil
		}
		c.move(mark{seq, now})
		c.passed(now)
		c.progress(meta.NumPending, time.Since(meta.Timestamp))
		if meta.NumPending == 0 && !caughtUp {
			caughtUp = true
			c.handedOn()
		}
	}
}

// hand puts a message into its inbox, or into all.
func (c *consumer) hand(msg *nats.Msg, seq uint64, at int64) bool {
	p, global := c.decode.route(msg.Subject)
	m := c.decode.decode(msg.Subject, headerOf(msg), msg.Data, seq, at)
	if !global || m.kind == malformed {
		return c.inboxes[p].put(m)
	}
	for _, b := range c.inboxes {
		if !b.put(m) {
			return false
		}
	}
	return true
}

// check looks whether the log is the one that was read up to last, and still has
// what comes then.
func (c *consumer) check(ctx context.Context, last uint64) error {
	info, err := c.info(ctx)
	if err != nil {
		return err
	}
	return checkLog(info, c.id, last)
}

// checkLog says whether a partition that was applied up to offset of the log with
// that identity can go on with this one.
func checkLog(info *jetstream.StreamInfo, id string, offset uint64) error {
	if created := streams.Identity(info); created != id {
		return fmt.Errorf("%w: it was created at %s, and what is stored is of the log that was created at %s: begin anew with an empty Redis, or restore the log",
			ErrLogChanged, logTime(created), logTime(id))
	}
	log := info.State
	if log.FirstSeq > offset+1 {
		return fmt.Errorf("%w: the log begins at %d and was applied up to %d: restore the log, or give up what is lost and begin anew with an empty Redis and new streams; keep the log longer (--log-max-age, --log-max-bytes)",
			ErrLogTruncated, log.FirstSeq, offset)
	}
	if log.LastSeq < offset {
		return fmt.Errorf("%w: the log ends at %d and was applied up to %d: it was restored from an older copy, or Redis belongs to another log",
			ErrLogBehind, log.LastSeq, offset)
	}
	return nil
}
