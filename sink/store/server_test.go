package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// TestCheck: Check refuses a Redis that may evict documents, and names the setting.
func TestCheck(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client
	s := store.New(client, "lapse", 0, 1)
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "allkeys-random", "noeviction"} {
		if err := client.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		err := s.Check(ctx)
		if policy == "noeviction" {
			if err != nil {
				t.Errorf("%s: %v", policy, err)
			}
			continue
		}
		wantErr(t, err, store.ErrServer, policy)
		if !strings.Contains(err.Error(), policy) {
			t.Errorf("%s: the error is %v", policy, err)
		}
	}
	if err := store.New(redistest.StartMini(t).Client, "lapse", 0, 1).Check(ctx); err != nil {
		t.Errorf("embedded: %v", err)
	}
}

// TestMemoryOfTheServer: Memory is what Redis uses and its limit, which the embedded one does not tell.
// Of a cluster the master counts that comes to its limit first.
func TestMemoryOfTheServer(t *testing.T) {
	client := redistest.Start(t).Client
	s := store.New(client, "lapse", 0, 1)
	for _, limit := range []int64{0, 1 << 30} {
		if err := client.ConfigSet(ctx, "maxmemory", strconv.FormatInt(limit, 10)).Err(); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Memory(ctx); err != nil || m.Limit != limit || m.Used < 100_000 || m.Used > 1<<30 {
			t.Errorf("with a limit of %d: %+v, %v", limit, m, err)
		}
	}
	if m, err := store.New(redistest.StartMini(t).Client, "lapse", 0, 1).Memory(ctx); err != nil || m != (store.Memory{}) {
		t.Errorf("embedded: %+v, %v", m, err)
	}
	inOrder := []store.Memory{{Used: 1}, {Used: 9}, {Used: 1, Limit: 9}, {Used: 2, Limit: 9}, {Used: 2, Limit: 5}}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if a.Fuller(b) != (i > j) {
				t.Errorf("%+v is fuller than %+v: %v", a, b, a.Fuller(b))
			}
		}
	}
}

// TestTimeOfASilentCluster: no master tells its time before the caller's context ends. Then the caller has an error: else
// documents would be judged by a time that no server has told.
func TestTimeOfASilentCluster(t *testing.T) {
	ended, end := context.WithCancel(ctx)
	defer end()
	tested, release := context.WithCancel(ctx)
	client := redis.NewClusterClient(&redis.ClusterOptions{MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "master:1"}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			end() // the master was asked
			<-tested.Done()
			return nil, tested.Err()
		}})
	defer func() { _ = client.Close() }()
	defer release()
	if now, err := store.New(client, "lapse", 0, 1).Time(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it is %s, %v", now, err)
	}
}

// TestG9_OutOfMemory: a Redis that is full refuses a step that writes documents, as a whole. It
// accepts a step that only removes some, so that expired documents make room, and a
// takeover.
//
// Goes red if the first write of such a script is a command that a full Redis refuses, or if the
// first write of another script is one that it accepts.
func TestG9_OutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client
	r := newRig(t, server, 1, far)
	r.WithDefault("orders", 0, 60)
	r.PutMany("orders", 500, 1)
	r.Put("orders", "own", store.Header{Ts: 1, Etag: 1, TTL: 5}, "{}")
	if err := client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	before := r.Dump()
	p := r.Shards[0]
	for name, c := range map[string]store.CollectionChanges{
		"a write":   {Changes: []store.Change{r.Change("orders", "new", &store.Header{Ts: 1, Etag: 1}, []byte("{}"))}},
		"a renewal": {Changes: []store.Change{r.Change("orders", "own", &store.Header{Ts: 2, Etag: 1, TTL: 5}, nil)}},
	} {
		c.Collection = "orders"
		if err := p.Commit(ctx, r.Next(0), nil, []store.CollectionChanges{c}); !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := p.Commit(ctx, r.Next(0), []store.ConfigChange{{Collection: "more", Config: &store.Config{}}},
		nil); !errors.Is(err, store.ErrFull) {
		t.Errorf("a configuration: error %v", err)
	}
	if diff := cmp.Diff(before, r.Dump()); diff != "" {
		t.Fatalf("something was applied:\n%s", diff)
	}
	if _, err := r.Reader.Count(ctx, "orders"); err != nil {
		t.Errorf("count: %v", err)
	}
	// A takeover, and a reap.
	if err := p.Take(ctx, store.State{Version: r.At[0].Version}, "taken", 0); err != nil {
		t.Fatalf("take: %v", err)
	}
	r.At[0].Version = "taken"
	// A drop of what still has something due, there and back.
	for _, names := range [][2]string{{"orders", "orders.7"}, {"orders.7", "orders"}} {
		r.Commit(0, []store.ConfigChange{{Collection: names[0]}, {Collection: names[1], Config: &store.Config{}}},
			store.CollectionChanges{Collection: names[0], Drop: store.DropMoves}, store.CollectionChanges{Collection: names[1]})
	}
	due, err := p.Due(ctx, r.At[0].Version, []store.Cut{cut("orders", far)}, 1000, 1<<20, true)
	if err != nil || len(due[0].IDs) != 501 {
		t.Fatalf("due: %v", err)
	}
	var gone []store.Change
	for i, id := range due[0].IDs {
		gone = append(gone, store.Change{ID: id, Old: &due[0].Documents[i].Header})
	}
	r.Commit(0, nil, store.CollectionChanges{Collection: "orders", Changes: gone})
	if count, err := r.Reader.Count(ctx, "orders"); err != nil || count.Live != 0 || count.Expired != 0 {
		t.Errorf("count after the reap: %+v, %v", count, err)
	}
	r.Configure("orders", nil) // a drop
}

