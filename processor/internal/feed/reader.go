package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	ProblemLog         = health.Problem{Name: "log", Advice: "Look at the stream of the log: nats stream info. It needs a leader and room on the disk."}
	ProblemClock       = health.Problem{Name: "clock", Advice: "Set the clocks of the machines right (NTP)."}
	ProblemClockBehind = health.Problem{Name: "clock behind", Advice: "Set the clock of the server that leads the log right (NTP). Events are late by as much."}
)

const (
	retryAfter    = 100 * time.Millisecond
	pullForgotten = time.Minute // how long the server keeps a consumer without a reader
)

// Reader reads the log, once for all partitions, and puts each message into the inboxes of
// the partitions that it is for:
//
//   - C1: a partition gets every message that is for it, after the offset that it asked
//     for, once and in order.
//   - C2: Position is never past a message that is not yet in its inboxes, but for
//     partitions that are away (see Inbox).
type Reader struct {
	nc      *nats.Conn
	log     *streams.Log
	link    *streams.Link
	decoder fold.Decoder
	inboxes Inboxes
	guard   *ClockGuard
	ticker  *Ticker
	backlog *Backlog
	health  *health.Board
	logger  *slog.Logger

	rewound chan struct{} // has one element if reading has to begin again
	logTime logTime

	mu   sync.Mutex
	read fold.Position // up to which all messages are in their inboxes
	seen store.Stamp   // of the last message that was read, also for one partition
}

// Options are what a Reader reads, and how.
type Options struct {
	NATS    *nats.Conn
	Link    *streams.Link
	Log     *streams.Log
	Decoder fold.Decoder
	Guard   *ClockGuard
	Health  *health.Board
	Logger  *slog.Logger
}

// NewReader makes a reader, which begins to read in Run.
func NewReader(s Options, inboxes Inboxes, ticker *Ticker, backlog *Backlog) *Reader {
	return &Reader{
		nc: s.NATS, link: s.Link, log: s.Log, decoder: s.Decoder, guard: s.Guard, health: s.Health, logger: s.Logger,
		inboxes: inboxes, ticker: ticker, backlog: backlog,
		rewound: make(chan struct{}, 1),
	}
}

// Allow sets where outcomes may go. It is called before the reading begins.
func (r *Reader) Allow(replies []wire.ReplyRule) { r.decoder.Replies = replies }

// Position is how far the log was read.
func (r *Reader) Position() fold.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// PositionOf is how far the log was read for a partition.
func (r *Reader) PositionOf(partition int) fold.Position {
	r.mu.Lock() // until the inbox has answered: runOnce moves back before an inbox begins anew
	defer r.mu.Unlock()
	at := r.inboxes[partition].position(r.read)
	if at.Stamp == 0 && at.Seq == r.seen.Seq {
		at.Stamp = r.seen.At // another reading has it
	}
	return at
}

func (r *Reader) move(to fold.Position) (from fold.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from, r.read = r.read, to
	return from
}

// saw notes the position of a message that was read, also for one partition.
func (r *Reader) saw(at fold.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.believe(at.Evidence())
}

func (r *Reader) believe(stamp store.Stamp) {
	if stamp.Seq > r.seen.Seq {
		r.seen = stamp
	}
}

// Return lets a partition read again after the offset of what is stored. The log had the message of its
// stamp a moment ago: if it has lost that since, others take its place, and only the stamp tells.
func (r *Reader) Return(partition int, stored store.State) {
	r.mu.Lock()
	r.believe(stored.Stamp)
	read := r.read.Seq
	r.mu.Unlock()
	r.inboxes[partition].Rewind(stored.Offset, read)
}

// Rewind lets the reading begin again.
func (r *Reader) Rewind() {
	select {
	case r.rewound <- struct{}{}:
	default:
	}
}

// Run reads until ctx is done. It returns an error only if it would be wrong to go on. If the log
// was truncated, each partition finds out whether it can go on.
func (r *Reader) Run(ctx context.Context) error {
	for {
		err := r.runOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, streams.ErrLogTruncated):
			for _, b := range r.inboxes {
				if !b.isAway() {
					b.truncate(err)
				}
			}
		case streams.AsRefusal(err) != nil:
			return err
		}
		if err != nil {
			if !r.nc.IsConnected() {
				err = streams.ErrDisconnected
			}
			r.health.Set(ProblemLog, fmt.Errorf("reading the log was interrupted, and is tried again: %w", err))
			if !backoff.Wait(ctx, retryAfter) {
				return nil
			}
		}
	}
}

