package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natscluster"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// losses is an installation whose NATS servers lose what they have acknowledged.
type losses struct {
	*world
	r       *rand.Rand
	servers []*harness.NATS
	load    *load
	streams []*jetstream.StreamInfo // log, events, checkpoints and snapshots
	moments []moment
	seen    []oracle.Message // of the log, also those from which it was truncated
	story   []string         // what happened
	dies    bool             // lapse dies at the loss; otherwise it goes on, and hears of it
}

// moment is what the servers had at an instant.
type moment struct {
	nats  []string // a copy of the streams of each server
	redis string
}

func newLosses(t *testing.T, seed uint64, replicas int) *losses {
	t.Helper()
	x := &losses{r: rand.New(rand.NewPCG(seed, 12))}
	flags := []string{"--duplicate-window", duplicateWindow.String()}
	if replicas == 1 {
		x.world = servers(t, harness.RedisOptions{})
		x.servers = []*harness.NATS{x.nats}
		x.lapse = harness.StartLapse(t, x.nats.URL(), x.redis.Address(), flags...)
	} else {
		cluster := natscluster.Start(t, replicas)
		x.world = &world{t: t, redis: harness.StartRedis(t, harness.RedisOptions{})}
		x.servers = cluster.Servers
		x.connect(cluster.URL(), x.redis.Address())
		x.lapse = harness.StartLapse(t, cluster.URL(), x.redis.Address(),
			append(flags, "--replicas", strconv.Itoa(replicas))...)
	}
	x.dies = x.r.IntN(2) == 0
	x.Configure("c0", `{"defaultTtl":1}`)
	x.Configure("kept", `{"defaultTtl":-1}`)
	for _, name := range []string{x.Prefix.LogStream(), x.Prefix.EventsStream(), "KV_" + x.Prefix.CheckpointBucket(),
		x.Prefix.SnapshotStream()} {
		x.streams = append(x.streams, x.info(name))
	}
	x.load = startLoad(t, x.Client, seed)
	return x
}

// info asks about a stream, once all servers that run have all of it.
func (x *losses) info(stream string) (info *jetstream.StreamInfo) {
	x.t.Helper()
	harness.Until(x.t, harness.Limit, "the servers have all of "+stream, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // a leader that is lost does not answer
		defer cancel()
		s, err := x.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		behind := -1 // the leader
		for _, n := range x.servers {
			if n.Running() {
				behind++
			}
		}
		if info.Cluster != nil {
			for _, r := range info.Cluster.Replicas {
				if r.Current && !r.Offline && r.Lag == 0 {
					behind--
				}
			}
		}
		if behind > 0 {
			return fmt.Errorf("%d have not", behind)
		}
		return nil
	})
	return info
}

// note notes what happens.
func (x *losses) note(format string, args ...any) {
	x.story = append(x.story, fmt.Sprintf(format, args...))
}

// remember copies what the servers have, while NATS stands still.
func (x *losses) remember() {
	x.t.Helper()
	m := moment{}
	for _, n := range x.servers {
		n.Stop()
	}
	for _, n := range x.servers {
		m.nats = append(m.nats, n.Copy())
	}
	m.redis = x.redis.Snapshot()
	for _, n := range x.servers {
		n.Continue()
	}
	x.moments = append(x.moments, m)
}

// snapshot takes a snapshot of each shard. Behind the second one lapse truncates the log.
func (x *losses) snapshot() {
	x.t.Helper()
	x.see()
	run(x.t, "snapshot", "--server", x.NC.ConnectedUrl())
	x.note("snapshot")
}

// see notes what the log has, and returns its end.
func (x *losses) see() (end uint64) {
	x.t.Helper()
	for _, m := range x.Log() {
		if end = m.Seq; end > uint64(len(x.seen)) {
			x.seen = append(x.seen, m)
		}
	}
	return end
}

// happens lets clients write, with instants to which the servers go back.
func (x *losses) happens() {
	x.t.Helper()
	snapshots := len(x.servers) == 1 && x.r.IntN(3) == 0
	for range 2 {
		x.load.wait(x.t, 60+x.r.IntN(100))
		if snapshots {
			x.snapshot()
		}
		x.remember()
	}
	x.load.wait(x.t, 1+x.r.IntN(150))
}

// choose chooses for each stream whether it goes back; and to which moment, or -1 for one of its own for each
// server.
func (x *losses) choose() (back []bool, to int) {
	back, to = make([]bool, len(x.streams)), -1
	together := x.r.IntN(4) == 0
	for i := range back {
		back[i] = together || x.r.IntN(3) != 0
	}
	switch {
	case together:
		to, x.dies = x.r.IntN(len(x.moments)), true // a process remembers
	case x.r.IntN(3) == 0:
		back[0] = false
	}
	return back, to
}

