package harness

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Limit is how long a test waits for something that takes no time by itself:
// long enough for a busy machine, since a test that passes never waits it out.
const Limit = time.Minute

const pollEvery = 10 * time.Millisecond

// Poll tries until try succeeds. After the limit, or when ctx is done, it
// returns the last error. The context that try gets ends with the limit.
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
			err = last // what was wrong, and not that time was up
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

// At waits until an instant, for tests whose subject is time itself. It is no
// way to wait for something to have happened: see [Until].
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
