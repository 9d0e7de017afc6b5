package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/rediscluster"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

const redisMasters, redisShards = 3, 4

// onRedis starts lapse on a Redis that is more than one server, and a nats-server. The reader
// reads with the client.
func onRedis(t *testing.T, url string, client redis.UniversalClient, flags ...string) *world {
	t.Helper()
	nats := harness.StartNATS(t, harness.NATSOptions{Shards: redisShards})
	w := &world{t: t, nats: nats, shards: redisShards, Client: harness.NewClient(t, nats.URL(), "")}
	var err error
	if w.reader, err = sink.NewReader(client, sink.ReaderOptions{}); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{"--nats", nats.URL(), "--redis", url, "--shards", strconv.Itoa(redisShards),
		"--duplicate-window", duplicateWindow.String()}, flags...)
	w.lapse = harness.PrepareLapse(t, flags...)
	w.lapse.Start()
	return w
}

// onCluster is onRedis on a cluster of three masters with replicas.
func onCluster(t *testing.T) (*world, *rediscluster.Cluster) {
	t.Helper()
	cluster := rediscluster.Start(t, redisMasters, true)
	return onRedis(t, cluster.URL(), cluster.Client()), cluster
}

// shardOf returns the shard of a document.
func shardOf(collection, id string) int {
	return wire.ShardOf(redisShards, collection, wire.EscapeID(id))
}

// idOn returns the n-th id of a collection that is in a shard.
func idOn(shard, n int, collection string) string {
	for i := 0; ; i++ {
		id := fmt.Sprint("d", i)
		if shardOf(collection, id) != shard {
			continue
		}
		if n--; n < 0 {
			return id
		}
	}
}

// shardsOn returns the shards that a master has, and those of which it has nothing.
func (w *world) shardsOn(master *rediscluster.Node) (on, off []int) {
	w.t.Helper()
	const collection, documents = "probe", 8
	w.Configure(collection, `{"defaultTtl":-1}`)
	for shard := range redisShards {
		for n := range documents {
			w.Want(201, wire.Upsert, collection, idOn(shard, n, collection), `{}`)
		}
	}
	client, ctx := master.Client(), w.t.Context()
	keys, err := client.Keys(ctx, string(w.Prefix)+":{*}:*:"+collection).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	var has [redisShards]int // documents
	for _, key := range keys {
		if kind, err := client.Type(ctx, key).Result(); err != nil {
			w.t.Fatal(err)
		} else if kind != "hash" {
			continue
		}
		ids, err := client.HKeys(ctx, key).Result()
		if err != nil {
			w.t.Fatal(err)
		}
		for _, id := range ids {
			has[shardOf(collection, id)]++
		}
	}
	for shard, n := range has {
		switch n {
		case documents:
			on = append(on, shard)
		case 0:
			off = append(off, shard)
		}
	}
	if len(on) == 0 || len(off) == 0 {
		w.t.Fatalf("a master has %v documents of each shard: want all of one, and none of another", has)
	}
	return on, off
}

// onlooker reads all the time. A document of each shard never changes: a read finds it, or
// is answered that it is not available. No list returns a document after its deadline.
type onlooker struct {
	w     *world
	reads []readers.Reads
	etags []wire.Etag // of the document that never changes, by shard
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu       sync.Mutex
	found    []int           // reads that found the document, by shard
	failed   []int           // reads that were answered that it is not available
	last     []time.Time     // when the last one found it
	gap      []time.Duration // the longest time in which none found it
	lists    int
	problems []string
}

