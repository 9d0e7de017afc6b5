package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink"
)

// chaos is an installation under load to which things happen: lapse as a
// process, with a nats-server and a redis-server behind proxies, and a second
// lapse at times.
type chaos struct {
	*world
	r               *rand.Rand
	toNATS, toRedis *harness.Proxy
	flags           []string
	load            *load
	reading         sync.WaitGroup
	stopReading     context.CancelFunc
	reads           int
	long            bool // pauses may exceed all timeouts of lapse
	spared          bool // the first lapse is never ended
	seconds         int  // lapses that were started besides the first
	happened        map[string]int
}

func newChaos(t *testing.T, seed uint64, persistent bool) *chaos {
	t.Helper()
	c := &chaos{
		world: servers(t, harness.RedisOptions{Persistent: persistent}), r: rand.New(rand.NewPCG(seed, seed)),
		flags: []string{"--duplicate-window", duplicateWindow.String()}, happened: map[string]int{},
	}
	c.toNATS, c.toRedis = harness.NewProxy(t, harness.Address(c.nats.Port)), harness.NewProxy(t, c.redis.Address())
	c.lapse = c.another()
	c.lapse.Start()
	c.load = startLoadAhead(t, c.Client, seed, 2000) // more than is done in a pause
	ctx, stop := context.WithCancel(t.Context())
	c.stopReading = stop
	c.reading.Go(func() { c.watch(ctx) })
	t.Cleanup(func() { stop(); c.reading.Wait() })
	return c
}

// another is one more lapse, not started yet.
func (c *chaos) another() *harness.Lapse {
	l := harness.PrepareLapse(c.t, append([]string{"--nats", "nats://" + c.toNATS.Address(), "--redis", "redis://" + c.toRedis.Address()}, c.flags...)...)
	l.NATSURL, l.Redis = "nats://"+c.toNATS.Address(), c.toRedis.Address()
	return l
}

// watch reads all the time, and fails the test at what is read at or after its deadline.
func (c *chaos) watch(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for ; ; c.reads++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		collection := fmt.Sprintf("c%d", c.reads%3)
		began := now()
		page, err := c.reader.List(ctx, collection, sink.ListOptions{})
		if err != nil {
			continue // Redis is away, or what is there is being rebuilt
		}
		for _, d := range page.Documents {
			if d.ExpiresAt != nil && *d.ExpiresAt <= began {
				c.t.Errorf("list at %s returned %s/%s version %s, which expired at %s", began, collection, d.ID, d.Etag, d.ExpiresAt)
			}
		}
	}
}

// happen lets something happen, by its name, and waits until lapse is ready
// again and goes on.
func (c *chaos) happen(kind string) {
	c.t.Helper()
	c.happened[kind]++
	faults[kind](c)
	c.lapse.Ready()
	c.load.wait(c.t, 50)
	if c.t.Failed() {
		c.t.Fatalf("after: %s; all that happened: %s", kind, c.story())
	}
}

// story tells how often what happened.
func (c *chaos) story() string { return counted(c.happened) }

func counted(n map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", kind, n[kind]))
	}
	return strings.Join(all, ", ")
}

// end ends the load and holds everything against the oracle.
func (c *chaos) end() oracle.Result {
	c.t.Helper()
	c.load.end()
	c.stopReading()
	c.reading.Wait()
	c.lapse.Ready()
	result := oracle.Verify(c.t, oracle.Options{
		NATS: c.NC, Limit: 3 * time.Minute,
		Reads: []oracle.Reads{oracle.ByReader(c.reader), oracle.ByService(c.NC, c.Prefix)},
	})
	c.load.verifyStored(c.t, c.Log())
	return result
}

// between is a time between two, at random.
func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.r.Int64N(int64(most-least)))
}

// last lets time pass: the time that something lasts is what it is about.
func (c *chaos) last(d time.Duration) { harness.At(c.t, time.Now().Add(d)) }

