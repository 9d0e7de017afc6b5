//go:build held

package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/store"
)

// manyKeys is more keys than a scan returns in two parts.
const manyKeys = 2500

// persistent is a redis-server that keeps what it has, and a function that kills it and starts it again. Then the
// client has a connection to the new process.
func persistent(t *testing.T, args ...string) (s redistest.Server, server *harness.Redis, restart func()) {
	t.Helper()
	// With everysec Redis answers before it has written its file, while an earlier fsync takes long.
	server = harness.StartRedis(t, harness.RedisOptions{Persistent: true, Args: append(args, "--appendfsync", "always")})
	s = redistest.Server{Client: server.Client()}
	return s, server, func() {
		server.Kill()
		server.Start()
		redistest.WaitFor(t, "the client connects anew", func() bool { return s.Client.Ping(ctx).Err() == nil })
	}
}

// withMany is a shard that has many keys besides its own, and is being cleared: its version is v1.
func withMany(t *testing.T, s redistest.Server) *rig {
	t.Helper()
	r := newRig(t, s, 1, far)
	setMany(t, r, "docs:before", manyKeys)
	if err := r.Shards[0].Take(ctx, store.State{Version: "v0"}, "v1", store.Clearing); err != nil {
		t.Fatal(err)
	}
	return r
}

