package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG7_WipedAgainAndAgain: Redis is wiped again and again under load. lapse rebuilds the state from the log and
// publishes no event a second time.
//
// It fails if a commit does not find that the state is gone; if a rebuild does not look up
// which events were published (the duplicate window is 100 ms here); if a shard answers
// reads while it is being rebuilt.
func TestG7_WipedAgainAndAgain(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startLoad(t, w.Client, 7)
	for range 5 {
		l.wait(t, 300)
		if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	l.wait(t, 100)
	l.end()
	w.verify()
	l.verifyStored(t)
}

// TestG7_RedisDiesAndComesBack: Redis is killed under load and started again, empty or with its data.
//
// It fails if lapse takes an old state of Redis for the committed one; if the processor
// ends instead of waiting.
func TestG7_RedisDiesAndComesBack(t *testing.T) {
	t.Parallel()
	for name, persistent := range map[string]bool{"persistent": true, "not persistent": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := external(t, harness.RedisOptions{Persistent: persistent})
			kept := w.Want(201, wire.Upsert, "kept", "a", `{"v":1}`)
			l := startLoad(t, w.Client, 70)
			for range 3 {
				l.wait(t, 300)
				w.redis.Kill()
				l.wait(t, 100) // clients can still write
				if _, err := readers.ByService(w.NC, w.Prefix).Count(t.Context(), "kept"); err == nil ||
					errors.Is(err, sink.ErrNotFound) {
					t.Errorf("a count while Redis is down returned %v, want that it is not available", err)
				}
				harness.Until(t, harness.Limit, "lapse finds that Redis is down", func(ctx context.Context) error {
					if w.lapse.ReadyNow(ctx) == nil {
						return errors.New("/readyz answers 200")
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

// TestG7_AnOlderSnapshot: Redis comes back with an older state. lapse applies the later messages again and publishes no
// event again.
//
// It fails if an owner relies on its memory instead of the state in Redis; if it publishes
// outputs again because they follow the offset.
func TestG7_AnOlderSnapshot(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startLoad(t, w.Client, 77)
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

// TestG7_NoNotFoundOutOfIgnorance: while a shard has no state, a read answers that it is not available, and never that
// a document does not exist.
//
// It fails if a reader takes a shard without state for an empty one.
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

// TestG7_RefusesAHole: lapse refuses a log that does not reach back to what Redis lacks, and a log that is not the one
// from which Redis or the events were made. It overwrites nothing.
//
// It fails if lapse does not compare the offset with the first and the last sequence of
// the log, or the log's creation time with the one in the state.
func TestG7_RefusesAHole(t *testing.T) {
	t.Parallel()
	recreate := func(t *testing.T, w *world, gone ...string) {
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
		for i := range 50 { // so that the offset of the state lies within the log
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
			recreate(t, w, w.Prefix.LogStream())
		}, processor.ErrMismatch},
		"made anew, and the events too": {func(t *testing.T, w *world) {
			recreate(t, w, w.Prefix.LogStream(), w.Prefix.EventsStream())
		}, processor.ErrLogChanged},
		"all made anew, but Redis": {func(t *testing.T, w *world) {
			recreate(t, w, w.Prefix.LogStream(), w.Prefix.EventsStream(), "KV_"+w.Prefix.CheckpointBucket())
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
				t.Errorf("Redis held %s before the refusal, and %s after it", before, after)
			}
		})
	}
}

// redisKeys returns how many documents Redis holds, in how many keys.
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
