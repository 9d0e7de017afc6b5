package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natscluster"
	"github.com/seed18712806/lapse/sink/wire"
)

// clustered is an installation under load: three nats-servers, and lapses of which one owns
// the log. Every stream and bucket has three replicas.
type clustered struct {
	*world
	cluster  *natscluster.Cluster
	all      []*harness.Lapse
	load     *load
	r        *rand.Rand
	happened map[string]int
	changes  int // of the leader of a stream
}

func newClustered(t *testing.T, seed uint64, lapses int) *clustered {
	t.Helper()
	return newClusteredOn(t, natscluster.Start(t, 3), seed, lapses)
}

// newClusteredOn is newClustered on servers that were started.
func newClusteredOn(t *testing.T, cluster *natscluster.Cluster, seed uint64, lapses int) *clustered {
	t.Helper()
	c := &clustered{
		world:   &world{t: t, redis: harness.StartRedis(t, harness.RedisOptions{})},
		cluster: cluster, r: rand.New(rand.NewPCG(seed, 0)), happened: map[string]int{},
	}
	c.connect(c.cluster.URL(), c.redis.Address())
	for range lapses {
		l := harness.StartLapse(t, c.cluster.URL(), c.redis.Address(), "--replicas", "3", "--duplicate-window",
			duplicateWindow.String())
		c.all = append(c.all, l)
	}
	c.lapse = c.all[0]
	c.Configure("c0", `{"defaultTtl":1}`)
	c.load = startLoadAhead(t, c.Client, seed, 1000)
	return c
}

// streams are those that lapse needs.
func (c *clustered) streams() []string {
	return []string{c.Prefix.LogStream(), c.Prefix.EventsStream(), "KV_" + c.Prefix.CheckpointBucket(), "KV_" +
		c.Prefix.MembersBucket()}
}

// stream is one of the streams, mostly that of events.
func (c *clustered) stream() string {
	all := append(c.streams(), c.Prefix.EventsStream(), c.Prefix.EventsStream())
	return all[c.r.IntN(len(all))]
}

// leaders are the indexes of the servers that lead the streams.
func (c *clustered) leaders() (all []int) {
	c.t.Helper()
	for _, stream := range c.streams() {
		all = append(all, c.cluster.Leader(c.JS, stream))
	}
	return all
}

// happen lets a fault happen, and waits until lapse goes on.
func (c *clustered) happen(kind string, fault func()) {
	c.t.Helper()
	c.happened[kind]++
	before := c.leaders()
	fault()
	for i, leader := range c.leaders() {
		if leader != before[i] {
			c.changes++
		}
	}
	c.load.wait(c.t, 100)
	if c.t.Failed() {
		c.t.Fatalf("after: %s; all faults so far: %s", kind, counted(c.happened))
	}
}

// last waits for a while, in which the load goes on as it can.
func (c *clustered) last(least, most time.Duration) {
	harness.At(c.t, time.Now().Add(least+time.Duration(c.r.Int64N(int64(most-least)))))
}

// owner waits until one of the lapses owns the log.
func (c *clustered) owner() *harness.Lapse {
	c.t.Helper()
	var owner *harness.Lapse
	harness.Until(c.t, harness.Limit, "one lapse owns the log", func(context.Context) error {
		for _, l := range c.all {
			if n, err := metricNow(l, `lapse_shard_owner{shard="0"}`); err == nil && n == 1 {
				owner = l
				return nil
			}
		}
		return errors.New("none does")
	})
	return owner
}

// end ends the load, and verifies everything: every acknowledged message is in the log,
// events and documents are those of the oracle, and all replicas are the same.
func (c *clustered) end() {
	c.t.Helper()
	c.load.end()
	fenced := 0.0
	for _, l := range c.all {
		l.Ready()
		fenced += metric(c.t, l, "lapse_steps_fenced_total")
	}
	result := c.verify()
	c.load.verifyStored(c.t)
	c.cluster.CompareReplicas()
	batches := 0
	for _, e := range result.Events {
		if e.Header.Get("Nats-Batch-Commit") != "" {
			batches++
		}
	}
	latest := slices.Max(append(result.Lateness, 0))
	c.t.Logf("%s; %d changes of the leader of a stream: %d messages, %d events and rejections, of which %d batches, "+
		"%.0f steps fenced; events lost, repeated, early: 0, late by %s at most",
		counted(c.happened), c.changes, result.Model.Seq(), len(result.Events), batches, fenced,
		latest.Round(time.Millisecond))
}

