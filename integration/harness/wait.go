package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit is how long a test waits for something that takes no time by itself. It is long
// enough for a busy machine: only a test that fails waits so long.
const Limit = 2 * time.Minute

const pollEvery = 10 * time.Millisecond

// Poll calls try until it succeeds. After the limit, or when ctx is done, it returns the
// last error. The context that it gives to try ends with the limit.
func Poll(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil && last != nil {
			err = last // the reason, which the error of an expired context hides
		}
		last = err
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, err)
		case <-ticker.C:
		}
	}
}

// Until fails the test unless try succeeds within the limit.
func Until(t testing.TB, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := Poll(t.Context(), limit, try); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// At waits until an instant, in a test whose subject is time itself. To wait for an
// effect, use [Until].
func At(t testing.TB, instant time.Time) {
	t.Helper()
	timer := time.NewTimer(time.Until(instant))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatalf("wait until %v: %v", instant, t.Context().Err())
	}
}
