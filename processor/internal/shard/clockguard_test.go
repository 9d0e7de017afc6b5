package shard

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/processor/health"
)

// TestClockLeadToTheMillisecond: a stamp is accepted when one of the two clocks has come near it, and not a millisecond
// sooner.
func TestClockLeadToTheMillisecond(t *testing.T) {
	for _, tt := range []struct {
		name       string
		own, redis time.Duration // behind the stamp
		waits      time.Duration
	}{
		{"both agree", 0, 0, 0},
		{"as far ahead as it may be", 10 * time.Second, time.Hour, 0},
		{"ahead of one of them", time.Hour, 10 * time.Second, 0},
		{"ahead of both", time.Hour, time.Minute, 50 * time.Second},
		{"a millisecond too far", 10*time.Second + time.Millisecond, time.Hour, time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			stamp := start.Add(tt.own)
			board := health.New(slog.New(slog.DiscardHandler))
			redis := func(context.Context) (time.Time, error) { return time.Now().Add(tt.own - tt.redis), nil }
			l := NewClockGuard(10*time.Second, Clocks{Own: time.Now, Redis: redis}, board)
			if err := l.Wait(t.Context(), stamp); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < tt.waits || took > tt.waits+retryAfter {
				t.Errorf("%s: it waited %s, want %s", tt.name, took, tt.waits)
			}
			if err := board.Err(); (err != nil) != (tt.waits > 0) {
				t.Errorf("%s: the problem is %v", tt.name, err)
			}
			l.Settle()
			if err := board.Err(); (err != nil) != (tt.waits > 0) {
				t.Errorf("%s: the problem ended at once: %v", tt.name, err)
			}
			time.Sleep(heldFor + time.Second)
			l.Settle()
			if err := board.Err(); err != nil {
				t.Errorf("%s: there is still a problem: %v", tt.name, err)
			}
		})
	}
}

// TestClockProblemEndsWithoutAMessage: the problem also ends if the reader stopped while a message was held up, and no
// message comes any more.
func TestClockProblemEndsWithoutAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := health.New(slog.New(slog.DiscardHandler))
		redis := func(context.Context) (time.Time, error) { return time.Now(), nil }
		l := NewClockGuard(10*time.Second, Clocks{Own: time.Now, Redis: redis}, board)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Wait(ctx, time.Now().Add(time.Hour)); err == nil || board.Err() == nil {
			t.Fatalf("Wait returned %v, and the problem is %v", err, board.Err())
		}
		time.Sleep(heldFor + time.Second)
		l.Settle()
		if err := board.Err(); err != nil {
			t.Errorf("there is still a problem: %v", err)
		}
	})
}

// TestG11_HeldUpByOneMessage: the guard says that the log is held up while at least one message waits. The monitor then
// reports no reader and no owner that stands still.
func TestG11_HeldUpByOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		redis := func(context.Context) (time.Time, error) { return time.Now(), nil }
		l := NewClockGuard(10*time.Second, Clocks{Own: time.Now, Redis: redis},
			health.New(slog.New(slog.DiscardHandler)))
		ctx, cancel := context.WithCancel(t.Context())
		for waits := range 3 {
			if l.Holds() != (waits > 0) {
				t.Errorf("while %d messages wait, it holds the log up: %t", waits, l.Holds())
			}
			go func() { _ = l.Wait(ctx, time.Now().Add(time.Hour)) }()
			synctest.Wait()
		}
		cancel()
		if synctest.Wait(); l.Holds() {
			t.Error("it still holds the log up")
		}
	})
}

// TestG11_ClockBehindToTheMillisecond: a NATS whose clock is behind both other clocks by more than it may be is a
// problem, to the millisecond, until it is not. However late the answer comes, it does not count as behind for that.
func TestG11_ClockBehindToTheMillisecond(t *testing.T) {
	for _, tt := range []struct {
		name       string
		own, redis time.Duration // ahead of NATS's clock
		way        time.Duration // of the answer
		problem    bool
	}{
		{"all agree", 0, 0, 0, false},
		{"as far behind as it may be", 10 * time.Second, time.Hour, 0, false},
		{"behind one of them", time.Hour, 10 * time.Second, 0, false},
		{"behind both", time.Hour, time.Minute, 0, true},
		{"a millisecond too far", 10*time.Second + time.Millisecond, time.Hour, 0, true},
		{"a late answer", 0, time.Hour, time.Minute, false},
		{"ahead of both", -time.Hour, -time.Hour, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			board := health.New(slog.New(slog.DiscardHandler))
			own := func() time.Time { return time.Now().Add(tt.own) }
			l := NewClockGuard(10*time.Second, Clocks{Own: own, Redis: func(context.Context) (time.Time,
				error) {
				return time.Now().Add(tt.redis), nil
			}}, board)
			if err := l.Learn(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked, at := l.Now(), time.Now()
			time.Sleep(tt.way)
			l.Shown(asked, at)
			if err := board.Err(); (err != nil) != tt.problem {
				t.Errorf("%s: the problem is %v", tt.name, err)
			}
			if nats, redis := l.Leads(); nats != -tt.own-tt.way/2 || redis != tt.redis-tt.own {
				t.Errorf("%s: the leads are %s and %s", tt.name, nats, redis)
			}
			l.Shown(l.Now(), l.Now())
			if err := board.Err(); err != nil {
				t.Errorf("%s: there is still a problem: %v", tt.name, err)
			}
		})
	}
}
