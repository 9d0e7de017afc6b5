package sink_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// replicated is a rig whose reader reads from a replica.
type replicated struct {
	*rig
	master, replica redistest.Server
	replicas        *redis.ClusterClient
	port            string       // of the master
	skew            atomic.Int64 // seconds by which the replica's clock is wrong
}

func newReplicated(t *testing.T, watermark int64) *replicated {
	t.Helper()
	ports := [2]int{freeport.Take(t), freeport.Take(t)}
	start := func(i int) redistest.Server {
		return redistest.Start(t, "--port", strconv.Itoa(ports[i]), "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
	}
	r := &replicated{master: start(0), replica: start(1), port: strconv.Itoa(ports[0])}
	r.rig = newRig(t, r.master, 4, watermark)
	replicas := redis.NewClusterClient(&redis.ClusterOptions{
		MaxRetries: -1, ContextTimeoutEnabled: true, ReadOnly: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: freeport.Address(ports[0])}, {Addr: freeport.Address(ports[1])}}}}, nil
		},
	})
	t.Cleanup(func() { _ = replicas.Close() })
	replicas.OnNewNode(func(node *redis.Client) {
		if strings.HasSuffix(node.Options().Addr, ":"+strconv.Itoa(ports[1])) {
			node.AddHook(clock{&r.skew})
		}
	})
	r.replicas = replicas
	r.Reader = r.another(t)
	r.follow(t, true)
	return r
}

// another makes one more reader.
func (r *replicated) another(t *testing.T) *sink.Reader {
	t.Helper()
	reader, err := sink.NewReader(r.master.Client, sink.ReaderOptions{Prefix: r.Prefix, Partitions: 4, Replicas: r.replicas})
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

// follow lets the replica follow its master, and waits until it has all, or makes it stay
// behind.
func (r *replicated) follow(t *testing.T, follows bool) {
	t.Helper()
	host, port := "NO", "ONE"
	if follows {
		host, port = "127.0.0.1", r.port
	}
	if err := r.replica.Client.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	if follows {
		redistest.WaitFor(t, "the replica has all", func() bool {
			master, _ := r.master.Client.InfoMap(ctx, "replication").Result()
			replica, _ := r.replica.Client.InfoMap(ctx, "replication").Result()
			at := replica["Replication"]["slave_repl_offset"]
			return replica["Replication"]["master_link_status"] == "up" && at != "" && at == master["Replication"]["master_repl_offset"]
		})
	}
}

// by fails the test unless a replica has answered so many scripts of a read, and the master
// so many because the replica was behind, or did not answer.
func (r *replicated) by(t *testing.T, doing string, answered, behind, failed uint64, read func()) {
	t.Helper()
	a, b, f := r.Reader.ReplicaReads()
	read()
	a2, b2, f2 := r.Reader.ReplicaReads()
	if a2-a != answered || b2-b != behind || f2-f != failed {
		t.Errorf("%s: the replica answered %d, was behind for %d, failed %d; want %d, %d, %d", doing, a2-a, b2-b, f2-f, answered, behind, failed)
	}
}

// clock changes the time in the replies of scripts.
type clock struct{ skew *atomic.Int64 }

func (c clock) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c clock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c clock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if script, ok := cmd.(*redis.Cmd); ok && err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			reply, _ := script.Slice()
			head, _ := reply[0].([]any)
			at, _ := head[0].([]any)
			seconds, _ := strconv.ParseInt(at[0].(string), 10, 64)
			at[0] = strconv.FormatInt(seconds+c.skew.Load(), 10)
		}
		return err
	}
}

// TestReplicas_AnswerAsTheMaster: every read has the same answer from a replica.
func TestReplicas_AnswerAsTheMaster(t *testing.T) {
	r := newReplicated(t, far)
	r.WithDefault("orders", 0, 20)
	for i := range 60 {
		r.Put("orders", fmt.Sprint(i), store.Header{Ts: far - int64(i)*1000, Etag: uint64(i + 1), TTL: []ttlrules.TTL{0, 30, -1}[i%3]}, fmt.Sprintf(`{"n":%d}`, i))
	}
	r.follow(t, true)
	r.compare("orders", far)
	if page, err := r.Reader.Collections(ctx, sink.CollectionsOptions{}); err != nil || len(page.Collections) != 1 {
		t.Errorf("collections: %+v, %v", page, err)
	}
	if answered, behind, failed := r.Reader.ReplicaReads(); answered < 100 || behind > 0 || failed > 0 {
		t.Errorf("replicas answered %d scripts, were behind for %d, failed %d", answered, behind, failed)
	}
}

// TestReplicas_TheirClocksDoNotCount: the master's clock judges a document, although a
// replica's is an hour ahead or behind.
func TestReplicas_TheirClocksDoNotCount(t *testing.T) {
	r := newReplicated(t, 1)
	r.WithDefault("orders", 0, -1)
	now := time.Now().UnixMilli()
	r.Put("orders", "live", store.Header{Ts: now, Etag: 1, TTL: 600}, "{}")
	r.Put("orders", "expired", store.Header{Ts: now - 600_000, Etag: 2, TTL: 300}, "{}")
	r.follow(t, true)
	for _, skew := range []int64{-3600, 3600} {
		r.skew.Store(skew)
		r.by(t, "two reads", 2, 0, 0, func() {
			if _, err := r.Reader.Get(ctx, "orders", "live"); err != nil {
				t.Errorf("a replica whose clock is wrong by %d s, the live document: %v", skew, err)
			}
			_, err := r.Reader.Get(ctx, "orders", "expired")
			wantErr(t, err, sink.ErrNotFound, "get an expired document")
		})
	}
}

// TestReplicas_NoneIsReadThatIsBehind: a read has every commit that was made before it. While
// the replica is behind, or does not answer, the master is asked.
func TestReplicas_NoneIsReadThatIsBehind(t *testing.T) {
	r := newReplicated(t, far)
	r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
	etag := func() uint64 {
		t.Helper()
		d, err := r.Reader.Get(ctx, "orders", "a")
		if err != nil {
			t.Fatal(err)
		}
		return uint64(d.Etag)
	}
	r.follow(t, true)
	r.by(t, "a replica that follows", 1, 0, 0, func() { etag() })
	r.follow(t, false)
	r.by(t, "a replica that has all", 1, 0, 0, func() { etag() })
	r.Put("orders", "a", store.Header{Ts: far, Etag: 2}, "{}")
	r.by(t, "a replica that is behind", 0, 1, 0, func() {
		if got := etag(); got != 2 {
			t.Errorf("after the commit of version 2, a read returns version %d", got)
		}
	})
	// An older version of the same state is behind as well, though its offset is not.
	r.follow(t, true)
	r.follow(t, false)
	state := r.Key(wire.Partition(4, "orders", "a"), "state")
	r.master.Client.HSet(ctx, state, "version", "another")
	r.by(t, "a replica that lacks a commit at the same offset", 0, 1, 0, func() { etag() })
	r.master.Client.HSet(ctx, state, "rebuild", "5")
	r.by(t, "a partition that is being rebuilt", 0, 0, 0, func() {
		_, err := r.Reader.Get(ctx, "orders", "a")
		wantErr(t, err, sink.ErrUnavailable, "a partition that is being rebuilt")
	})
	r.master.Client.HSet(ctx, state, "rebuild", "")
	r.follow(t, true)
	r.replica.Pause(t)
	r.by(t, "a replica that does not answer, and then rests", 0, 0, 2, func() { etag(); etag() })
}
