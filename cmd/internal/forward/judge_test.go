package forward

import (
	"testing"
	"time"
)

// TestRefused: a message that the receiver calls wrong is tried for minutes, and every other one for as long as the
// user wants.
func TestRefused(t *testing.T) {
	for status, want := range map[int]time.Duration{
		400: refusedFor, 401: refusedFor, 404: refusedFor, 422: refusedFor,
		408: 24 * time.Hour, 425: 24 * time.Hour, 429: 24 * time.Hour, 500: 24 * time.Hour, 503: 24 * time.Hour, 302: 24 * time.Hour,
	} {
		if got := judge(status, "", time.Now()).giveUpAfter(24 * time.Hour); got != want {
			t.Errorf("%d: given up after %s, want %s", status, got, want)
		}
	}
	if got := judge(400, "", time.Now()).giveUpAfter(time.Second); got != time.Second {
		t.Errorf("given up after %s", got)
	}
}
