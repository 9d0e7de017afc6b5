package shard

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// Ticker wakes the owner when log time reaches the instant that it waits for. Any message
// of the log moves log time on. When the log is silent and a document becomes due, the
// ticker appends a tick. The next is sent only when the reader has read it.
type Ticker struct {
	js      jetstream.JetStream
	link    *streams.Link
	subject string
	queue   *Queue
	health  *health.Board
	silent  func(context.Context) (uint64, error) // see Silent; nil if it sends ticks

	wakeAt  atomic.Int64 // the instant of log time that the owner waits for; math.MaxInt64 if none
	mu      sync.Mutex
	changed chan struct{} // has one element if wakeAt or sent may have changed
	ahead   time.Duration // how far the log's clock is ahead of ours, at least
	early   time.Duration // by how much more than ahead says a tick may be sent before its instant: see tickSpare
	known   bool          // whether that is known
	heard   time.Time     // when a message was read last
	sent    time.Time     // when the tick was sent that is not yet read; zero if there is none
}

// ProblemTick: ticks cannot be appended.
var ProblemTick = health.Problem{Name: "append to the log",
	Advice: "Look at the stream of the log: it is full, or has no leader."}

const (
	tickEvery = time.Millisecond // at most
	tickAgain = time.Second      // if the reader does not read it

	// A tick is sent early by as much as the quickest one took to the log, less tickSpare: or one that is
	// stamped before its instant would need another, after tickEvery. With each tick that grows by tickGrows, as
	// the way may have become longer.
	tickSpare = 100 * time.Microsecond
	tickGrows = 10 * time.Microsecond

	// While no server answers for the log, every 250 ms: one on replicas that was just created may have no leader yet.
	barrierAttempts = 8
)

// Barrier appends a tick, and returns its sequence: every message that was in the log before the call has a lower one.
func (t *Ticker) Barrier(ctx context.Context) (uint64, error) {
	if t.silent != nil {
		return t.silent(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	return t.send(ctx, jetstream.WithRetryAttempts(barrierAttempts))
}

// Silent makes the ticker append nothing: the log is a mirror, and its time moves on by the ticks of the first
// region. last finds the last sequence of the log, which Barrier returns.
func (t *Ticker) Silent(last func(context.Context) (uint64, error)) { t.silent = last }

// send appends a tick. Whether it is stored or not, another one does no harm.
func (t *Ticker) send(ctx context.Context, opts ...jetstream.PublishOpt) (seq uint64, err error) {
	err = t.link.Query(ctx, func(ctx context.Context) error {
		ack, err := t.js.Publish(ctx, t.subject, nil, opts...)
		if err == nil {
			seq = ack.Sequence
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("append a tick to the log: %w", err)
	}
	return seq, err
}

// NewTicker makes a ticker that appends to a subject of the log.
func NewTicker(js jetstream.JetStream, l *streams.Link, subject string, queue *Queue, board *health.Board) *Ticker {
	t := &Ticker{
		js: js, link: l, subject: subject, queue: queue, health: board,
		changed: make(chan struct{}, 1),
	}
	t.wakeAt.Store(math.MaxInt64)
	return t
}

// WakeAt notes the instant of log time that the owner waits for; math.MaxInt64 if none.
// If log time has reached it before the call, the owner is not woken.
func (t *Ticker) WakeAt(at int64) {
	if was := t.wakeAt.Swap(at); at < was {
		notify(t.changed)
	}
}

// passed wakes the owner if log time has reached the instant that it waits for.
func (t *Ticker) passed(now int64) {
	if at := t.wakeAt.Load(); at <= now && t.wakeAt.CompareAndSwap(at, math.MaxInt64) {
		t.queue.Wake()
	}
}

// stamped compares the log's clock with ours, by the stamp of a message.
func (t *Ticker) stamped(isTick bool, stamp time.Time) {
	const behind = 5 * time.Millisecond
	now := time.Now()
	ahead := stamp.Sub(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = now
	if !t.known || ahead > t.ahead || isTick && t.ahead-ahead > behind {
		t.ahead, t.known = ahead, true
	}
	if isTick {
		if !t.sent.IsZero() {
			t.early = max(0, min(t.early+tickGrows, stamp.Sub(t.sent)-t.ahead-tickSpare))
		}
		t.sent = time.Time{}
		notify(t.changed)
	}
}

// Shown compares the log's clock with ours, when an answer of its leader has shown it. In a
// log that is silent no stamp tells that its clock was set forward.
func (t *Ticker) Shown(at time.Time) {
	ahead := time.Until(at)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known && ahead > t.ahead {
		t.ahead = ahead
		notify(t.changed)
	}
}

// LogTime is the time of the log's clock when ours shows now, as far as that is known.
func (t *Ticker) LogTime(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Add(t.ahead)
}

// next is the time until a tick is needed.
func (t *Ticker) next() (pause time.Duration, needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.wakeAt.Load()
	if at == math.MaxInt64 {
		return 0, false
	}
	pause = time.Until(time.UnixMilli(at)) - t.ahead - t.early
	if !t.sent.IsZero() {
		pause = max(pause, tickAgain-time.Since(t.sent))
	}
	// While messages come, log time moves on by them.
	return max(pause, tickEvery-time.Since(t.heard)), true
}

// Run sends ticks until ctx is done.
func (t *Ticker) Run(ctx context.Context) {
	if t.silent != nil {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	failed := false
	for {
		rest, needed := t.next()
		if !needed {
			rest = time.Hour
		}
		if rest > 0 {
			if failed { // log time has moved on without the tick that could not be appended
				failed = false
				t.health.Set(ProblemTick, nil)
			}
			if rest <= timerGrain {
				sleep(rest)
				continue // a message may have come meanwhile
			}
			timer.Reset(rest - timerGrain)
			select {
			case <-ctx.Done():
				return
			case <-t.changed:
			case <-timer.C:
			}
			continue
		}
		// While there are messages to be read, log time moves on by them. A tick would
		// only be one more, and a slow reader would never reach the end.
		if !t.queue.Backlog.reads() {
			failed = !t.runOnce(ctx)
		}
		again := tickEvery
		if failed {
			again = retryAfter
		}
		if !backoff.Wait(ctx, again) {
			return
		}
	}
}

// runOnce appends a tick.
func (t *Ticker) runOnce(ctx context.Context) bool {
	sending, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	t.sending(time.Now())
	_, err := t.send(sending)
	if ctx.Err() == nil {
		t.health.Set(ProblemTick, err)
	}
	if err != nil {
		t.sending(time.Time{})
	}
	return err == nil
}

func (t *Ticker) sending(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = at
}
