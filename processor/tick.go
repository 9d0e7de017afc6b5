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

// ticker lets time move on in a log that is silent: when something falls due
// somewhere and no message has said so, it appends a tick. One tick serves all
// partitions, and none is sent before the one before has been applied by those
// that wait for it.
type ticker struct {
	js      jetstream.JetStream
	line    *line
	subject string
	logger  *slog.Logger
	behind  func() bool // whether messages of the log are still to be read

	mu      sync.Mutex
	wants   []int64 // per partition the instant of log time that it waits for
	changed chan struct{}
	ahead   atomic.Int64 // how far the log's clock is ahead of ours, at least, in nanoseconds
}

func newTicker(js jetstream.JetStream, line *line, subject string, partitions int, behind func() bool, logger *slog.Logger) *ticker {
	t := &ticker{js: js, line: line, subject: subject, behind: behind, logger: logger, wants: make([]int64, partitions), changed: make(chan struct{}, 1)}
	for i := range t.wants {
		t.wants[i] = math.MaxInt64
	}
	t.ahead.Store(math.MinInt64)
	return t
}

// want says what instant of log time a partition waits for; math.MaxInt64 if none.
func (t *ticker) want(partition int, at int64) {
	t.mu.Lock()
	was := slices.Min(t.wants)
	t.wants[partition] = at
	t.mu.Unlock()
	if at < was {
		select {
		case t.changed <- struct{}{}:
		default:
		}
	}
}

// stamped learns from a message how the log's clock stands to ours.
func (t *ticker) stamped(isTick bool, stamp time.Time) {
	const behind = int64(5 * time.Millisecond)
	sample := int64(time.Until(stamp))
	if ahead := t.ahead.Load(); sample > ahead || isTick && ahead-sample > behind {
		t.ahead.Store(sample)
	}
}

// next is how long it is until some partition has what it waits for.
func (t *ticker) next() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Min(t.wants)
	if at == math.MaxInt64 {
		return 0, false
	}
	ahead := t.ahead.Load()
	if ahead == math.MinInt64 {
		ahead = 0
	}
	return time.Until(time.UnixMilli(at)) - time.Duration(ahead), true
}

// sent forgets the wants that a tick has come up to: who still waits says so again
// after having applied it.
func (t *ticker) sent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now().UnixMilli() + max(0, t.ahead.Load()/int64(time.Millisecond)) + 1
	for i, at := range t.wants {
		if at <= now {
			t.wants[i] = math.MaxInt64
		}
	}
}

// run sends ticks until ctx is done.
func (t *ticker) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for failed := false; ; {
		pause, any := t.next()
		if !any {
			pause = time.Hour
		}
		if failed {
			pause = max(pause, retryAfter)
		}
		if pause > 0 {
			timer.Reset(pause)
			select {
			case <-ctx.Done():
				return
			case <-t.changed:
				continue
			case <-timer.C:
				if !any {
					continue
				}
			}
		}
		// Where there are messages to be read, time moves on by them. A tick would
		// only be one more, and a reader that is slow would never reach the end.
		if !t.behind() {
			failed = !t.runOnce(ctx, failed)
		}
		if ctx.Err() != nil || !wait(ctx, tickEvery) {
			return
		}
	}
}

// runOnce appends a tick.
func (t *ticker) runOnce(ctx context.Context, failedBefore bool) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	t.sent()
	err := t.line.ask(ctx, func(ctx context.Context) error {
		_, err := t.js.Publish(ctx, t.subject, nil)
		return err
	})
	if err != nil {
		if !failedBefore && ctx.Err() == nil {
			t.logger.Warn("a tick could not be sent", slog.Any("error", err))
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		for i := range t.wants { // nobody applies it, so nobody would ask again
			t.wants[i] = min(t.wants[i], time.Now().UnixMilli())
		}
		return false
	}
	return true
}