func (c *chaos) flush() {
	harness.Until(c.t, harness.Limit, "Redis is wiped", func(ctx context.Context) error {
		return c.redis.Client().FlushAll(ctx).Err()
	})
}

func (c *chaos) proxy() *harness.Proxy {
	return []*harness.Proxy{c.toNATS, c.toRedis}[c.r.IntN(2)]
}

// endOne ends one of two lapses, in any way; the other is the one from then on.
func (c *chaos) endOne(other *harness.Lapse) {
	first := c.lapse
	if c.spared || c.r.IntN(2) == 0 {
		first, other = other, first
	}
	c.lapse = other
	if c.r.IntN(2) == 0 {
		first.Kill()
	} else if code := first.Terminate(); code != 0 {
		c.t.Errorf("exit code %d", code)
	}
}

// faults are what can happen. Each leaves behind servers that run and a lapse
// that does.
var faults = map[string]func(c *chaos){
	"lapse killed": func(c *chaos) {
		c.lapse.Kill()
		c.lapse.Start()
	},
	"lapse killed while it begins": func(c *chaos) {
		c.flush() // there is much to be done
		c.lapse.Kill()
		c.lapse.Launch()
		c.last(c.between(0, time.Second))
		c.lapse.Kill()
		c.lapse.Start()
	},
	"lapse terminated": func(c *chaos) {
		if code := c.lapse.Terminate(); code != 0 {
			c.t.Errorf("exit code %d", code)
		}
		c.lapse.Start()
	},
	"nats-server killed": func(c *chaos) {
		c.nats.Kill()
		c.nats.Start()
	},
	"redis-server killed": func(c *chaos) {
		c.redis.Kill()
		c.redis.Start()
	},
	"all killed": func(c *chaos) {
		c.lapse.Kill()
		c.nats.Kill()
		c.redis.Kill()
		c.nats.Start()
		c.redis.Start()
		c.lapse.Start()
	},
	"lapse stopped, replaced and continued": func(c *chaos) {
		pause := c.between(600*time.Millisecond, 2*time.Second) // by then it must doubt what it knows
		if c.long && c.r.IntN(4) == 0 {
			pause = 35 * time.Second
		}
		c.lapse.Stop()
		until := time.Now().Add(pause)
		other := c.second()
		c.load.wait(c.t, 200)
		harness.At(c.t, until)
		c.lapse.Continue()
		c.load.wait(c.t, 200)
		c.endOne(other)
	},
	"two lapses": func(c *chaos) {
		other := c.second()
		c.load.wait(c.t, 500)
		c.endOne(other)
	},
	"redis-server wiped": func(c *chaos) { c.flush() },
	"redis-server stopped and continued": func(c *chaos) {
		c.redis.Stop()
		c.last(c.between(100*time.Millisecond, 3*time.Second))
		c.redis.Continue()
	},
	"nats-server stopped and continued": func(c *chaos) {
		c.nats.Stop()
		c.last(c.between(100*time.Millisecond, 3*time.Second))
		c.nats.Continue()
	},
	"keys of redis-server lost": func(c *chaos) {
		client := c.redis.Client()
		var keys []string
		harness.Until(c.t, harness.Limit, "there are keys to be lost", func(ctx context.Context) (err error) {
			// Just after a wipe there may be none.
			if keys, err = client.Keys(ctx, string(c.Prefix)+":*").Result(); err == nil && len(keys) == 0 {
				err = errors.New("there are none")
			}
			return err
		})
		lost := keys[c.r.IntN(len(keys))]
		if err := client.Del(c.t.Context(), lost).Err(); err != nil {
			c.t.Fatal(err)
		}
		c.last(3 * time.Second) // it is noticed within a second or two
	},
	"connections cut": func(c *chaos) {
		for range 1 + c.r.IntN(5) {
			c.proxy().Cut()
			c.load.wait(c.t, 1+c.r.IntN(50))
		}
	},
	"connection cut within a reply": func(c *chaos) {
		sprung := c.toRedis.CutReply(func(request []byte) bool { return bytes.Contains(bytes.ToLower(request), []byte("evalsha")) }, c.r.IntN(20))
		harness.Until(c.t, harness.Limit, "the reply of a script is cut", func(context.Context) error {
			select {
			case <-sprung:
				return nil
			default:
				return fmt.Errorf("none was")
			}
		})
	},
	"server unreachable": func(c *chaos) {
		p := c.proxy()
		p.Down()
		c.last(c.between(50*time.Millisecond, 2*time.Second))
		p.Up()
	},
	"connections delayed": func(c *chaos) {
		p, way := c.proxy(), harness.Direction(c.r.IntN(2))
		p.Delay(way, c.between(10*time.Millisecond, 200*time.Millisecond))
		c.load.wait(c.t, 200)
		p.Delay(way, 0)
	},
	"connections gone silent": func(c *chaos) {
		pause := c.between(100*time.Millisecond, 2*time.Second)
		if c.long && c.r.IntN(4) == 0 {
			pause = 25 * time.Second
		}
		p := c.proxy()
		p.Hold(harness.Direction(c.r.IntN(2)))
		c.last(pause)
		if c.r.IntN(2) == 0 {
			p.Cut() // what was held is lost
		}
		p.Release()
	},
}