// lose kills servers, puts some of their streams back, and starts them. If there are two, the third one is lost for
// good: so they elect leaders that lack the end.
func (x *losses) lose(back []bool, to int, which ...int) {
	x.t.Helper()
	for i, n := range x.servers {
		if len(which) > 1 || i == which[0] {
			n.Kill()
		}
	}
	for k, s := range x.streams {
		if !back[k] {
			continue
		}
		for _, i := range which {
			at := to
			if at < 0 {
				at = x.r.IntN(len(x.moments))
			}
			x.servers[i].PutBack(x.moments[at].nats[i], s)
			x.note("%s of %s to %d", s.Config.Name, x.servers[i].Name(), at)
		}
	}
	for _, i := range which {
		x.servers[i].Launch()
	}
	for _, i := range which {
		x.servers[i].Ready()
	}
	for i, s := range x.streams {
		x.streams[i] = x.info(s.Config.Name)
	}
}

// loseRedis puts Redis back, or empties it, or leaves it as it is if it may.
func (x *losses) loseRedis(to int) {
	x.t.Helper()
	kept := to < 0 && x.r.IntN(2) == 0
	switch {
	case kept:
	case x.r.IntN(2) == 0:
		if err := x.redis.Client().FlushAll(x.t.Context()).Err(); err != nil {
			x.t.Fatal(err)
		}
		x.note("Redis empty")
	default:
		if to < 0 {
			to = x.r.IntN(len(x.moments))
		}
		x.redis.Restore(x.moments[to].redis)
		x.note("Redis to %d", to)
	}
}

// remembered reports whether Redis, a checkpoint or an output names a message behind a sequence of the log.
func (x *losses) remembered(end uint64) bool {
	x.t.Helper()
	client := x.redis.Client()
	keys, err := client.Keys(x.t.Context(), string(x.Prefix)+":*:state").Result()
	if err != nil {
		x.t.Fatal(err)
	}
	var last uint64
	for _, key := range keys {
		offset, err := client.HGet(x.t.Context(), key, "offset").Uint64()
		if err != nil {
			x.t.Fatal(err)
		}
		last = max(last, offset)
	}
	for _, m := range x.Stream("KV_" + x.Prefix.CheckpointBucket()) {
		var checkpoint struct{ Seq uint64 }
		if strings.Contains(m.Subject, ".shard.") && json.Unmarshal(m.Data, &checkpoint) == nil {
			last = max(last, checkpoint.Seq)
		}
	}
	for _, m := range x.Events() {
		id := m.Header.Get("ce-id")
		for _, text := range []string{m.Header.Get(wire.HeaderSeq), id[strings.LastIndexByte(id, '/')+1:]} {
			if seq, err := strconv.ParseUint(text, 10, 64); err == nil {
				last = max(last, seq)
			}
		}
	}
	return last > end
}

