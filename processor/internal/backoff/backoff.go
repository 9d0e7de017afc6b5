// Package backoff waits, also after failures.
package backoff

import (
	"context"
	"time"
)

const (
	failureAfter  = 100 * time.Millisecond
	failureAtMost = 2 * time.Second
)

// Calm is how long nothing fails before the failures so far no longer count.
const Calm = 2 * failureAtMost

// Wait waits for a time, and reports whether ctx is not done yet.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// AfterFailures is how long the i-th of so many waits after so many failures. They mostly fail
// together. They wait differently, so that they do not all try again at once.
func AfterFailures(failures, i, of int) time.Duration {
	most := min(failureAfter<<min(failures-1, 4), failureAtMost)
	return most/2 + most/2*time.Duration(i)/time.Duration(of)
}
