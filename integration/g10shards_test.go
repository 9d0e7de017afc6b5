package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	lapseclient "github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG10_AShardThatRests: a shard in which nothing happens any more has its last snapshots in a file with those of
// another shard, in which a document is deleted. The bytes of that are in no file soon, though nothing happens in the
// first shard.
//
// It fails if a shard goes by its own documents when it takes snapshots, or, as shard 0, has Redis rewrite its files.
func TestG10_AShardThatRests(t *testing.T) {
	t.Parallel()
	for rests := range 2 {
		t.Run(fmt.Sprint("shard_", rests), func(t *testing.T) {
			t.Parallel()
			w := serversOf(t, harness.RedisOptions{Persistent: true}, 2)
			w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), "--duplicate-window",
				duplicateWindow.String(), "--forget-within", "25s", "--shards", "2")
			w.Configure("c", `{"defaultTtl":-1}`)
			ids := make(map[int]string)
			for n := 0; len(ids) < 2; n++ {
				ids[wire.ShardOf(2, "c", fmt.Sprint("id", n))] = fmt.Sprint("id", n)
			}
			w.Want(201, wire.Upsert, "c", ids[rests], `{"is":"alive"}`)
			w.Want(201, wire.Upsert, "c", ids[1-rests], `{"is":"7d1e3a5f secret"}`)
			conn := connected(t, w)
			harness.Until(t, harness.Limit, "both shards rest", func(ctx context.Context) error {
				state, err := conn.Status(ctx)
				if err != nil {
					return err
				}
				if len(state.Shards) < 2 {
					return errors.New("a shard has no owner")
				}
				for _, s := range state.Shards {
					if s.Retention == nil || s.Retention.Snapshots < 2 || s.Retention.Oldest["snapshots"] > 0 ||
						s.Retention.Oldest["log"] > 0 {
						return fmt.Errorf("shard %d: %+v", s.Shard, s.Retention)
					}
				}
				return nil
			})
			for range 2 { // the second time no file is ended before
				if _, err := conn.Snapshot(t.Context(), func(lapseclient.SnapshotProgress) {}); err != nil {
					t.Fatal(err)
				}
			}
			w.Want(204, wire.Delete, "c", ids[1-rests], "")
			dirs := []string{w.nats.Dir(), w.redis.Dir(), w.lapse.Dir()}
			harness.Until(t, harness.Limit, "the bytes are in no file", func(context.Context) error {
				if files := filesWith(dirs, "7d1e3a5f secret"); len(files) > 0 {
					return fmt.Errorf("they are in %v", files)
				}
				return nil
			})
			if !w.readable("c", ids[rests]) {
				t.Error("the document that lives is gone")
			}
		})
	}
}

// TestG10_Forget: an order to forget lets go at once of what may go, in all shards, although lapse may take 8 days.
// Documents that live stay, and what a document has lost is in no file.
//
// It fails if the order takes fewer snapshots than needed, ends no file of NATS, or does not let Redis rewrite its
// files.
func TestG10_Forget(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			w := serversOf(t, harness.RedisOptions{Persistent: true}, shards)
			w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), "--duplicate-window",
				duplicateWindow.String(), "--shards", fmt.Sprint(shards))
			w.Configure("c", `{"defaultTtl":-1}`)
			w.Want(201, wire.Upsert, "c", "live", `{"is":"alive"}`)
			for n := range 8 {
				w.Want(201, wire.Upsert, "c", fmt.Sprint(n), `{"is":"91c4b7e2 secret"}`)
			}
			conn := connected(t, w)
			if _, err := conn.Snapshot(t.Context(), func(lapseclient.SnapshotProgress) {}); err != nil {
				t.Fatal(err)
			}
			for n := range 8 {
				w.Want(204, wire.Delete, "c", fmt.Sprint(n), "")
			}
			within, cancel := context.WithTimeout(t.Context(), 40*time.Second)
			defer cancel()
			done, err := conn.Forget(within, func(lapseclient.SnapshotProgress) {})
			if err != nil {
				t.Fatalf("%+v: %v", done, err)
			}
			if f := done.Forgotten; f == nil || slices.Contains(f.Left, "log") ||
				slices.Contains(f.Left, "snapshots") || slices.Contains(f.Left, "redis") {
				t.Errorf("left: %+v", f)
			}
			if files := filesWith([]string{w.nats.Dir(), w.redis.Dir(), w.lapse.Dir()},
				"91c4b7e2 secret"); len(files) > 0 {
				t.Errorf("the bytes are in %v", files)
			}
			if !w.readable("c", "live") {
				t.Error("the document that lives is gone")
			}
		})
	}
}

// connected is a client of the servers.
func connected(t *testing.T, w *world) *lapseclient.Client {
	t.Helper()
	conn, err := lapseclient.Connect(lapseclient.Options{Server: w.NC.ConnectedUrl()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}
