package harness

import (
	"context"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/poll"
)

// Limit is how long a test waits for something that takes no time by itself. It is long
// enough for a busy machine: only a test that fails waits so long.
const Limit = 3 * time.Minute

// Until fails the test unless try succeeds before its error has been the same for the limit (see [poll.Until]).
func Until(t testing.TB, limit time.Duration, what string, try func(context.Context) error) {
	t.Helper()
	if err := poll.Until(t.Context(), limit, try); err != nil {
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
