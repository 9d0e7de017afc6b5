package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
)

// chaos is an installation under load in which faults happen: a lapse process, a
// nats-server and a redis-server behind proxies, and sometimes a second lapse.
type chaos struct {
	*world
	r               *rand.Rand
	toNATS, toRedis *harness.Proxy
	flags           []string
	load            *load
	reading         sync.WaitGroup
	stopReading     context.CancelFunc
	reads           int
	long            bool // a pause may be longer than every timeout of lapse
	spared          bool // no fault ends the first lapse
	happened        map[string]int
}

func newChaos(t *testing.T, seed uint64, persistent bool, shards int) *chaos {
	t.Helper()
	c := &chaos{
		world: serversOf(t, harness.RedisOptions{Persistent: persistent}, shards), r: rand.New(rand.NewPCG(seed, seed)),
		flags: []string{"--duplicate-window", duplicateWindow.String()}, happened: map[string]int{},
	}
	if shards > 1 {
		c.flags = append(c.flags, "--shards", strconv.Itoa(shards))
	}
	c.toNATS, c.toRedis = harness.NewProxy(t, harness.Address(c.nats.Port)), harness.NewProxy(t, c.redis.Address())
	c.lapse = c.another()
	c.lapse.Start()
	c.load = startLoadAhead(t, c.Client, seed, 2000) // more than it sends in a pause
	ctx, stop := context.WithCancel(t.Context())
	c.stopReading = stop
	c.reading.Go(func() { c.watch(ctx) })
	t.Cleanup(func() { stop(); c.reading.Wait() })
	return c
}

// another makes one more lapse, and does not start it.
func (c *chaos) another() *harness.Lapse {
	l := harness.PrepareLapse(c.t, append([]string{"--nats", "nats://" + c.toNATS.Address(), "--redis", "redis://" +
		c.toRedis.Address()}, c.flags...)...)
	l.NATSURL, l.Redis = "nats://"+c.toNATS.Address(), c.toRedis.Address()
	return l
}

// watch lists collections all the time. It fails the test if a list has a document at or
// after its deadline.
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
			continue // Redis is down, or the shard is being rebuilt
		}
		for _, d := range page.Documents {
			if d.ExpiresAt != nil && *d.ExpiresAt <= began {
				c.t.Errorf("list at %s returned %s/%s version %s, which expired at %s", began, collection, d.ID, d.Etag,
					d.ExpiresAt)
			}
		}
	}
}

// happen makes a fault happen, and waits until lapse is ready again and the load goes on.
func (c *chaos) happen(kind string) {
	c.t.Helper()
	c.happened[kind]++
	faults[kind](c)
	c.lapse.Ready()
	c.load.wait(c.t, 50)
	if c.t.Failed() {
		c.t.Fatalf("after: %s; all faults so far: %s", kind, c.story())
	}
}

// story returns how often each fault happened.
func (c *chaos) story() string { return counted(c.happened) }

func counted(n map[string]int) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", kind, n[kind]))
	}
	return strings.Join(all, ", ")
}

// end stops the load and compares everything with the oracle.
func (c *chaos) end() oracle.Result {
	c.t.Helper()
	c.load.end()
	c.stopReading()
	c.reading.Wait()
	c.lapse.Ready()
	result := oracle.Verify(c.t, oracle.Options{
		NATS: c.NC, Limit: 5 * time.Minute, Settings: oracle.Settings{Shards: c.shards},
		Reads: []readers.Reads{readers.ByReader(c.reader), readers.ByService(c.NC, c.Prefix)},
	})
	c.load.verifyStored(c.t)
	return result
}

// between returns a random duration between two.
func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.r.Int64N(int64(most-least)))
}

// last lets a fault last for a time.
func (c *chaos) last(d time.Duration) { harness.At(c.t, time.Now().Add(d)) }

func (c *chaos) flush() {
	harness.Until(c.t, harness.Limit, "Redis is wiped", func(ctx context.Context) error {
		return c.redis.Client().FlushAll(ctx).Err()
	})
}

func (c *chaos) proxy() *harness.Proxy {
	return []*harness.Proxy{c.toNATS, c.toRedis}[c.r.IntN(2)]
}

// endOne ends one of two lapses, by a signal at random. The test goes on with the other.
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

// faults are the faults by name. After each of them the servers and a lapse run.
var faults = map[string]func(c *chaos){
	"lapse killed": func(c *chaos) {
		c.lapse.Kill()
		c.lapse.Start()
	},
	"lapse killed while it starts": func(c *chaos) {
		c.flush() // so that the start takes long
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
		pause := c.between(600*time.Millisecond, 2*time.Second) // its lease is lost by then
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
		harness.Until(c.t, harness.Limit, "Redis has keys", func(ctx context.Context) (err error) {
			// After a wipe there are none for a moment.
			if keys, err = client.Keys(ctx, string(c.Prefix)+":*").Result(); err == nil && len(keys) == 0 {
				err = errors.New("it has none")
			}
			return err
		})
		lost := keys[c.r.IntN(len(keys))]
		if err := client.Del(c.t.Context(), lost).Err(); err != nil {
			c.t.Fatal(err)
		}
		c.last(3 * time.Second) // lapse finds the loss within one or two seconds
	},
	"connections cut": func(c *chaos) {
		for range 1 + c.r.IntN(5) {
			c.proxy().Cut()
			c.load.wait(c.t, 1+c.r.IntN(50))
		}
	},
	"connection cut within a reply": func(c *chaos) {
		sprung := c.toRedis.CutReply(func(request []byte) bool {
			return bytes.Contains(bytes.ToLower(request),
				[]byte("evalsha"))
		}, c.r.IntN(20))
		select {
		case <-sprung:
		case <-time.After(harness.Limit):
			c.t.Fatal("no script was called")
		}
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
			p.Cut() // the data that was held is lost
		}
		p.Release()
	},
}

// second starts one more lapse, and waits until it listens.
func (c *chaos) second() *harness.Lapse {
	other := c.another()
	other.Launch()
	harness.Until(c.t, harness.Limit, "another lapse listens", func(context.Context) error {
		if !strings.Contains(other.Log(), "listening") {
			return errors.New("its log does not say so")
		}
		return nil
	})
	return other
}

// TestAll_Faults: faults of every kind happen one after the other, in random order, under load and under reads. At the
// end every acknowledged message is in the log, and the events and documents are those of the oracle, each once. In
// half of the runs redis-server persists, and in half of them there are three shards. All runs have the shortest
// duplicate window. LAPSE_FAULTS is the number of faults (7 if it is not set), LAPSE_SEED the first seed (a random
// one).
//
// It fails if the commit or the events stream is not fenced; if a new owner does not look
// up which events were published; if a lapse that was stopped goes on with old state; if a
// shard that has lost keys is read or taken for complete.
func TestAll_Faults(t *testing.T) {
	t.Parallel()
	const perRun = 20
	n := number(t, "LAPSE_FAULTS", 7)
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
			shards := 1 + 2*((i+i/2+seed)%2)
			t.Run(fmt.Sprintf("%d persistent=%v shards=%d", i, persistent, shards), func(t *testing.T) {
				t.Parallel()
				c := newChaos(t, uint64(seed+i), persistent, shards)
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
	t.Logf("%d faults in %d runs: %s; %d messages, %d events, %d reads while they ran", n, runs, counted(sum), messages,
		events, reads)
}
