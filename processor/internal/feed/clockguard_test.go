package feed

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/processor/health"
)

// A stamp is accepted when one of the two clocks has come near it, and not a millisecond
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

// The problem also ends if the reader stopped while a message was held up, and no message
// comes any more.
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
