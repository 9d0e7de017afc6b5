package store

import (
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

// answer lets a clock learn a reply that took so long, from a server whose clock is ahead by an offset
// when it arrives.
func answer(c *clock, took, offset time.Duration) {
	own := time.Since(begun)
	server := own + offset
	c.learn(layout.Reply{strconv.FormatInt(int64(server/time.Second), 10),
		strconv.FormatInt(int64(server%time.Second/time.Microsecond), 10)}, own-took)
}

// TestClockIsNotOverestimated: the estimate keeps the fastest reply, and follows a clock that is
// certainly behind it.
func TestClockIsNotOverestimated(t *testing.T) {
	c := &clock{}
	answer := func(took, offset time.Duration) { answer(c, took, offset) }
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

// TestG2_ClockIsForgotten: a measurement counts for clockFor, and then for nothing: the server's clock
// may have been set back since, and readers would still return what an owner takes for expired. After
// that a slower reply takes its place.
//
// It fails if a measurement counts for longer, or if one that is too old is kept.
func TestG2_ClockIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clock{}
		if at := c.shows(); at != math.MinInt64 {
			t.Errorf("nothing was measured, and it shows %d", at)
		}
		answer(c, time.Hour, 100*time.Second)
		first := c.shows()
		time.Sleep(clockFor) // of the bubble: no time passes
		if at := c.shows(); at != first+clockFor.Milliseconds() {
			t.Errorf("after %s it shows %d, and showed %d at first", clockFor, at, first)
		}
		answer(c, time.Hour, 99*time.Second)
		if c.offset.Round(time.Millisecond) != 100*time.Second {
			t.Errorf("after %s the offset is %s", clockFor, c.offset)
		}
		time.Sleep(time.Millisecond)
		if at := c.shows(); at != math.MinInt64 {
			t.Errorf("after more than %s it shows %d", clockFor, at)
		}
		answer(c, time.Hour, 99*time.Second)
		if c.offset.Round(time.Millisecond) != 99*time.Second || c.shows() == math.MinInt64 {
			t.Errorf("measured anew, the offset is %s, and it shows %d", c.offset, c.shows())
		}
	})
}
