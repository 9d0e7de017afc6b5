package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// The problems of reading the log.
var (
	ProblemLog = health.Problem{Name: "log",
		Advice: "Look at the stream of the log: nats stream info. It needs a leader and room on the disk."}
	ProblemClock       = health.Problem{Name: "clock", Advice: "Set the clocks of the machines right (NTP)."}
	ProblemClockBehind = health.Problem{Name: "clock behind",
		Advice: "Set the clock of the server that leads the log right (NTP). Events are late by as much."}
)

const (
	retryAfter    = 100 * time.Millisecond
	pullForgotten = time.Minute // how long the server keeps a consumer without a reader
)

// Reader reads the log once, decodes its messages, and puts them into the queue of the owner:
//
//   - C1: the owner gets every message after the offset that it asked for, once and in order.
//   - C2: the position of the queue is never past a message that is not yet in it.
type Reader struct {
	Source
	logTime logTime
	server  string // that sends the messages

	mu   sync.Mutex
	seen store.Stamp // of the last message that was read
}

// Source is what a Reader reads, and how.
type Source struct {
	NATS    *nats.Conn
	Link    *streams.Link
	Log     *streams.Log
	Decoder fold.Decoder
	Guard   *ClockGuard
	Health  *health.Board
	Queue   *Queue
	Ticker  *Ticker
}

// NewReader makes a reader, which begins to read in Run.
func NewReader(s Source) *Reader { return &Reader{Source: s} }

// saw notes the stamp of a message that was read, or that the log had a moment ago.
func (r *Reader) saw(stamp store.Stamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stamp.Seq > r.seen.Seq {
		r.seen = stamp
	}
}

func (r *Reader) lastSeen() store.Stamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// Return lets the owner read again after the offset of what is stored. The log had the message of its
// stamp a moment ago: if it has lost that since, others take its place, and only the stamp tells.
func (r *Reader) Return(stored store.State) {
	r.saw(stored.Stamp)
	r.Queue.Rewind(stored.Offset)
}

// Run reads until ctx is done. It returns an error only if it would be wrong to go on.
func (r *Reader) Run(ctx context.Context) error {
	for {
		err := r.runOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case streams.AsRefusal(err) != nil:
			return err
		}
		if err != nil {
			if !r.NATS.IsConnected() {
				err = streams.ErrDisconnected
			}
			r.Health.Set(ProblemLog, fmt.Errorf("reading the log was interrupted, and is tried again: %w", err))
			if !backoff.Wait(ctx, retryAfter) {
				return nil
			}
		}
	}
}

// runOnce reads from where the owner needs messages until reading has to begin again. If the log was truncated, the
// owner finds out whether it can go on.
func (r *Reader) runOnce(ctx context.Context) error {
	select {
	case <-r.Queue.rewound:
	default:
	}
	start, number, wanted := r.Queue.begin()
	if !wanted {
		select {
		case <-ctx.Done():
		case <-r.Queue.rewound:
		}
		return nil
	}
	err := r.read(ctx, start, number)
	if errors.Is(err, streams.ErrLogTruncated) {
		r.Queue.truncate(err, number)
		return nil
	}
	return err
}

// read reads after a sequence until reading has to begin again.
func (r *Reader) read(ctx context.Context, start, number uint64) error {
	r.logTime.back(start)
	lost := r.Link.Lost()
	info, messages, forget, err := r.readFrom(ctx, start)
	if err != nil {
		return err
	}
	defer forget()
	end := info.State.LastSeq
	r.Queue.Backlog.note(end-min(start, end), math.MaxInt64)
	if start >= end {
		r.Health.Set(ProblemLog, nil)
		at := fold.Position{Seq: start, Time: r.logTime.last.Time}
		if seen := r.lastSeen(); seen.Seq == start {
			at.Stamp = seen.At
		}
		r.Queue.passed(at, number)
		r.Queue.Wake()
	}
	// Whatever ends the reading also ends a wait for the next message.
	reading, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	again := false
	go func() {
		defer close(watched)
		defer stop()
		select {
		case <-r.Queue.rewound:
			again = true
		case <-lost:
			again = true
		case <-reading.Done():
		}
	}()
	err = r.readOn(reading, start, number, messages)
	stop()
	<-watched
	if again {
		return nil
	}
	return err
}

