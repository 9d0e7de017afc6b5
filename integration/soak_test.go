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

// period is how long something is done: what an environment variable says, or
// what is usual.
func period(t *testing.T, variable string, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%s: want a duration, such as 10m", variable, text)
	}
	return d
}

// gauge is what a process takes.
type gauge struct{ megabytes, goroutines int }

func (g gauge) String() string { return fmt.Sprintf("%d MB, %d goroutines", g.megabytes, g.goroutines) }

func (g gauge) most(other gauge) gauge {
	return gauge{max(g.megabytes, other.megabytes), max(g.goroutines, other.goroutines)}
}

// gauged is what lapse takes now.
func (c *chaos) gauged() gauge {
	return gauge{megabytes(c.t, c.lapse), int(metric(c.t, c.lapse, "go_goroutines"))}
}

// One lapse lives through everything that can happen around it: servers that die
// and stand still, connections that misbehave, Redis wiped, another lapse that
// takes its partitions, under load and changing configurations. In the end the
// oracle agrees, and lapse takes as much as it did in the first third, and no
// more than half of that besides. LAPSE_SOAK is for how long (10 seconds if it is
// not set).
//
// It fails if anything is kept per message, per failure, per reconnection or per
// takeover.
func TestAll_Soak(t *testing.T) {
	t.Parallel()
	long := period(t, "LAPSE_SOAK", 10*time.Second)
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	c := newChaos(t, uint64(seed), true)
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
	t.Logf("%v: %s; %d messages, %d events, %d reads meanwhile; lapse took at most %v in the first third, %v then, %v in the end",
		time.Since(began).Round(time.Second), c.story(), result.Model.Seq(), len(result.Events), c.reads, first, rest, last)
	// They come and go: what a rebuild reads ahead, and the room that the heap is given.
	const someMegabytes, someGoroutines = 128, 100
	if limit := first.megabytes*3/2 + someMegabytes; rest.megabytes > limit {
		t.Errorf("lapse took %d MB, allowed are %d", rest.megabytes, limit)
	}
	if limit := first.goroutines*3/2 + someGoroutines; rest.goroutines > limit {
		t.Errorf("lapse had %d goroutines, allowed are %d", rest.goroutines, limit)
	}
}

// endsLapse are the faults after which the first lapse is another process.
var endsLapse = map[string]bool{
	"lapse killed": true, "lapse killed while it begins": true, "lapse terminated": true, "all killed": true,
}
