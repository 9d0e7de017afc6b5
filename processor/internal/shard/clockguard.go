package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
)

// ClockGuard holds the log up at a message whose stamp is so far ahead of other clocks that
// NATS's clock must be wrong. A document that expired by such a stamp would be lost. It also finds
// out that NATS's clock is behind: then nothing is lost, and everything is late.
type ClockGuard struct {
	most   time.Duration
	clocks Clocks
	health *health.Board
	nats   atomic.Int64 // lead of NATS's clock over this process's
	redis  atomic.Int64 // lead of Redis's clock over this process's
	waits  atomic.Int32 // callers of Wait that hold the log up now
	held   atomic.Int64 // when the log was held up last, Unix nanoseconds; 0 once that is over
}

// heldFor is how long after a message was held up the problem stays: while NATS's clock is
// wrong, most messages are held up for a short time each.
const heldFor = 3 * time.Second

// Clocks are the clocks with which stamps are compared.
type Clocks struct {
	Own   func() time.Time // of this process
	Redis func(context.Context) (time.Time, error)
}

// NewClockGuard makes a guard that lets a stamp lead both clocks by most.
func NewClockGuard(most time.Duration, clocks Clocks, board *health.Board) *ClockGuard {
	return &ClockGuard{most: most, clocks: clocks, health: board}
}

// Wait waits until a stamp leads this process's clock, or Redis's, by no more than it may.
// It returns an error once ctx is done.
func (g *ClockGuard) Wait(ctx context.Context, stamp time.Time) error {
	if stamp.Sub(g.clocks.Own()) <= g.most {
		return nil
	}
	g.waits.Add(1)
	defer g.waits.Add(-1)
	for {
		ahead := stamp.Sub(g.clocks.Own())
		redis, err := g.clocks.Redis(ctx)
		if ahead <= g.most || err == nil && stamp.Sub(redis) <= g.most {
			return nil
		}
		g.held.Store(time.Now().UnixNano())
		text := "and Redis's clock cannot be read"
		if err == nil {
			text = fmt.Sprintf("and %s ahead of Redis's", stamp.Sub(redis).Round(time.Millisecond))
		}
		g.health.Set(ProblemClock, fmt.Errorf("a message of the log is stamped %s, %s ahead of this machine's clock "+
			"%s: it is not applied; set NATS's clock right, or raise --max-clock-lead",
			stamp.UTC().Format(time.RFC3339Nano), ahead.Round(time.Millisecond), text))
		if !backoff.Wait(ctx, retryAfter) {
			return ctx.Err()
		}
	}
}

// Holds reports whether a message is held up.
func (g *ClockGuard) Holds() bool { return g.waits.Load() > 0 }

// Settle ends the problem if no message has been held up for a while.
func (g *ClockGuard) Settle() {
	if held := g.held.Load(); held != 0 && !g.Holds() && time.Since(time.Unix(0, held)) > heldFor {
		g.held.Store(0)
		g.health.Set(ProblemClock, nil)
	}
}

// Learn compares Redis's clock with this process's.
func (g *ClockGuard) Learn(ctx context.Context) error {
	before := g.clocks.Own()
	at, err := g.clocks.Redis(ctx)
	if err == nil {
		g.redis.Store(int64(lead(at, before, g.clocks.Own())))
	}
	return err
}

// Now is this process's clock.
func (g *ClockGuard) Now() time.Time { return g.clocks.Own() }

// Shown compares NATS's clock with this process's, and with Redis's as it was learned last. at is the time in an answer
// of the log's leader to a question that was asked when this process's clock showed asked. Without messages nothing
// else shows that NATS's clock is behind: the owner sends no tick, because nothing is due by log time.
func (g *ClockGuard) Shown(asked, at time.Time) {
	nats := lead(at, asked, g.clocks.Own())
	g.nats.Store(int64(nats))
	behind := asked.Sub(at) // at least: the leader answered later
	behindRedis := behind + time.Duration(g.redis.Load())
	if behind <= g.most || behindRedis <= g.most {
		g.health.Set(ProblemClockBehind, nil)
		return
	}
	g.health.Set(ProblemClockBehind, fmt.Errorf("NATS's clock shows %s, %s behind this machine's and %s behind "+
		"Redis's, so events are late: set the clock of the log's leader right, or raise --max-clock-lead",
		at.UTC().Format(time.RFC3339), behind.Round(time.Second), behindRedis.Round(time.Second)))
}

// lead is how far another clock is ahead of this process's, which showed asked and answered around the answer at.
func lead(at, asked, answered time.Time) time.Duration {
	return at.Sub(asked.Add(answered.Sub(asked) / 2))
}

// Leads are how far NATS's clock, and Redis's, lead this process's clock.
func (g *ClockGuard) Leads() (nats, redis time.Duration) {
	return time.Duration(g.nats.Load()), time.Duration(g.redis.Load())
}