// runOnce reads from the lowest offset until reading has to begin again.
func (r *Reader) runOnce(ctx context.Context) error {
	select {
	case <-r.rewound:
	default:
	}
	read := r.move(fold.Position{}) // before the inboxes begin: see PositionOf
	start, err := r.begin(ctx, read.Seq)
	if err != nil {
		return err
	}
	r.logTime.back(start)
	return r.readLog(ctx, r.forAll(start))
}

// forAll is the reading of the main reader after a sequence: for all partitions.
func (r *Reader) forAll(start uint64) *reading {
	caughtUp := false
	return &reading{
		last: start, logTime: &r.logTime, end: len(r.inboxes), rewound: r.rewound, stamped: r.ticker.stamped,
		begun: func(end uint64) bool {
			r.health.Set(ProblemLog, nil)
			r.backlog.note(end-min(start, end), math.MaxInt64)
			if start >= end {
				r.move(fold.Position{Seq: start, Time: r.logTime.last.Time})
				r.inboxes.wakeAll()
			}
			return true
		},
		put: func(partition int, m *fold.Message, over func() bool) bool {
			return r.inboxes[partition].offer(m, func() bool { return r.holdsUp(partition) }, over)
		},
		passed: func(at fold.Position, meta *nats.MsgMetadata) bool {
			r.move(at)
			r.ticker.passed(at.Time)
			r.backlog.note(meta.NumPending, time.Since(meta.Timestamp))
			if meta.NumPending == 0 && !caughtUp {
				caughtUp = true
				r.inboxes.wakeAll()
			}
			return true
		},
	}
}

// begin returns the sequence after which the reading begins. Partitions that are away
// stay away, unless most of them are: then one reading serves nearly all. Where there is nobody
// to read for, it begins at the end of the log: the beginning may have been truncated.
func (r *Reader) begin(ctx context.Context, read uint64) (uint64, error) {
	join := r.mostAreHungry()
	start, any := uint64(math.MaxUint64), false
	for _, b := range r.inboxes {
		hungry, _ := b.hungry()
		if after, ok := b.begin(read, join && hungry); ok {
			start, any = min(start, after), true
		}
	}
	if !any {
		ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
		defer cancel()
		info, err := r.log.Info(ctx)
		if err != nil {
			return 0, err
		}
		start = info.State.LastSeq
	}
	for _, b := range r.inboxes {
		b.startsAfter(start)
	}
	return start, nil
}

// mostAreHungry reports whether at least half of the partitions wait for messages that
// this reader does not bring.
func (r *Reader) mostAreHungry() bool {
	waiting, all := 0, 0
	for _, b := range r.inboxes {
		hungry, wanted := b.hungry()
		if hungry {
			waiting++
		}
		if wanted {
			all++
		}
	}
	return 2*waiting >= all && waiting > 0
}

// verify makes sure that the log is the one that was read so far, and has the messages
// after a sequence.
func (r *Reader) verify(ctx context.Context, after uint64) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	info, err := r.log.InfoUpTo(ctx, after, r.ticker)
	if err != nil {
		return nil, err
	}
	if err := streams.CheckOffset(info, r.log.ID(), after); err != nil {
		return nil, err
	}
	r.mu.Lock()
	seen := r.seen
	r.mu.Unlock()
	return info, r.log.CheckStamp(ctx, seen, "this process has read", r.ticker)
}

// readFrom begins to read after a sequence, and then verifies the log: if that has lost its
// end before, the consumer waits for messages that others take the place of. The caller has to
// call forget.
func (r *Reader) readFrom(ctx context.Context, after uint64) (info *jetstream.StreamInfo, messages *pull, forget func(), err error) {
	if messages, forget, err = r.open(ctx, after); err != nil {
		return nil, nil, nil, fmt.Errorf("consume the log: %w", streams.Gone(err, r.log.Streams.Log.CachedInfo().Config.Name))
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
	log := r.log.Streams.Log
	var made jetstream.Consumer
	err = r.link.Query(ctx, func(ctx context.Context) (err error) {
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
	if messages, err = newPull(r.nc, stream, name, PullBytes, &r.backlog.read); err != nil {
		return nil, nil, err
	}
	return messages, func() {
		messages.Close()
		if !r.nc.IsConnected() {
			return // the server forgets it after pullForgotten
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = log.DeleteConsumer(ctx, name)
	}, nil
}

// holdsUp reports whether another partition has nothing to apply while the reader waits
// for this one.
func (r *Reader) holdsUp(partition int) bool {
	for i, b := range r.inboxes {
		if i != partition && b.count.Load() == 0 {
			return true
		}
	}
	return false
}
