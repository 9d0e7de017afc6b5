// Package pause waits.
package pause

import (
	"context"
	"time"
)

// For waits for a time, and reports whether ctx is not done yet.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
