package ttlrules_test

import (
	"cmp"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestSlides: a read renews a clock once more than a tenth of the TTL has passed, from where it began.
func TestSlides(t *testing.T) {
	for _, c := range []struct {
		clock    ttlrules.Clock
		deadline int64
		now      int64
		part     float64 // a tenth if 0
		want     bool
	}{
		{ttlrules.Clock{Ts: 1000}, 11000, 1999, 0, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 2000, 0, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 2001, 0, true},
		{ttlrules.Clock{Ts: 5000, Kept: 1000}, 11000, 5000, 0, true},
		{ttlrules.Clock{Ts: 1000, Absolute: 11000}, 11000, 10999, 0, false},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11001}, 11000, 2001, 0, true},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11001}, 11000, 2000, 0, false},
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 11000}, 11000, 10999, 0, false}, // a touch would not move it
		{ttlrules.Clock{Ts: 1000, TTL: 10, NotAfter: 5000}, 5000, 4999, 0, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 6000, 0.5, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 6001, 0.5, true},
		{ttlrules.Clock{Ts: 1000}, 11000, 1100, 0.01, false},
		{ttlrules.Clock{Ts: 1000}, 11000, 1101, 0.01, true},
		{ttlrules.Clock{Ts: 1000}, 11000, 10999, -1, false},           // the collection does not slide
		{ttlrules.Clock{Ts: 1000, Kept: 5000}, 15000, 6000, 0, false}, // renewed before
		{ttlrules.Clock{Ts: 1000, Kept: 5000}, 15000, 6001, 0, true},
		{ttlrules.Clock{Ts: 1000, TTL: 10, Limit: 11001}, 11000, 2001, 0, true},
		{ttlrules.Clock{Ts: 1000, TTL: 10, Limit: 11000}, 11000, 10999, 0, false},
		{ttlrules.Clock{Ts: 1000, NotAfter: 11000}, 11000, 10999, 0, false},
	} {
		if got := c.clock.Slides(c.deadline, c.now, cmp.Or(c.part, 0.1)); got != c.want {
			t.Errorf("%+v with deadline %d at %d: %v", c.clock, c.deadline, c.now, got)
		}
	}
}
