package ttlrules_test

import (
	"fmt"
	"time"

	"github.com/seed18712806/lapse/ttlrules"
)

func ExampleParseTTL() {
	for _, value := range []string{`3600`, `-1`, `null`, `1.5`} {
		ttl, err := ttlrules.ParseTTL([]byte(value))
		fmt.Println(ttl, err)
	}
	// Output:
	// 3600 <nil>
	// -1 <nil>
	// 0 <nil>
	// 0 ttl 1.5 is not valid: use a whole number of seconds from 1 to 2147483647, or -1 for never.
}

// A default of ten minutes is raised to an hour. What had expired by then stays
// expired; what had not lives for an hour from its last write.
func ExampleHistory() {
	at := func(clock string) int64 {
		t, _ := time.Parse(time.TimeOnly, clock)
		return t.UnixMilli()
	}
	var h ttlrules.History
	h = h.With(at("12:00:00"), 1, 600)
	h = h.With(at("12:30:00"), 2, 3600)

	for _, written := range []string{"12:05:00", "12:25:00"} {
		x, _ := h.ExpiredAt(ttlrules.Clock{Ts: at(written)})
		fmt.Println("written", written, "expired", time.UnixMilli(x.At).UTC().Format(time.TimeOnly), "after", x.TTL)
	}
	// Output:
	// written 12:05:00 expired 12:15:00 after 600
	// written 12:25:00 expired 13:25:00 after 3600
}

// Documents that inherit are indexed by the instant of their last write. Which of
// them are expired is one comparison with the cut, and no document is touched when
// the default changes.
func ExampleHistory_Cuts() {
	index := []int64{1_000, 40_000, 70_000} // the ts of three documents
	now := int64(100_000)

	h := ttlrules.History{}.With(0, 1, 60)
	for _, next := range []ttlrules.History{h, h.With(now, 2, 30)} {
		cuts := next.Cuts(now)
		fmt.Print("cut ", cuts.Inherit, ", expired:")
		for _, ts := range index {
			if ts <= cuts.Inherit {
				fmt.Print(" ", ts)
			}
		}
		fmt.Println()
	}
	// Output:
	// cut 40000, expired: 1000 40000
	// cut 70000, expired: 1000 40000 70000
}