// holds is what Redis holds of the shards, by key.
func (x *losses) holds() map[string]string {
	x.t.Helper()
	client, all := x.redis.Client(), map[string]string{}
	keys, err := client.Keys(x.t.Context(), string(x.Prefix)+":{*").Result()
	for _, key := range keys {
		if err == nil {
			all[key], err = client.Dump(x.t.Context(), key).Result()
		}
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return all
}

// lossNames are the names of what a person has to decide.
var lossNames = []string{
	"the log ends before what was applied", "the log is another one", "the log no longer reaches back far enough",
	"the shard is refused", "they cannot be published again",
}

// goesOn waits until lapse goes on, or refuses: then it returns the reason.
func (x *losses) goesOn() (refusal error) {
	x.t.Helper()
	probe := x.Write(wire.Upsert, "kept", "probe", `{}`)
	harness.Until(x.t, harness.Limit, "lapse goes on, or refuses", func(ctx context.Context) error {
		why := x.lapse.ReadyNow(ctx)
		if !x.lapse.Running() && x.lapse.WaitEnded() == 1 {
			why = errors.New(x.lapse.Log())
		}
		if why != nil {
			if slices.ContainsFunc(lossNames, func(name string) bool { return strings.Contains(why.Error(), name) }) {
				refusal = why
				return nil
			}
			return why
		}
		d, err := x.reader.Get(ctx, "kept", "probe")
		if err == nil && d.Etag != wire.Etag(probe) {
			err = fmt.Errorf("version %s is there, want %d", d.Etag, probe)
		}
		return err
	})
	return refusal
}

// everything loses ends of streams on all servers that count, and judges what lapse does.
func (x *losses) everything(which ...int) (outcome string) {
	x.t.Helper()
	x.happens()
	x.load.end()
	before := x.see()
	back, to := x.choose()
	if x.dies {
		x.lapse.Kill()
	} else {
		x.lapse.Stop()
	}
	before = max(before, x.see()) // lapse may have appended a tick
	x.lose(back, to, which...)
	x.loseRedis(to)
	log := x.streams[0].State
	lost, truncated := log.LastSeq < before, log.FirstSeq > 1
	remembered := x.remembered(log.LastSeq)
	if x.seen = x.seen[:min(before, log.LastSeq)]; x.r.IntN(2) == 0 {
		x.note("clients write")
		more := startLoad(x.t, x.Client, x.r.Uint64())
		more.wait(x.t, 1+x.r.IntN(200))
		more.end()
	}
	x.note("lapse dies %v; the log ended at %d, and begins at %d and ends at %d; remembered %v", x.dies, before,
		log.FirstSeq, log.LastSeq, remembered)
	held := x.holds()
	if x.dies {
		x.lapse.Launch()
	} else {
		x.lapse.Continue()
	}
	refusal := x.goesOn()
	snapshots := slices.Contains(x.story, "snapshot")
	switch {
	case refusal == nil && lost && remembered:
		x.t.Error("lapse goes on, and the log has lost messages")
	case refusal != nil && !lost && !truncated:
		x.t.Errorf("lapse refuses, and can go on: %v", refusal)
	case refusal != nil && lost && !remembered && x.dies && !snapshots: // a step that was on its way may remember it
		x.t.Errorf("lapse refuses, and nothing remembers what was lost: %v", refusal)
	}
	if refusal == nil {
		x.wentOn()
		return map[bool]string{true: "went on without what nothing remembers", false: "went on with everything"}[lost]
	}
	if now := x.holds(); x.dies && !maps.Equal(now, held) {
		x.t.Errorf("lapse refuses, and has changed Redis: %v", refusal)
	}
	return "refused"
}

// wentOn verifies that all that follows from the log has come about, each thing once.
func (x *losses) wentOn() {
	x.t.Helper()
	more := startLoad(x.t, x.Client, x.r.Uint64())
	more.wait(x.t, 100)
	more.end()
	x.lapse.Ready()
	if log := x.info(x.Prefix.LogStream()).State; log.FirstSeq > 1 {
		x.before = [][]oracle.Message{x.seen[:log.FirstSeq-1]}
	}
	x.verify()
}

// oneOfThree lets one server of three lose ends of streams, while the others go on.
func (x *losses) oneOfThree() (outcome string) {
	x.t.Helper()
	x.happens()
	back, to := x.choose()
	if x.dies {
		x.lapse.Kill()
	}
	x.lose(back, to, x.r.IntN(len(x.servers)))
	if x.dies {
		x.lapse.Launch()
	}
	x.load.wait(x.t, 50)
	x.load.end()
	if refusal := x.goesOn(); refusal != nil {
		x.t.Errorf("lapse refuses, and two servers have everything: %v", refusal)
		return "refused"
	}
	x.wentOn()
	x.load.verifyStored(x.t)
	return "went on with everything"
}

// TestG12_LossesOnServers: real servers lose ends of streams: each stream goes back to an instant of its own, and Redis
// is kept, goes back or is empty. There is one server; or one of three; or two of three, which elect leaders without
// the end. lapse runs meanwhile or dies, and clients write before it is back or do not. Then it goes on with the whole,
// so that each message of the log counts once; or it refuses by name, and leaves Redis as it is. LAPSE_LOSSES is the
// number of losses (if it is not set 5, and 3 in make test), LAPSE_SEED the first seed (a random one).
//
// It fails if lapse takes what the servers have for the whole without a comparison.
func TestG12_LossesOnServers(t *testing.T) {
	t.Parallel()
	some, fresh := 5, 1+rand.IntN(1<<30)
	if os.Getenv("LAPSE_QUICK") != "" {
		some, fresh = 3, 2 // one of each kind, so that make test is red by what has changed, and not by a rare seed
	}
	n := number(t, "LAPSE_LOSSES", some)
	seed := number(t, "LAPSE_SEED", fresh)
	t.Logf("LAPSE_SEED=%d", seed)
	var mu sync.Mutex
	outcomes := map[string]int{}
	t.Run("losses", func(t *testing.T) {
		for i := range n {
			servers := []string{"one", "one", "one", "one of three", "two of three"}[(seed+i)%5]
			t.Run(fmt.Sprintf("%d %s", seed+i, servers), func(t *testing.T) {
				t.Parallel()
				var x *losses
				var outcome string
				switch servers {
				case "one":
					x = newLosses(t, uint64(seed+i), 1)
					outcome = x.everything(0)
				case "one of three":
					x = newLosses(t, uint64(seed+i), 3)
					outcome = x.oneOfThree()
				default:
					x = newLosses(t, uint64(seed+i), 3)
					outcome = x.everything(x.r.Perm(3)[:2]...)
				}
				t.Logf("%s: %s", strings.Join(x.story, ", "), outcome)
				mu.Lock()
				defer mu.Unlock()
				outcomes[servers+" "+outcome]++
			})
		}
	})
	t.Logf("%d losses: %s", n, counted(outcomes))
}