// readOn puts messages into the queue until ctx is done, or the reading is over.
func (r *Reader) readOn(ctx context.Context, last, number uint64, messages *pull) error {
	caughtUp, reads := false, false
	for {
		msg, meta, err := messages.Next(ctx.Done())
		if err != nil || msg == nil {
			return err
		}
		seq, subject := meta.Sequence.Stream, r.Decoder.Log.ParseSubject(msg.Subject)
		isTick := subject.Kind == wire.SubjectTick
		if err := r.checkJump(ctx, last, seq); err != nil {
			return err
		}
		if !reads { // until then the server may be one that cannot send what comes first
			reads = true
			r.Health.Set(ProblemLog, nil)
		}
		last = seq
		r.Ticker.stamped(isTick, meta.Timestamp)
		if err := r.Guard.Wait(ctx, meta.Timestamp); err != nil {
			return nil
		}
		at := fold.Position{Seq: seq, Time: r.logTime.at(seq, meta.Timestamp.UnixMilli()),
			Stamp: meta.Timestamp.UnixNano()}
		r.saw(at.Evidence())
		if !isTick {
			if !r.Queue.put(r.Decoder.DecodeAs(subject, headerOf(msg), msg.Data, at), number) {
				return nil
			}
		}
		if !r.Queue.passed(at, number) {
			return nil
		}
		r.Ticker.passed(at.Time)
		r.Queue.Backlog.note(meta.NumPending, time.Since(meta.Timestamp))
		if meta.NumPending == 0 && !caughtUp {
			caughtUp = true
			r.Queue.Wake()
		}
	}
}

// checkJump finds out why there is no message between last and seq.
func (r *Reader) checkJump(ctx context.Context, last, seq uint64) error {
	if seq <= last+1 {
		return nil
	}
	info, err := r.verify(ctx, last)
	if err != nil {
		return err
	}
	return r.Log.CheckJump(ctx, info, r.server, last, seq)
}

// headerOf is the header of a message. Where it cannot be read, the client library returns
// none; headerOf then returns one with an empty name, which no valid header has.
func headerOf(m *nats.Msg) nats.Header {
	if m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		return nats.Header{"": nil}
	}
	return m.Header
}

// verify makes sure that the log is the one that was read so far, and has the messages after a sequence.
func (r *Reader) verify(ctx context.Context, after uint64) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	info, err := r.Log.InfoUpTo(ctx, after, r.Ticker)
	if err != nil {
		return nil, err
	}
	if err := streams.CheckOffset(info, r.Log.ID(), after); err != nil {
		return nil, err
	}
	return info, r.Log.CheckStamp(ctx, r.lastSeen(), "this process has read", r.Ticker)
}

// readFrom begins to read after a sequence, and then verifies the log: if that has lost its end before, the consumer
// waits for messages that others take the place of. The caller has to call forget.
func (r *Reader) readFrom(ctx context.Context, after uint64) (info *jetstream.StreamInfo, messages *pull, forget func(),
	err error) {
	if messages, forget, err = r.open(ctx, after); err != nil {
		return nil, nil, nil, fmt.Errorf("consume the log: %w", streams.Gone(err,
			r.Log.Streams.Log.CachedInfo().Config.Name))
	}
	if info, err = r.verify(ctx, after); err != nil {
		forget()
		return nil, nil, nil, err
	}
	return info, messages, forget, nil
}

// open makes a consumer that begins after a sequence. The caller has to call forget.
func (r *Reader) open(ctx context.Context, start uint64) (messages *pull, forget func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	log := r.Log.Streams.Log
	var made jetstream.Consumer
	err = r.Link.Query(ctx, func(ctx context.Context) (err error) {
		made, err = log.CreateConsumer(ctx, jetstream.ConsumerConfig{
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
	if cluster := made.CachedInfo().Cluster; cluster != nil {
		r.server = cluster.Leader
	}
	if messages, err = newPull(r.NATS, stream, name, PullBytes, &r.Queue.Backlog.read); err != nil {
		return nil, nil, err
	}
	return messages, func() {
		messages.Close()
		if !r.NATS.IsConnected() {
			return // the server forgets it after pullForgotten
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = log.DeleteConsumer(ctx, name)
	}, nil
}

// logTime computes log time: the greatest stamp of the log's messages up to a position.
// Stamps can fall, because another server that leads the stream has another clock.
type logTime struct {
	last  fold.Position   // the first message with the greatest stamp so far
	highs []fold.Position // such messages, after which stamps fell or reading ended, in order
}

// at is the log time at the next message, by its stamp.
func (c *logTime) at(seq uint64, stamp int64) int64 {
	if stamp > c.last.Time {
		c.last = fold.Position{Seq: seq, Time: stamp}
	} else if stamp < c.last.Time {
		c.remember()
	}
	return c.last.Time
}

func (c *logTime) remember() {
	byTime := func(a, b fold.Position) int { return cmp.Compare(a.Time, b.Time) }
	if i, found := slices.BinarySearchFunc(c.highs, c.last, byTime); !found {
		c.highs = slices.Insert(c.highs, i, c.last)
	}
}

// back goes back to a sequence: the next message is the one after it. Log time from
// before the first message that was read is in the owner's watermark.
func (c *logTime) back(seq uint64) {
	c.remember()
	c.last = fold.Position{}
	for _, high := range c.highs {
		if high.Seq <= seq {
			c.last = high
		}
	}
}