// TestMemory compares the memory for documents, indexes and state with that for SET with PX, one
// key for each document.
func TestMemory(t *testing.T) {
	const (
		n    = 100_000
		most = 1.2
	)
	ids := make([]string, n)
	for i := range ids {
		var b [16]byte
		_, _ = rand.Read(b[:])
		ids[i] = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	}
	body := []byte(`{"a":"` + strings.Repeat("x", 248) + `"}`)
	plain := func() float64 {
		server := redistest.Start(t)
		client := server.Client
		before := usedMemory(t, client)
		for from := 0; from < n; from += 1000 {
			if _, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, id := range ids[from : from+1000] {
					pipe.Set(ctx, "orders:"+id, body, time.Hour)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		return float64(usedMemory(t, client)-before) / n
	}()
	server := redistest.Start(t)
	client := server.Client
	warm := newRig(t, server, 1, far) // the scripts count for nothing
	warm.Put("orders", "a", store.Header{Ts: 1, Etag: 1}, "{}")
	before := usedMemory(t, client)
	r := newRig(t, server, 1, far)
	r.WithDefault("orders", 0, 3600)
	for from := 0; from < n; from += 2000 {
		var changes []store.Change
		for i, id := range ids[from : from+2000] {
			changes = append(changes, store.Change{ID: id, New: &store.Header{Ts: 1_790_000_000_123 + int64(from+i),
				Etag: uint64(from + i + 1)}, Body: body})
		}
		r.Write("orders", changes...)
	}
	ours := float64(usedMemory(t, client)-before) / n
	t.Logf("%.1f bytes per document, of which %d are its body; SET with PX takes %.1f: %.3f times that", ours, len(body),
		plain, ours/plain)
	for _, kind := range []string{"docs:orders", "inherit:orders"} {
		sum := int64(0)
		for p := range r.N {
			sum += client.MemoryUsage(ctx, r.Key(p, kind), 0).Val()
		}
		t.Logf("%s: %.1f bytes per document, as a %s", kind, float64(sum)/n, client.ObjectEncoding(ctx, r.Key(0, kind)).Val())
	}
	if ours > most*plain {
		t.Errorf("a document takes %.3f times what SET with PX does: allowed are %.1f", ours/plain, most)
	}
}

// usedMemory is the memory that Redis uses, once it frees and rehashes nothing more. The scripts are
// flushed before: Redis 8 counts what they left in Lua, which is megabytes until Lua collects it.
func usedMemory(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	if err := client.Do(ctx, "SCRIPT", "FLUSH", "SYNC").Err(); err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	same := 0
	redistest.WaitFor(t, "Redis frees nothing more", func() bool {
		info, err := client.InfoMap(ctx, "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		used, err := strconv.ParseInt(info["Memory"]["used_memory_dataset"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		overhead, err := strconv.ParseInt(info["Memory"]["used_memory_overhead"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if used += overhead; used == last {
			same++
		} else {
			same = 0
		}
		last = used
		return same > 20
	})
	return last
}

// TestRedisIsGone: every call fails, and within its context's deadline.
func TestRedisIsGone(t *testing.T) {
	calls := func(r *rig, ctx context.Context) map[string]error {
		errs := map[string]error{}
		p := r.Shards[0]
		_, errs["load"] = p.Load(ctx)
		errs["take"] = p.Take(ctx, store.State{}, "v", 0)
		errs["verify"] = p.Verify(ctx, "v0", nil)
		errs["commit"] = p.Commit(ctx, r.Next(0), nil, nil)
		_, errs["due"] = p.Due(ctx, r.At[0].Version, nil, 1, 1, true)
		_, errs["read"] = p.ReadDocuments(ctx, "v0", nil)
		errs["clear"] = p.Clear(ctx, "v", store.State{}, 0)
		_, errs["leftovers"] = p.Leftovers(ctx)
		errs["check"] = p.Check(ctx)
		return errs
	}
	t.Run("stopped", func(t *testing.T) {
		server := redistest.Start(t)
		r := newRig(t, server, 2, far)
		server.Client.ShutdownNoSave(ctx)
		for name, err := range calls(r, ctx) {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
	t.Run("silent", func(t *testing.T) {
		server := redistest.Start(t)
		r := newRig(t, server, 2, far)
		server.Pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		for name, err := range calls(r, ctx) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
