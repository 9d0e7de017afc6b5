package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

// TestClockIsNotOverestimated: the estimate keeps the fastest reply, and follows a clock that is
// certainly behind it.
func TestClockIsNotOverestimated(t *testing.T) {
	c := &clock{}
	// answer learns a reply that took so long, from a server whose clock is ahead by an offset
	// when it arrives.
	answer := func(took, offset time.Duration) {
		own := time.Since(begun)
		server := own + offset
		c.learn(layout.Reply{strconv.FormatInt(int64(server/time.Second), 10), strconv.FormatInt(int64(server%time.Second/time.Microsecond), 10)}, own-took)
	}
	near := func(want time.Duration, when string) {
		t.Helper()
		if d := c.offset - want; d > time.Millisecond || d < -time.Second {
			t.Errorf("%s: the offset is %v, want about %v", when, c.offset, want)
		}
	}
	answer(time.Minute, 100*time.Second)
	near(100*time.Second, "a first reply")
	answer(time.Minute, 110*time.Second)
	near(110*time.Second, "a faster reply")
	answer(time.Minute, 90*time.Second)
	near(110*time.Second, "a reply that was slow to come, of a clock that may be as far as before")
	answer(time.Minute, 20*time.Second)
	near(20*time.Second, "a clock that is certainly behind")
}
