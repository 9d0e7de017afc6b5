package sink_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestCheck: a Redis that may throw documents away is refused, and says why.
func TestCheck(t *testing.T) {
	client := startRedis(t)
	store := sink.NewStore(client, "lapse", 1)
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "allkeys-random", "noeviction"} {
		if err := client.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		err := store.Check(ctx)
		if policy == "noeviction" {
			if err != nil {
				t.Errorf("%s: %v", policy, err)
			}
			continue
		}
		wantErr(t, err, sink.ErrServer, policy)
		if !strings.Contains(err.Error(), policy) {
			t.Errorf("%s: the error is %v", policy, err)
		}
	}
	mini := miniredis.RunT(t)
	embedded := redis.NewClient(&redis.Options{Addr: mini.Addr(), MaxRetries: -1})
	defer func() { _ = embedded.Close() }()
	if err := sink.NewStore(embedded, "lapse", 1).Check(ctx); err != nil {
		t.Errorf("miniredis: %v", err)
	}
}

// TestReads: what readers read is counted, what partitions do is not; and where a
// server does not count, nothing is.
func TestReads(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		r.put("orders", "a", sink.Header{Ts: 1, Etag: 1}, "{}")
		reader := r.newReader()
		for range 3 {
			if _, err := reader.Get(ctx, "orders", "a"); err != nil {
				t.Fatal(err)
			}
		}
		before, err := r.store.Reads(ctx)
		if err != nil {
			t.Fatal(err)
		}
		const reads = 10
		var many sync.WaitGroup // so that some share a round trip
		for range reads {
			many.Go(func() {
				if _, err := reader.Get(ctx, "orders", "a"); err != nil {
					t.Error(err)
				}
			})
		}
		many.Wait()
		r.put("orders", "b", sink.Header{Ts: 1, Etag: 1}, "{}")
		after, err := r.store.Reads(ctx)
		if err != nil {
			t.Fatal(err)
		}
		want := uint64(reads)
		if s.mini != nil {
			want = 0
		}
		if after-before != want {
			t.Errorf("%d reads are counted, want %d", after-before, want)
		}
	})
}

// TestG9_OutOfMemory: a Redis that is full refuses a step that writes documents,
// as a whole; but a step that only removes some goes through, or what has expired
// could never make room, and the partition can be taken over.
//
// Goes red if such a script's first write is a command that Redis refuses when it
// is full, or if another's is not.
func TestG9_OutOfMemory(t *testing.T) {
	client := startRedis(t)
	r := newRig(t, server{client: client}, 1, far)
	r.withDefault("orders", 0, 60)
	r.putMany("orders", 500, 1)
	r.put("orders", "own", sink.Header{Ts: 1, Etag: 1, TTL: 5}, "{}")
	if err := client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	before := r.dump()
	p := r.store.Partition(0)
	for name, c := range map[string]sink.CollectionChanges{
		"a write":   {Changes: []sink.Change{r.change("orders", "new", &sink.Header{Ts: 1, Etag: 1}, []byte("{}"))}},
		"a renewal": {Changes: []sink.Change{r.change("orders", "own", &sink.Header{Ts: 2, Etag: 1, TTL: 5}, nil)}},
		"an index":  {Index: []sink.Change{{ID: "own", Old: &sink.Header{Ts: 9}}}},
	} {
		c.Collection = "orders"
		if err := p.Commit(ctx, r.progress(0), nil, []sink.CollectionChanges{c}); !redis.HasErrorPrefix(unwrapped(err), "OOM") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := p.Commit(ctx, r.progress(0), []sink.ConfigChange{{Collection: "more", Config: &sink.Config{}}}, nil); !redis.HasErrorPrefix(unwrapped(err), "OOM") {
		t.Errorf("a configuration: error %v", err)
	}
	if diff := cmp.Diff(before, r.dump()); diff != "" {
		t.Fatalf("something was applied:\n%s", diff)
	}
	if _, err := r.reader.Count(ctx, "orders"); err != nil {
		t.Errorf("count: %v", err)
	}
	// A takeover, and a reap.
	if err := p.Take(ctx, sink.State{Version: r.state[0].Version}, "taken", 0); err != nil {
		t.Fatalf("take: %v", err)
	}
	r.state[0].Version = "taken"
	due, err := p.Due(ctx, "taken", []sink.Cut{cut("orders", far)}, 1000, 1<<20, true)
	if err != nil || len(due[0].IDs) != 501 {
		t.Fatalf("due: %v", err)
	}
	var gone []sink.Change
	for i, id := range due[0].IDs {
		gone = append(gone, sink.Change{ID: id, Old: &due[0].Documents[i].Header})
	}
	r.commit(0, nil, sink.CollectionChanges{Collection: "orders", Changes: gone})
	if count, err := r.reader.Count(ctx, "orders"); err != nil || count != (wire.CountReply{}) {
		t.Errorf("count after the reap: %+v, %v", count, err)
	}
	r.configure("orders", nil) // a drop
}

// unwrapped is the error that Redis answered.
func unwrapped(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

// TestMemory holds the layout against the plain one that everybody knows: SET with
// PX, one key per document. Everything counts: documents, indexes, state.
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
		client := startRedis(t)
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
	client := startRedis(t)
	warm := newRig(t, server{client: client}, 1, far) // the scripts count for nothing
	warm.put("orders", "a", sink.Header{Ts: 1, Etag: 1}, "{}")
	before := usedMemory(t, client)
	r := newRig(t, server{client: client}, sink.DefaultPartitions, far)
	r.withDefault("orders", 0, 3600)
	for from := 0; from < n; from += 2000 {
		var changes []sink.Change
		for i, id := range ids[from : from+2000] {
			changes = append(changes, sink.Change{ID: id, New: &sink.Header{Ts: 1_790_000_000_123 + int64(from+i), Etag: uint64(from + i + 1)}, Body: body})
		}
		r.write("orders", changes...)
	}
	ours := float64(usedMemory(t, client)-before) / n
	t.Logf("%.1f bytes per document, of which %d are its body; SET with PX takes %.1f: %.3f times that", ours, len(body), plain, ours/plain)
	for _, kind := range []string{"docs:orders", "inherit:orders"} {
		sum := int64(0)
		for p := range r.n {
			sum += client.MemoryUsage(ctx, r.key(p, kind), 0).Val()
		}
		t.Logf("%s: %.1f bytes per document, as a %s", kind, float64(sum)/n, client.ObjectEncoding(ctx, r.key(0, kind)).Val())
	}
	if ours > most*plain {
		t.Errorf("a document takes %.3f times what SET with PX does: allowed are %.1f", ours/plain, most)
	}
}

// usedMemory is what Redis has allocated, once nothing is being freed or rehashed.
func usedMemory(t *testing.T, client *redis.Client) int64 {
	t.Helper()
	last := int64(-1)
	same := 0
	eventually(t, func() bool {
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
