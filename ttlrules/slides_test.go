package ttlrules_test

import (
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// A read renews a clock once more than a tenth of the TTL has passed, from where it began.
func TestSlides(t *testing.T) {
	for _, c := range []struct {
		clock    ttlrules.Clock
		deadline int64
		now      int64
		want     bool
	}{
		{ttlrules.Clock{Ts: 1000}, 11000, 1999, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 2000, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 2001, true},
		{ttlrules.Clock{Ts: 5000, Kept: 1000}, 11000, 5000, true},
		{ttlrules.Clock{Ts: 1000, Absolute: 11000}, 11000, 10999, false},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11001}, 11000, 2001, true},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11001}, 11000, 2000, false},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11000}, 11000, 10999, false}, // a touch would not move it
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 5000}, 5000, 4999, false},
		{ttlrules.Clock{Ts: 1000, NotAfter: 11000}, 11000, 10999, false},
	} {
		if got := c.clock.Slides(c.deadline, c.now); got != c.want {
			t.Errorf("%+v with deadline %d at %d: %v", c.clock, c.deadline, c.now, got)
		}
	}
}
