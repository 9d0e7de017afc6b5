package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// period returns the duration in an environment variable, or the usual one.
func period(t *testing.T, variable string, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%s: use a duration, such as 10m", variable, text)
	}
	return d
}

// gauge is the memory and the goroutines of a process.
type gauge struct{ megabytes, goroutines int }

func (g gauge) String() string { return fmt.Sprintf("%d MB, %d goroutines", g.megabytes, g.goroutines) }

func (g gauge) most(other gauge) gauge {
	return gauge{max(g.megabytes, other.megabytes), max(g.goroutines, other.goroutines)}
}

// gauged returns the gauge of lapse.
func (c *chaos) gauged() gauge {
	return gauge{megabytes(c.t, c.lapse), int(metric(c.t, c.lapse, "go_goroutines"))}
}

// TestAll_Soak: one lapse runs under load and changing configurations while faults happen around it: servers die and
// stand still, connections fail, Redis is wiped, another lapse takes its shard over. At the end the oracle agrees. The
// memory of lapse and its goroutines have grown by no more than half since the first third, plus a constant. LAPSE_SOAK
// is the duration (5 seconds if it is not set).
//
// It fails if lapse keeps anything for each message, failure, reconnection or takeover.
func TestAll_Soak(t *testing.T) {
	t.Parallel()
	long := period(t, "LAPSE_SOAK", 5*time.Second)
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	c := newChaos(t, uint64(seed), true, 1)
	c.spared = true
	kinds := slices.DeleteFunc(slices.Sorted(maps.Keys(faults)), func(kind string) bool { return endsLapse[kind] })
	began := time.Now()
	var first, rest gauge
	for pick := 0; time.Since(began) < long || pick < 3; pick++ {
		if pick%len(kinds) == 0 {
			c.r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		c.happen(kinds[pick%len(kinds)])
		c.load.wait(t, 300)
		if now := c.gauged(); pick == 0 || time.Since(began) < long/3 {
			first = first.most(now)
		} else {
			rest = rest.most(now)
		}
	}
	result := c.end()
	last := c.gauged()
	t.Logf("%v: %s; %d messages, %d events, %d reads meanwhile; lapse used at most %v in the first third, %v later, "+
		"%v at the end",
		time.Since(began).Round(time.Second), c.story(), result.Model.Seq(), len(result.Events), c.reads, first, rest,
		last)
	// For the messages that a rebuild reads ahead, and for the heap before a collection.
	const someMegabytes, someGoroutines = 128, 100
	if limit := first.megabytes*3/2 + someMegabytes; rest.megabytes > limit {
		t.Errorf("lapse used %d MB, want at most %d", rest.megabytes, limit)
	}
	if limit := first.goroutines*3/2 + someGoroutines; rest.goroutines > limit {
		t.Errorf("lapse had %d goroutines, want at most %d", rest.goroutines, limit)
	}
}

// endsLapse are the faults that end the first lapse.
var endsLapse = map[string]bool{
	"lapse killed": true, "lapse killed while it starts": true, "lapse terminated": true, "all killed": true,
}
