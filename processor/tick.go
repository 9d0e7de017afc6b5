package processor

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ticker wakes partitions when log time comes to what they wait for. Any message of
// the log moves it on; when the log is silent and something falls due somewhere, the
// ticker appends a tick. One tick serves all partitions, and none is sent before the
// one before has been read.
type ticker struct {
	js      jetstream.JetStream
	line    *line
	subject string
	logger  *slog.Logger
	behind  func() bool // whether messages of the log are still to be read
	wake    func(partition int)

	soonest atomic.Int64 // of wants
	mu      sync.Mutex
	wants   []int64       // per partition the instant of log time that it waits for
	changed chan struct{} // has one element if there may be reason to look again
	ahead   time.Duration // how far the log's clock is ahead of ours, at least
	known   bool          // whether that is known
	heard   time.Time     // when a message was read last
	sent    time.Time     // when the tick was sent that is not yet read; zero if there is none
}

func newTicker(js jetstream.JetStream, line *line, subject string, partitions int, behind func() bool, logger *slog.Logger) *ticker {
	t := &ticker{js: js, line: line, subject: subject, behind: behind, logger: logger, wants: make([]int64, partitions), changed: make(chan struct{}, 1)}
	for i := range t.wants {
		t.wants[i] = math.MaxInt64
	}
	t.soonest.Store(math.MaxInt64)
	return t
}

// want says what instant of log time a partition waits for; math.MaxInt64 if none.
// Whether that has come before it was said, the partition has to see for itself.
func (t *ticker) want(partition int, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.soonest.Load()
	t.wants[partition] = at
	t.soonest.Store(slices.Min(t.wants))
	if at < was {
		t.look()
	}
}

// look lets run look again at what there is to wait for.
func (t *ticker) look() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// passed wakes the partitions that wait for an instant to which log time has come.
func (t *ticker) passed(now int64) {
	if now < t.soonest.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, at := range t.wants {
		if at <= now {
			t.wants[i] = math.MaxInt64
			t.wake(i)
		}
	}
	t.soonest.Store(slices.Min(t.wants))
}

// stamped learns from a message how the log's clock stands to ours.
func (t *ticker) stamped(isTick bool, stamp time.Time) {
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
		t.sent = time.Time{}
		t.look()
	}
}

// next is how long it is until a tick is needed.
func (t *ticker) next() (pause time.Duration, needed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Min(t.wants)
	if at == math.MaxInt64 {
		return 0, false
	}
	pause = time.Until(time.UnixMilli(at)) - t.ahead
	if !t.sent.IsZero() {
		pause = max(pause, tickAgain-time.Since(t.sent))
	}
	// While messages come, time goes on by them.
	return max(pause, tickEvery-time.Since(t.heard)), true
}

// run sends ticks until ctx is done.
func (t *ticker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for failed := false; ; {
		pause, needed := t.next()
		if !needed {
			pause = time.Hour
		}
		if pause > 0 {
			timer.Reset(pause)
			select {
			case <-ctx.Done():
				return
			case <-t.changed:
				continue
			case <-timer.C:
			}
			continue // a message may have come meanwhile
		}
		// Where there are messages to be read, time moves on by them. A tick would
		// only be one more, and a reader that is slow would never reach the end.
		if !t.behind() {
			failed = !t.runOnce(ctx, failed)
		}
		again := tickEvery
		if failed {
			again = retryAfter
		}
		if !wait(ctx, again) {
			return
		}
	}
}

// runOnce appends a tick.
func (t *ticker) runOnce(ctx context.Context, failedBefore bool) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAgain) // whether it is stored or not, another one does no harm
	defer cancel()
	t.sending(time.Now())
	err := t.line.ask(ctx, func(ctx context.Context) error {
		_, err := t.js.Publish(ctx, t.subject, nil)
		return err
	})
	if err != nil {
		if !failedBefore && ctx.Err() == nil {
			t.logger.Warn("a tick could not be sent", slog.Any("error", err))
		}
		t.sending(time.Time{})
	}
	return err == nil
}

func (t *ticker) sending(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = at
}