// second starts one more lapse.
func (c *chaos) second() *harness.Lapse {
	c.seconds++
	other := c.another()
	other.Launch()
	// While two take the partitions from each other, neither need ever be ready.
	harness.Until(c.t, harness.Limit, "another lapse has begun", func(context.Context) error {
		if !strings.Contains(other.Log(), "listening") {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	return other
}

// Faults of every kind, one after the other in random order, under load and
// under reads: at the end everything acknowledged is in the log, and the events
// and the documents are those of the oracle, each once. Half of the runs have a
// redis-server that persists, all have the shortest duplicate window.
// LAPSE_FAULTS is how many faults (14 if it is not set), LAPSE_SEED the first
// seed (a random one).
//
// It fails if a commit is not fenced, or the stream of events is not; if what was
// said is looked up nowhere after a takeover; if a lapse that wakes up goes on from what it knew; if a
// partition that lacks what it had is read, or taken for complete.
func TestAll_Faults(t *testing.T) {
	t.Parallel()
	const perRun = 20
	n := number(t, "LAPSE_FAULTS", 14)
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	kinds := slices.Sorted(maps.Keys(faults))
	var order []string
	for r := rand.New(rand.NewPCG(uint64(seed), 0)); len(order) < n; {
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		order = append(order, kinds...)
	}
	runs := max(2, (n+perRun-1)/perRun)
	var mu sync.Mutex
	sum, messages, events, reads := map[string]int{}, 0, 0, 0
	t.Run("runs", func(t *testing.T) {
		for i := range runs {
			persistent := i%2 == 0
			mine := order[n*i/runs : n*(i+1)/runs]
			t.Run(fmt.Sprintf("%d persistent=%v", i, persistent), func(t *testing.T) {
				t.Parallel()
				c := newChaos(t, uint64(seed+i), persistent)
				c.long = n > 50
				c.load.wait(t, 200)
				for _, kind := range mine {
					c.happen(kind)
				}
				result := c.end()
				mu.Lock()
				defer mu.Unlock()
				messages, events, reads = messages+int(result.Model.Seq()), events+len(result.Events), reads+c.reads
				for kind, times := range c.happened {
					if kind == "redis-server killed" && persistent {
						kind += " (persistent)"
					}
					sum[kind] += times
				}
			})
		}
	})
	t.Logf("%d faults in %d runs: %s; %d messages, %d events, %d reads while they ran", n, runs, counted(sum), messages, events, reads)
}
