package ttlrules_test

import (
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestKeeps: a version keeps to limits by what it says itself, to the millisecond.
func TestKeeps(t *testing.T) {
	for _, c := range []struct {
		clock       ttlrules.Clock
		least, most int32
		want        bool
	}{
		{ttlrules.Clock{Ts: 1000}, 5, 9, true},
		{ttlrules.Clock{Ts: 1000, TTL: 4}, 5, 9, false},
		{ttlrules.Clock{Ts: 1000, TTL: 5}, 5, 9, true},
		{ttlrules.Clock{Ts: 1000, TTL: 9}, 5, 9, true},
		{ttlrules.Clock{Ts: 1000, TTL: 10}, 5, 9, false},
		{ttlrules.Clock{Ts: 1000, TTL: 10}, 5, 0, true},
		{ttlrules.Clock{Ts: 1000, TTL: 4}, 0, 9, true},
		{ttlrules.Clock{Ts: 1000, TTL: ttlrules.Never}, 5, 0, true},
		{ttlrules.Clock{Ts: 1000, TTL: ttlrules.Never}, 0, 9, false},
		{ttlrules.Clock{Ts: 1000, TTL: 4, Absolute: 6000}, 5, 9, true},
		{ttlrules.Clock{Ts: 1000, TTL: 6, Absolute: 5999}, 5, 9, false},
		{ttlrules.Clock{Ts: 1000, Absolute: 10000}, 5, 9, true},
		{ttlrules.Clock{Ts: 1000, Absolute: 10001}, 5, 9, false},
	} {
		if got := c.clock.Keeps(c.least, c.most); got != c.want {
			t.Errorf("%+v keeps to %d and %d: %t", c.clock, c.least, c.most, got)
		}
	}
}