func (w *world) startOnlooker() *onlooker {
	w.t.Helper()
	w.Configure("kept", `{"defaultTtl":-1}`)
	o := &onlooker{
		w: w, reads: []readers.Reads{readers.ByService(w.NC, w.Prefix), readers.ByReader(w.reader)},
		found: make([]int, redisShards), failed: make([]int, redisShards), last: make([]time.Time, redisShards),
		gap: make([]time.Duration, redisShards),
	}
	for shard := range redisShards {
		o.etags = append(o.etags, w.Want(201, wire.Upsert, "kept", idOn(shard, 0, "kept"), `{}`).Etag)
		o.last[shard] = time.Now()
	}
	ctx, stop := context.WithCancel(w.t.Context())
	o.stop = stop
	for shard := range redisShards {
		o.done.Go(func() { o.get(ctx, shard) })
	}
	for _, reads := range o.reads {
		o.done.Go(func() { o.list(ctx, reads) })
	}
	w.t.Cleanup(o.end)
	return o
}

// end stops it, and fails the test with the problems that it has seen.
func (o *onlooker) end() {
	o.stop()
	o.done.Wait()
	for _, problem := range o.problems {
		o.w.t.Error(problem)
	}
	o.problems = nil
}

func (o *onlooker) problem(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.problems) < 10 {
		o.problems = append(o.problems, fmt.Sprintf(format, args...))
	}
}

// every calls do now and then until ctx is done.
func every(ctx context.Context, pause time.Duration, do func(n int)) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do(n)
		}
	}
}

func (o *onlooker) get(ctx context.Context, shard int) {
	id := idOn(shard, 0, "kept")
	every(ctx, 20*time.Millisecond, func(n int) {
		reads := o.reads[n%len(o.reads)]
		reading, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		d, err := reads.Get(reading, "kept", id)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, sink.ErrNotFound):
			o.problem("%s: kept/%s in shard %d is not found", reads, id, shard)
		case err == nil && d.Etag != o.etags[shard]:
			o.problem("%s: kept/%s has version %s, want %s", reads, id, d.Etag, o.etags[shard])
		case err != nil && strings.Contains(err.Error(), ": error 5") && !strings.Contains(err.Error(), ": error 503"):
			o.problem("%s: kept/%s: %v", reads, id, err)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if err != nil {
			o.failed[shard]++
			return
		}
		o.found[shard]++
		o.gap[shard] = max(o.gap[shard], time.Since(o.last[shard]))
		o.last[shard] = time.Now()
	})
}

func (o *onlooker) list(ctx context.Context, reads readers.Reads) {
	every(ctx, 50*time.Millisecond, func(n int) {
		collection := fmt.Sprintf("c%d", n%3)
		began := now()
		all, err := reads.List(ctx, collection)
		if err != nil {
			return
		}
		for _, d := range all {
			if d.ExpiresAt != nil && *d.ExpiresAt <= began {
				o.problem("%s: a list at %s has %s/%s version %s, which expired at %s", reads, began, collection, d.ID,
					d.Etag, d.ExpiresAt)
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.lists++
	})
}

// longest returns the longest time in which no read found the document of a shard, among
// those that are asked for, since restart.
func (o *onlooker) longest(asked func(shard int) bool) (gap time.Duration, found, failed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard := range redisShards {
		if asked(shard) {
			gap, found, failed = max(gap, o.gap[shard], time.Since(o.last[shard])), found+o.found[shard],
				failed+o.failed[shard]
		}
	}
	return gap, found, failed
}

// wait waits until each of some shards was read so often since restart.
func (o *onlooker) wait(least int, asked func(shard int) bool) {
	o.w.t.Helper()
	harness.Until(o.w.t, harness.Limit, fmt.Sprintf("each shard is read %d times", least), func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		for shard, n := range o.found {
			if asked(shard) && n < least {
				return fmt.Errorf("shard %d is read %d times", shard, n)
			}
		}
		return nil
	})
}

func everyShard(int) bool { return true }

// restart forgets what it has counted.
func (o *onlooker) restart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for shard := range redisShards {
		o.found[shard], o.failed[shard], o.gap[shard], o.last[shard] = 0, 0, 0, time.Now()
	}
}

// redisFaults are what happens to a cluster under load.
type redisFaults struct {
	t       *testing.T
	w       *world
	cluster *rediscluster.Cluster
	load    *load
	r       *rand.Rand
	pairs   [redisMasters][2]*rediscluster.Node // the master and the replica now
}

