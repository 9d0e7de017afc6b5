package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/streams"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Redis is wiped again and again under load, and the state comes back from the
// log, without an event being sent a second time.
//
// It fails if a commit does not notice that the partition is not what it was;
// if a rebuild publishes without looking what was published (the duplicate
// window is 100 ms here); if a partition that is being rebuilt answers reads.
func TestG7_WipedAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startBoundedLoad(t, w.Client, 7)
	for range 5 {
		l.wait(t, 300)
		if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l.wait(t, 100)
	l.end()
	w.verify()
	l.verifyStored(t, w.Log())
}

// Redis is killed under load and comes back, empty or with what it had.
//
// It fails if a write is acknowledged to the log as applied before the commit;
// if what comes back older is taken for what was committed; if the processor
// gives up instead of waiting.
func TestG7_RedisDiesAndComesBack(t *testing.T) {
	for name, persistent := range map[string]bool{"persistent": true, "not persistent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := external(t, harness.RedisOptions{Persistent: persistent})
			kept := w.Want(201, wire.Upsert, "kept", "a", `{"v":1}`)
			l := startBoundedLoad(t, w.Client, 70)
			for range 3 {
				l.wait(t, 300)
				w.redis.Kill()
				l.wait(t, 100) // writes go on
				if err := w.Client.Read("count", "kept", "", new(wire.CountReply)); err == nil || strings.HasPrefix(err.Error(), "404") {
					t.Errorf("a read without Redis answers %v, want an error that says so", err)
				}
				harness.Until(t, harness.Limit, "/readyz says that it is not ready", func(ctx context.Context) error {
					if w.lapse.ReadyNow(ctx) == nil {
						return errors.New("it says that it is")
					}
					return nil
				})
				w.redis.Start()
				w.lapse.Ready()
			}
			l.end()
			w.settled("kept", "a", uint64(kept.Etag))
			w.verify()
		})
	}
}

// Redis comes back as it was some time ago: what came since is replayed, and
// nothing is said again.
//
// It fails if an owner trusts what it remembers instead of what Redis holds; if
// outputs are published again because they come after the offset.
func TestG7_AnOlderSnapshot(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startBoundedLoad(t, w.Client, 77)
	for range 3 {
		l.wait(t, 300)
		snapshot := w.redis.Snapshot()
		l.wait(t, 600)
		w.redis.Restore(snapshot)
		l.wait(t, 100)
	}
	l.end()
	w.verify()
}

// While nothing is there yet, a read says so; it never says that a document
// does not exist out of ignorance.
//
// It fails if a reader takes a partition without state for an empty one.
func TestG7_NoNotFoundOutOfIgnorance(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	o := w.Want(201, wire.Upsert, "c", "a", `{}`)
	w.settled("c", "a", uint64(o.Etag))
	w.stopProcessor()
	if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.reader.Get(t.Context(), "c", "a"); !errors.Is(err, sink.ErrUnavailable) {
		t.Errorf("get: %v, want ErrUnavailable", err)
	}
	if _, err := w.reader.Count(t.Context(), "c"); !errors.Is(err, sink.ErrUnavailable) {
		t.Errorf("count: %v, want ErrUnavailable", err)
	}
	w.startProcessor()
	w.settled("c", "a", uint64(o.Etag))
	w.verify()
}

// A log that no longer reaches back to what Redis lacks, or that is another one
// than Redis, or the events, were made from, is refused with the reason; nothing
// is overwritten.
//
// It fails if a start below the log's first sequence, beyond its last, or on a
// log of another creation is taken as it comes.
func TestG7_RefusesAHole(t *testing.T) {
	anew := func(t *testing.T, w *world, gone ...string) {
		t.Helper()
		log, err := w.JS.Stream(t.Context(), w.Prefix.LogStream())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range gone {
			if err := w.JS.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.JS.CreateStream(t.Context(), log.CachedInfo().Config); err != nil {
			t.Fatal(err)
		}
		for i := range 50 { // so that what was applied is within it
			w.Write(wire.Upsert, "c", fmt.Sprint(i), `{}`)
		}
	}
	for name, test := range map[string]struct {
		spoil func(*testing.T, *world)
		want  error
	}{
		"truncated, and Redis is empty": {func(t *testing.T, w *world) {
			log, err := w.JS.Stream(t.Context(), w.Prefix.LogStream())
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Purge(t.Context(), jetstream.WithPurgeSequence(10)); err != nil {
				t.Fatal(err)
			}
			if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}, processor.ErrLogTruncated},
		"made anew": {func(t *testing.T, w *world) {
			anew(t, w, w.Prefix.LogStream())
		}, streams.ErrMismatch},
		"made anew, and the events too": {func(t *testing.T, w *world) {
			anew(t, w, w.Prefix.LogStream(), w.Prefix.EventsStream())
		}, processor.ErrLogChanged},
		"all made anew, but Redis": {func(t *testing.T, w *world) {
			anew(t, w, w.Prefix.LogStream(), w.Prefix.EventsStream(), "KV_"+w.Prefix.CheckpointBucket())
		}, processor.ErrLogChanged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := inProcess(t)
			for i := range 20 {
				w.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
			}
			w.stopProcessor()
			test.spoil(t, w)
			before := redisKeys(t, w.redis)
			p := harness.LaunchProcessor(t, w.nats.URL(), w.redis.Address(), w.opts)
			if err := p.Refused(); !errors.Is(err, test.want) {
				t.Errorf("it ended with %v, want %v", err, test.want)
			}
			if after := redisKeys(t, w.redis); after != before {
				t.Errorf("Redis held %s, and now %s", before, after)
			}
		})
	}
}

// redisKeys tells how much Redis holds.
func redisKeys(t *testing.T, r *harness.Redis) string {
	t.Helper()
	client := r.Client()
	keys, err := client.Keys(t.Context(), "*docs*").Result()
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, key := range keys {
		n, err := client.HLen(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return fmt.Sprintf("%d documents in %d keys", total, len(keys))
}