// TestG1_LeadersOfStreamsAreMovedAndKilled: the leader of each stream and bucket steps down, and those of the log and
// of the events are killed, under load. Every write takes effect once, and every event is published once.
//
// It fails if lapse does not go on with the remaining servers; if a replicated stream
// refuses the way in which lapse publishes.
func TestG1_LeadersOfStreamsAreMovedAndKilled(t *testing.T) {
	t.Parallel()
	c := newClustered(t, 5, 1)
	c.load.wait(t, 200)
	for _, stream := range c.streams() {
		c.happen("leader stepped down", func() { c.cluster.StepDown(c.NC, stream) })
	}
	for _, stream := range c.streams()[:2] {
		c.happen("leader killed", func() {
			leader := c.cluster.Servers[c.cluster.Leader(c.JS, stream)]
			leader.Kill()
			c.load.wait(t, 200)
			leader.Start()
		})
	}
	c.end()
}

// clusterFaults are the faults by name. The load goes on meanwhile, and some time passes
// after each.
var clusterFaults = map[string]func(c *clustered){
	"leader stepped down": func(c *clustered) {
		c.cluster.StepDown(c.NC, c.stream())
	},
	"leader killed": func(c *clustered) {
		leader := c.cluster.Servers[c.cluster.Leader(c.JS, c.stream())]
		leader.Kill()
		c.load.wait(c.t, 100)
		leader.Start()
	},
	"leader stopped and continued": func(c *clustered) {
		leader := c.cluster.Servers[c.cluster.Leader(c.JS, c.stream())]
		leader.Stop()
		c.last(time.Second, 8*time.Second)
		leader.Continue()
	},
	"server split off": func(c *clustered) {
		server := c.cluster.Leader(c.JS, c.stream())
		c.cluster.Split(server, c.r.IntN(2) == 0)
		c.last(time.Second, 8*time.Second)
		c.cluster.Join(server)
	},
	"owner stopped and continued": func(c *clustered) {
		owner := c.owner()
		owner.Stop()
		c.last(600*time.Millisecond, 3*time.Second) // the other one takes the log over
		owner.Continue()
	},
}

// TestAll_NATSClusterFaults: faults of every kind happen to a cluster of three nats-servers and the two lapses on it,
// in random order and under load, with the shortest duplicate window. At the end every acknowledged message is in the
// log, and events and documents are those of the oracle: none is lost, repeated or early. LAPSE_CLUSTER_FAULTS is the
// number of faults (5 if it is not set), LAPSE_SEED the seed (a random one).
//
// It fails if the stream of events is not fenced on replicas; if an answer of a server that
// is out of date is believed; if lapse waits for an answer that a lost leader owes it.
func TestAll_NATSClusterFaults(t *testing.T) {
	t.Parallel()
	kinds := slices.Sorted(maps.Keys(clusterFaults))
	n := number(t, "LAPSE_CLUSTER_FAULTS", len(kinds))
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	c := newClustered(t, uint64(seed), 2)
	began := time.Now()
	for i := range n {
		if i%len(kinds) == 0 {
			c.r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		}
		kind := kinds[i%len(kinds)]
		t.Logf("%s: %s", time.Since(began).Round(100*time.Millisecond), kind)
		c.happen(kind, func() { clusterFaults[kind](c) })
	}
	c.end()
}

// TestG11_ASplitServerIsLeft: the network splits a server off from the two others, each in turn. Whatever connection
// the only lapse has to it stays up, but JetStream does not answer through it. lapse goes to another server: writes
// take effect, events come and reads are answered while the server is split off.
//
// It fails if lapse waits for the split to end.
func TestG11_ASplitServerIsLeft(t *testing.T) {
	t.Parallel()
	cluster := natscluster.Start(t, 3)
	w := &world{t: t, redis: harness.StartRedis(t, harness.RedisOptions{})}
	w.connect(cluster.URL(), w.redis.Address())
	w.lapse = harness.StartLapse(t, cluster.URL(), w.redis.Address(), "--replicas", "3")
	w.Configure("c", `{"defaultTtl":-1}`)
	for server := range cluster.Servers {
		w.lapse.Ready()
		var others []string
		for i, n := range cluster.Servers {
			if i != server {
				others = append(others, n.URL())
			}
		}
		cluster.Split(server, false)
		client := harness.NewClient(t, strings.Join(others, ","), "")
		write := func(id, body string) (seq uint64) {
			harness.Until(t, harness.Limit, "the log has a write", func(ctx context.Context) error {
				// A publication on its way to the leader that was split off is lost.
				ack, err := client.TrySend(ctx, 3*time.Second, client.Prefix.Write(wire.Upsert, "c", id), body, nil)
				if err == nil {
					seq = ack.Sequence
				}
				return err
			})
			return seq
		}
		id := fmt.Sprint(server)
		client.ExpiryOf("c", id, wire.Etag(write(id, `{"ttl":1}`)), harness.Limit)
		w.settled("c", "kept"+id, write("kept"+id, `{}`))
		if !client.Found("c", "kept"+id) {
			t.Error("a document is not read")
		}
		w.lapse.Ready()
		cluster.Join(server)
	}
	if !strings.Contains(w.lapse.Log(), "connecting to another one") {
		t.Error("lapse has left no server: the test shows nothing")
	}
	w.verify()
	cluster.CompareReplicas()
}