// others are the running nodes besides one.
func (c *redisFaults) others(but *rediscluster.Node) (all []*rediscluster.Node) {
	for _, n := range c.cluster.Nodes {
		if n != but && n.Running() {
			all = append(all, n)
		}
	}
	return all
}

// failOver loses writes: the replica of a master is cut off for a while, and then becomes the
// master. The old master either is killed before, or goes on until it learns of that.
func (c *redisFaults) failOver(kill bool) {
	c.t.Helper()
	pair := &c.pairs[c.r.IntN(redisMasters)]
	master, replica := pair[0], pair[1]
	c.cluster.CutOff(replica, true)
	c.load.wait(c.t, 150)
	if kill {
		master.Kill()
	}
	c.cluster.TakeOver(replica, c.others(replica)...)
	c.cluster.CutOff(replica, false)
	c.load.wait(c.t, 50)
	if kill {
		master.Start()
	}
	c.cluster.Follows(master, replica)
	pair[0], pair[1] = replica, master
}

// move moves the slot of a shard to another master, a key at a time.
func (c *redisFaults) move() {
	c.t.Helper()
	a := c.r.IntN(redisMasters)
	from, to := c.pairs[a][0], c.pairs[(a+1)%redisMasters][0]
	client := from.Client()
	states, err := client.Keys(c.t.Context(), string(c.w.Prefix)+":{*}:state").Result()
	if err != nil || len(states) == 0 {
		c.t.Fatalf("%d shards on the master: %v", len(states), err)
	}
	slot, err := client.ClusterKeySlot(c.t.Context(), states[c.r.IntN(len(states))]).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	c.cluster.Move(int(slot), from, to, 1, func(int) { c.load.wait(c.t, 20) })
}

// TestAll_RedisCluster: a cluster of three masters with replicas moves slots, and fails over to replicas that lack the
// last writes, under load and under reads. At the end the events and documents are those of the oracle, each once.
// LAPSE_REDIS_FAULTS is how often it fails over or moves a slot (3 if it is not set): of 8, 5 and 3.
//
// It fails if a commit stops half-way where a slot is being moved; if a key that another
// master has is taken for lost; if a replica's older state is gone on from as if nothing had
// been published since.
func TestAll_RedisCluster(t *testing.T) {
	t.Parallel()
	n := number(t, "LAPSE_REDIS_FAULTS", 3)
	seed := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", seed)
	w, cluster := onCluster(t)
	o := w.startOnlooker()
	c := &redisFaults{t: t, w: w, cluster: cluster, r: rand.New(rand.NewPCG(uint64(seed), 0))}
	for i := range c.pairs {
		c.pairs[i] = [2]*rediscluster.Node{cluster.Nodes[i], cluster.Replica(i)}
	}
	c.load = startLoad(t, w.Client, uint64(seed))
	c.load.wait(t, 200)
	failovers, moves := 0, 0
	for i := range n {
		o.restart()
		what := "slot moved"
		if i%3 == 1 && moves < 3 {
			c.move()
			moves++
		} else {
			what = "failed over"
			c.failOver(i%2 == 0)
			failovers++
		}
		w.lapse.Ready()
		c.load.wait(t, 50)
		gap, found, failed := o.longest(everyShard)
		t.Logf("%s: the longest time without a read of a shard was %v (%d reads were answered, %d with 503)", what, gap,
			found, failed)
		if t.Failed() {
			break
		}
	}
	c.load.end()
	w.lapse.Ready()
	o.end()
	result := w.verify()
	c.load.verifyStored(t)
	noneDamaged(t, w.lapse)
	t.Logf("%d failovers, %d slots moved: %d messages, %d events, none lost, repeated or early; %s", failovers, moves,
		result.Model.Seq(), len(result.Events), counters(t, w.lapse, "lapse_steps_fenced_total",
			"lapse_shards_damaged_total"))
}

