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

// TestAdmits: a version with a kept clock may not come to the index where the cut of an epoch that ended before it was
// written reaches it: it would be taken for expired. One that is expired may.
func TestAdmits(t *testing.T) {
	ten := ttlrules.History{}.With(0, 1, 10)
	never, off := ten.With(20_000, 2, ttlrules.NoDefault), ten.With(20_000, 2, ttlrules.Off)
	for name, tt := range map[string]struct {
		h    ttlrules.History
		c    ttlrules.Clock
		want bool
	}{
		"one epoch":                           {ten[1:], ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 1}, true},
		"inherits, no kept clock":             {never, ttlrules.Clock{Seq: 9, Ts: 21_000}, true},
		"inherits, kept, under the cut":       {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 5000}, false},
		"the same in a band":                  {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 5000, Band: 1}, false},
		"inherits, kept, at the cut":          {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 10_000}, false},
		"inherits, kept, behind the cut":      {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 10_001}, true},
		"a TTL that has run out":              {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 5000, TTL: 10}, true},
		"a TTL that runs":                     {never, ttlrules.Clock{Seq: 9, Ts: 21_000, Kept: 5000, TTL: 30}, true},
		"TTL off, a deadline at the change":   {off, ttlrules.Clock{Seq: 9, Ts: 20_000, Kept: 10_000, TTL: 10}, false},
		"TTL off, a deadline behind it":       {off, ttlrules.Clock{Seq: 9, Ts: 20_000, Kept: 10_001, TTL: 10}, true},
		"TTL off, written behind the change":  {off, ttlrules.Clock{Seq: 9, Ts: 20_001, Kept: 10_000, TTL: 10}, true},
		"TTL off, never":                      {off, ttlrules.Clock{Seq: 9, Ts: 20_000, Kept: 10_000, TTL: ttlrules.Never}, true},
		"TTL off, inherits, under the cut":    {off, ttlrules.Clock{Seq: 9, Ts: 30_000, Kept: 9000}, false},
		"TTL off, an absolute one, long over": {off, ttlrules.Clock{Seq: 9, Ts: 30_000, Absolute: 9000}, true},
	} {
		if got := tt.h.Admits(tt.c); got != tt.want {
			t.Errorf("%s: admitted %t, want %t", name, got, tt.want)
		}
	}
}