// setMany sets n keys of a shard whose names begin alike, and returns the names.
func setMany(t *testing.T, r *rig, begin string, n int) (names []string) {
	t.Helper()
	pipe, base := r.Client.Pipeline(), r.Key(0, "")
	for i := range n {
		names = append(names, fmt.Sprint(base, begin, i))
		pipe.Set(ctx, names[i], "x", 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestHeldClear_Takeover: another process takes the shard over while its keys are removed. The clear is refused, and
// from then on removes and sets nothing.
//
// It fails if the former owner goes on with another version than its own.
func TestHeldClear_Takeover(t *testing.T) {
	held.Each(t, "sink/store.Shard.Clear", held.Takeover, func(t *testing.T, during func(func())) {
		s := redistest.Start(t)
		r := withMany(t, s)
		var taken map[string]string
		during(func() {
			other := store.New(s.Client, r.Prefix, 0, 1)
			at, err := other.Load(ctx)
			if err == nil || errors.Is(err, store.ErrDamaged) { // a removal that has not ended counts as damage
				err = other.Take(ctx, at, "other", at.Rebuild)
			}
			if err != nil {
				t.Fatal(err)
			}
			setMany(t, r, "docs:taken", 10)
			taken = r.Dump()
		})
		err := r.Shards[0].Clear(ctx, "v1", store.State{Version: "v2", Log: "log"}, 0)
		if taken == nil {
			return // it has made fewer calls
		}
		wantErr(t, err, store.ErrFenced, "a clear within which another process has taken over")
		if diff := cmp.Diff(taken, r.Dump()); diff != "" {
			t.Errorf("the former owner has changed the shard of the new one:\n%s", diff)
		}
	})
}

// TestHeldClear_Restart: Redis is started again while the keys of a shard are removed. None is left over.
//
// It fails if the clear goes on from the cursor of another process of Redis, which leaves out keys there.
func TestHeldClear_Restart(t *testing.T) {
	held.Each(t, "sink/store.Shard.Clear", held.Restart, func(t *testing.T, during func(func())) {
		s, _, restart := persistent(t)
		r := withMany(t, s)
		during(restart)
		if err := r.Shards[0].Clear(ctx, "v1", store.State{Version: "v2", Log: "log"}, 0); err != nil {
			t.Fatal(err)
		}
		if left := s.Client.Keys(ctx, "*").Val(); len(left) != 1 {
			t.Errorf("%d keys are left over, such as %v, want the new state alone", len(left), left[0])
		}
	})
}

// TestHeldLeftovers: keys are made and removed, or Redis is started again, while the keys of a shard are listed. Those
// that are there all the time are found, each once, and those that were gone before are not.
//
// It fails if a key of the shard is taken for missing, so that a rebuild begins on what a former log has left.
func TestHeldLeftovers(t *testing.T) {
	for kind := range map[held.Kind]bool{held.Write: true, held.Restart: true} {
		t.Run(kind.String(), func(t *testing.T) {
			held.Each(t, "sink/store.Shard.eachKey", kind, func(t *testing.T, during func(func())) {
				s, _, restart := persistent(t)
				r := newRig(t, s, 1, far)
				gone := setMany(t, r, "docs:gone", 100)
				want := append(setMany(t, r, "docs:before", manyKeys), r.Key(0, "state"))
				if err := s.Client.Del(ctx, gone[:50]...).Err(); err != nil {
					t.Fatal(err)
				}
				during(func() {
					if kind == held.Restart {
						restart()
						return
					}
					setMany(t, r, "docs:during", 10*manyKeys) // so that Redis makes its table larger
					if err := s.Client.Del(ctx, gone[50:]...).Err(); err != nil {
						t.Fatal(err)
					}
				})
				found, err := r.Shards[0].Leftovers(ctx)
				if err != nil {
					t.Fatal(err)
				}
				times := map[string]int{}
				for _, k := range found {
					if times[k]++; times[k] > 1 || slices.Contains(gone[:50], k) {
						t.Errorf("%s is found %d times", k, times[k])
					}
				}
				missing := 0
				for _, k := range want {
					if times[k] == 0 {
						missing++
					}
				}
				if missing > 0 {
					t.Errorf("%d of %d keys are not found", missing, len(want))
				}
			})
		})
	}
}

// TestHeldCount: another process takes the shard over between two parts of a count, which notes the sizes of the
// collections that a fill has written. The count is refused, and notes nothing from then on.
//
// It fails if the sizes of some collections are noted in a shard that another process owns.
func TestHeldCount(t *testing.T) {
	held.Each(t, "sink/store.Shard.Count", held.Takeover, func(t *testing.T, during func(func())) {
		s := redistest.StartMini(t)
		r := newRig(t, s, 1, far)
		p, h := r.Shards[0], store.Header{Ts: 1, Etag: 1}
		var names []string
		var fills []store.CollectionFill
		for i := range 1200 {
			names = append(names, fmt.Sprint("c", i))
			fills = append(fills, store.CollectionFill{Collection: names[i],
				Put: []store.Document{{ID: "a", Value: string(h.Append(nil)) + "{}"}}})
		}
		if err := p.Fill(ctx, "v0", "v1", fills); err != nil {
			t.Fatal(err)
		}
		var taken map[string]string
		during(func() {
			if err := store.New(s.Client, r.Prefix, 0, 1).Take(ctx, store.State{Version: "v1"}, "other", 0); err != nil {
				t.Fatal(err)
			}
			taken = r.Dump()
		})
		full, _, err := p.Count(ctx, "v1", names)
		if taken == nil {
			if err != nil || len(full) != len(names) {
				t.Errorf("of %d collections, %d are counted: %v", len(names), len(full), err)
			}
			return
		}
		wantErr(t, err, store.ErrFenced, "a count within which another process has taken over")
		if after := r.Dump(); !maps.Equal(taken, after) {
			t.Error("the former owner has noted sizes in the shard of the new one")
		}
	})
}

// TestHeldCheck: the server is configured to throw documents away while it is checked, behind the look at the
// permissions or at the version. The check refuses it.
//
// It fails if a check passes for what it has read of the server before.
func TestHeldCheck(t *testing.T) {
	for _, operation := range []string{"sink/store.Shard.Check", "sink/store.checkServer"} {
		t.Run(strings.TrimPrefix(operation, "sink/store."), func(t *testing.T) {
			held.Each(t, operation, held.Write, func(t *testing.T, during func(func())) {
				client, happened := redistest.Start(t).Client, false
				during(func() {
					if err := client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
						t.Fatal(err)
					}
					happened = true
				})
				err := store.New(client, "lapse", 0, 1).Check(ctx)
				if happened {
					wantErr(t, err, store.ErrServer, "a server that may throw documents away")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}