// noneDamaged fails the test if lapse has taken a shard for damaged: an older state is
// whole. It also fails if no write was lost, so that the test has shown nothing.
func noneDamaged(t *testing.T, l *harness.Lapse) {
	t.Helper()
	if !strings.Contains(l.Log(), "the shard is being rebuilt from the log") {
		t.Error("no failover has lost a write")
	}
	if n := metric(t, l, "lapse_shards_damaged_total"); n != 0 {
		t.Errorf("lapse has taken data for damaged %v times, want none", n)
	}
}

// counters returns lines of /metrics.
func counters(t *testing.T, l *harness.Lapse, names ...string) string {
	var lines []string
	for line := range strings.Lines(l.Metrics()) {
		for _, name := range names {
			if strings.HasPrefix(line, name) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(lines, ", ")
}

// TestAll_OneRedisMasterStandsStill: one of three Redis masters stands still for 10 s. The shards on the others go on
// undisturbed: their documents are read, their writes have outcomes, and their events are published; /readyz names the
// master. When it continues, so do its shards.
//
// It fails if a script that waits for one master holds up the scripts of another; if a
// read of any master waits for the slots that are asked for at the one that stands still; if
// reads that wait for one master take the places of all others.
func TestAll_OneRedisMasterStandsStill(t *testing.T) {
	t.Parallel()
	w, cluster := onCluster(t)
	w.Configure("c0", `{"defaultTtl":1}`)
	w.Configure("during", `{"defaultTtl":-1}`)
	w.Configure("after", `{"defaultTtl":-1}`)
	o := w.startOnlooker()
	on, off := w.shardsOn(cluster.Nodes[0])
	moving := func(shard int) bool { return slices.Contains(off, shard) }
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for shard := range redisShards { // in each shard, one document expires after the other
		writing.Go(func() {
			every(ctx, 25*time.Millisecond, func(n int) {
				id := idOn(shard, n%80, "c0")
				_, _ = w.TrySend(ctx, harness.Limit, w.Prefix.Write(wire.Upsert, "c0", id), `{}`, nil)
			})
		})
	}
	defer func() { stop(); writing.Wait() }()
	harness.Until(t, harness.Limit, "documents expire", func(context.Context) error {
		if len(w.Events()) < 4*redisShards {
			return errors.New("few do")
		}
		return nil
	})
	o.restart()
	began := time.Now()
	cluster.Nodes[0].Stop()
	before := len(w.Events())
	// More reads wait for the master that stands still than a process answers at a time.
	waiting := idOn(on[0], 0, "kept")
	for range 2 * service.DefaultConcurrency {
		writing.Go(func() {
			every(ctx, time.Second, func(int) {
				reading, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				_, _ = o.reads[0].Get(reading, "kept", waiting)
			})
		})
	}
	harness.Until(t, harness.Limit, "they are refused at once", func(ctx context.Context) error {
		_, err := o.reads[0].Get(ctx, "kept", waiting)
		if err != nil && strings.Contains(err.Error(), "and other requests wait for it") {
			return nil
		}
		return fmt.Errorf("answer: %v", err)
	})
	harness.At(t, began.Add(10*time.Second))
	unready(t, w.lapse, "Redis: it does not answer: master "+cluster.Nodes[0].Address())
	slowest := w.writeTo("during", off)
	o.wait(100, moving)
	harness.Until(t, harness.Limit, "the others publish events", func(context.Context) error {
		if n := len(w.Events()) - before; n < 300 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	gap, found, failed := o.longest(moving)
	ended := now()
	cluster.Nodes[0].Continue()
	stop()
	writing.Wait()
	w.lapse.Ready()
	w.writeTo("after", on)
	o.end()
	result := w.verify()
	var late time.Duration
	n := 0
	for _, e := range result.Events {
		id, ok := strings.CutPrefix(e.Published(), "lapse.expired.c0.")
		var at wire.Time
		if !ok || !moving(shardOf("c0", id)) || at.UnmarshalText([]byte(e.Header.Get("ce-time"))) != nil {
			continue
		}
		if at < wire.Time(began.UnixMilli()) || at > ended {
			continue
		}
		n++
		late = max(late, time.Duration(e.At-at)*time.Millisecond)
	}
	t.Logf("while one of three masters stood still, with shards %v on it and %v on the others: %d reads of the others "+
		"were answered and %d were not, the longest gap in a shard was %v; the slowest of their writes had its outcome "+
		"after %v; %d of their events, the latest %v after the deadline", on, off, found, failed, gap, slowest, n, late)
}

// writeTo makes ten documents in each of some shards, waits for each outcome, and returns how long the slowest
// took.
func (w *world) writeTo(collection string, shards []int) (slowest time.Duration) {
	w.t.Helper()
	for _, shard := range shards {
		for n := range 10 {
			began := time.Now()
			w.Want(201, wire.Upsert, collection, idOn(shard, n, collection), `{}`)
			slowest = max(slowest, time.Since(began))
		}
	}
	return slowest
}

// TestG9_TakeoverWhileARedisMasterStandsStill: while one of three masters stands still, the owner dies and another
// process starts. It takes the shards over that are on the other masters.
//
// It fails if a process cannot start, or take anything over, until every master answers.
func TestG9_TakeoverWhileARedisMasterStandsStill(t *testing.T) {
	t.Parallel()
	w, cluster := onCluster(t)
	w.Configure("c", `{"defaultTtl":-1}`)
	_, off := w.shardsOn(cluster.Nodes[0])
	cluster.Nodes[0].Stop()
	w.lapse.Kill()
	began := time.Now()
	w.lapse.Launch()
	id := idOn(off[0], 0, "c")
	seq := w.Write(wire.Upsert, "c", id, `{"ttl":1}`)
	w.ExpiryOf("c", id, wire.Etag(seq), harness.Limit)
	t.Logf("the first event came %v after the start", time.Since(began))
	cluster.Nodes[0].Continue()
	w.lapse.Ready()
	w.verify()
}

// onSentinels starts lapse on a master with a replica, and three Sentinels with a password.
func onSentinels(t *testing.T) (*world, *rediscluster.Sentinels) {
	t.Helper()
	s := rediscluster.StartSentinels(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(rediscluster.SentinelPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	client := redis.NewFailoverClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return onRedis(t, s.URL(), client, "--redis-sentinel-password-file", file), s
}

// TestG1_SentinelFailsOver: sentinels fail over to a replica that lacks the last writes, under load and under reads. At
// the end the events and documents are those of the oracle, each once.
//
// It fails if lapse goes on with the old master; if what the replica lacks is taken for lost
// for good.
func TestG1_SentinelFailsOver(t *testing.T) {
	t.Parallel()
	w, s := onSentinels(t)
	o := w.startOnlooker()
	l := startLoad(t, w.Client, 21)
	for range 2 {
		l.wait(t, 200)
		o.restart()
		master, replica, err := s.Master(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client := replica.Client()
		set := func(user string) {
			if err := client.Do(t.Context(), "CONFIG", "SET", "masteruser", user, "masterauth",
				user).Err(); err != nil {
				t.Fatal(err)
			}
		}
		set("nobody")
		if err := master.Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err(); err != nil {
			t.Fatal(err)
		}
		// Few, because the Sentinels promote no replica that was cut off for longer than ten times
		// DownAfter before the master died.
		l.wait(t, 40)
		master.Kill()
		s.Promoted(replica)
		promoted := time.Now()
		o.restart()
		o.wait(1, everyShard)
		t.Logf("every shard was read %v after the Sentinels had promoted the replica", time.Since(promoted))
		set("")
		l.wait(t, 50)
		master.Start()
		s.CaughtUp(master, replica)
		w.lapse.Ready()
		l.wait(t, 50)
		gap, found, failed := o.longest(everyShard)
		t.Logf("Sentinels failed over: the longest time without a read of a shard was %v (%d reads were answered, "+
			"%d with 503)", gap, found, failed)
	}
	l.end()
	w.lapse.Ready()
	o.end()
	result := w.verify()
	l.verifyStored(t)
	noneDamaged(t, w.lapse)
	t.Logf("2 failovers by Sentinel: %d messages, %d events; %s", result.Model.Seq(), len(result.Events),
		counters(t, w.lapse, "lapse_steps_fenced_total", "lapse_shards_damaged_total"))
}

// TestG1_NoCommitWhileASlotMoves: while the slot of a shard is moved to another master, a commit or a removal changes
// nothing or is made as a whole, and a shard whose keys another master has is not taken for empty.
//
// It fails if a script that empties a key, and then uses it, stops half-way; if the keys of a
// shard are looked for at one master alone.
func TestG1_NoCommitWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := rediscluster.Start(t, 2, false)
	from, to := cluster.Nodes[0], cluster.Nodes[1]
	p := store.New(cluster.Client(), wire.DefaultPrefix, 0, 1)
	ctx := t.Context()
	keep := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	version := func() string {
		t.Helper()
		s, err := p.Load(ctx)
		keep(err)
		return s.Version
	}
	keep(p.Take(ctx, store.State{Log: "1"}, "v1", 0))
	header := func(ttl ttlrules.TTL) *store.Header { return &store.Header{Ts: int64(now()), Etag: 1, TTL: ttl} }
	change := func(id string, h *store.Header) store.Change { return store.Change{ID: id, New: h, Body: []byte("{}")} }
	put := []store.CollectionChanges{{Collection: "c", Changes: []store.Change{change("a", header(0)),
		change("b", header(10))}}}
	keep(p.Commit(ctx, store.Progress{Version: "v1", Next: "v2", Offset: 1},
		[]store.ConfigChange{{Collection: "c", Config: &store.Config{}}}, put))
	clean := []store.CollectionChanges{{Collection: "c", Drop: store.DropAll}}
	drop := func(version, next string) error {
		return p.Commit(ctx, store.Progress{Version: version, Next: next, Offset: 2},
			[]store.ConfigChange{{Collection: "c"}}, clean)
	}
	client := from.Client()
	slot, err := client.ClusterKeySlot(ctx, client.Keys(ctx, "lapse:{*}:state").Val()[0]).Result()
	keep(err)
	moved := false
	cluster.Move(int(slot), from, to, 100, func(n int) {
		if n == 0 {
			if err := drop("v2", "v3"); err == nil || version() != "v2" {
				t.Errorf("a commit while the slot is being moved: %v, and the version is %s, want v2", err, version())
			}
			if err := p.Clear(ctx, "v2", store.State{Version: "v3", Log: "1"}, 1); err == nil || version() != "v2" {
				t.Errorf("a removal while the slot is being moved: %v, and the version is %s, want v2", err, version())
			}
			keep(p.Verify(ctx, "v2", []string{"c"}))
			return
		}
		moved = true // all keys are there, and the slot is not yet
		if keys, err := p.Leftovers(ctx); err == nil {
			t.Errorf("while another master has all keys, %d are found", len(keys))
		}
		if v := version(); v != "v2" {
			t.Errorf("while another master has all keys, the version is %q", v)
		}
		keep(p.Verify(ctx, "v2", []string{"c"}))
	})
	if !moved {
		t.Error("no key was moved")
	}
	keep(drop("v2", "v3"))
	harness.Until(t, harness.Limit, "the client knows the new master, which has the state alone",
		func(ctx context.Context) error {
			keys, err := p.Leftovers(ctx)
			if err == nil && len(keys) != 1 {
				err = fmt.Errorf("there are %v", keys)
			}
			return err
		})
}

// TestSecuredSentinel: lapse reaches a Sentinel, and the master that it names, by TLS and with passwords of their own.
// If one of them is wrong, lapse ends with a line that says which.
func TestSecuredSentinel(t *testing.T) {
	t.Parallel()
	const secret, sentinelSecret = "s3cret", "s4cret"
	cert, key := selfSigned(t)
	tls := []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients",
		"no", "--tls-replication", "yes"}
	serverPort, sentinelPort := harness.FreePort(t), harness.FreePort(t)
	server := harness.StartRedis(t, harness.RedisOptions{OwnUsers: true, Args: append([]string{
		"--tls-port", fmt.Sprint(serverPort), "--user", "lapse", "on", ">" + secret, "~*", "&*", "+@all",
	}, tls...)})
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port 0\ntls-port %d\ndir %s\nrequirepass %s\nsentinel monitor m 127.0.0.1 %d 1\n",
		sentinelPort, dir, sentinelSecret, serverPort)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := harness.CustomRedis(t, harness.Custom{Name: "sentinel", Port: sentinelPort,
		Args: append([]string{config, "--sentinel"}, tls...)})
	harness.Until(t, harness.Limit, "the Sentinel runs", func(context.Context) error {
		if !strings.Contains(sentinel.Log(), "+monitor master m ") {
			return errors.New("its log does not say so")
		}
		return nil
	})
	nats := harness.StartNATS(t, harness.NATSOptions{})
	w := &world{t: t, nats: nats}
	w.connect(nats.URL(), server.Address())
	prepare := func(password, sentinelPassword, master string) *harness.Lapse {
		url := fmt.Sprintf("rediss+sentinel://lapse:%s@%s/%s?sentinel_password=%s", password,
			harness.Address(sentinelPort), master, sentinelPassword)
		return harness.PrepareLapse(t, "--nats", nats.URL(), "--redis", url, "--redis-ca", cert, "--duplicate-window",
			duplicateWindow.String())
	}
	w.lapse = prepare(secret, sentinelSecret, "m")
	w.lapse.Start()
	w.Configure("c", `{"defaultTtl":1}`)
	o := w.Want(201, wire.Create, "c", "a", `{}`)
	w.ExpiryOf("c", "a", o.Etag, harness.Limit)
	w.verify()
	if log := w.lapse.Log(); strings.Contains(log, secret) || strings.Contains(log, sentinelSecret) {
		t.Errorf("the log contains a password:\n%s", log)
	}
	for _, wrong := range []struct{ password, sentinelPassword, master, want string }{
		{"wrong", sentinelSecret, "m",
			"the server refuses the user or the password: give others with --redis-user and --redis-password-file"},
		{secret, "wrong", "m",
			"refuses the user or the password: give others with --redis-sentinel-user and " +
				"--redis-sentinel-password-file"},
		{secret, sentinelSecret, "n",
			"do not know a master of the name n: use the name in their line \"sentinel monitor\""},
	} {
		log := prepare(wrong.password, wrong.sentinelPassword, wrong.master).FailsToStart()
		if !strings.Contains(log, wrong.want) || strings.Count(log, "lapse: ") != 1 || strings.Contains(log, secret) ||
			strings.Contains(log, sentinelSecret) {
			t.Errorf("lapse logs %q, want %q", log, wrong.want)
		}
	}
}

// TestG9_ReadsOfAProcessThatStartsWhileARedisMasterStandsStill: while a master stands still, a process starts. It
// answers the reads of the shards that are on the other masters.
//
// It fails if a reader has to ask the first shard, or every shard, before it can read one.
func TestG9_ReadsOfAProcessThatStartsWhileARedisMasterStandsStill(t *testing.T) {
	t.Parallel()
	w, cluster := onCluster(t)
	_, off := w.shardsOn(cluster.Nodes[0])
	w.Configure("kept", `{"defaultTtl":-1}`)
	w.writeTo("kept", off)
	w.lapse.Terminate()
	cluster.Nodes[0].Stop()
	w.lapse.Launch()
	began := time.Now()
	reads := readers.ByService(w.NC, w.Prefix)
	for _, shard := range off {
		harness.Until(t, harness.Limit, fmt.Sprintf("shard %d is read", shard), func(ctx context.Context) error {
			_, err := reads.Get(ctx, "kept", idOn(shard, 0, "kept"))
			return err
		})
	}
	t.Logf("the shards of the other masters were read %v after the start", time.Since(began))
	cluster.Nodes[0].Continue()
	w.lapse.Ready()
	w.verify()
}
