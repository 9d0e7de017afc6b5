package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// dump is all that Redis holds.
type dump map[string]string

func (r *rig) dump() dump {
	r.t.Helper()
	d := dump{}
	for _, key := range keysOf(r.t, r, "*") {
		v, err := r.redis.Dump(context.Background(), key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		d[key] = v
	}
	return d
}

// restore puts an older state in the place of what Redis holds.
func (r *rig) restore(d dump) {
	r.t.Helper()
	pipe := r.redis.TxPipeline()
	pipe.FlushAll(context.Background())
	for key, v := range d {
		pipe.Restore(context.Background(), key, 0, v)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// onRedis runs a test on the real server alone, where it takes DUMP of hashes and
// sorted sets.
func onRedis(t *testing.T) *rig {
	t.Parallel()
	return newRigOn(t, backends[1], Options{})
}

// TestG7_Flushed wipes Redis in the middle of a history, again and again. It fails if a
// shard without a state goes on from what the process remembers, or if a rebuild
// publishes events again.
func TestG7_Flushed(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		s := &survivor{r: r}
		for i := range 3 {
			s.history(uint64(100+i), 4)
			if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		s.settles()
		r.agrees()
		// Nothing is published a second time, even if the bucket of checkpoints is lost too.
		s.p.stop(t)
		if err := r.js.DeleteKeyValue(t.Context(), prefix.CheckpointBucket()); err != nil {
			t.Fatal(err)
		}
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		s.settles()
		r.agrees()
	})
}

// TestG7_FlushedWhileIdle: a wipe is found although no message comes.
func TestG7_FlushedWhileIdle(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.put("c", "x", `{"v":1}`)
		r.caughtUp(p)
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if got := r.body("c", "x"); got != `{"v":1}` {
			t.Errorf("it reads %q", got)
		}
	})
}

// TestG7_OlderSnapshot: Redis goes back to an older state, while the processor runs and
// while it does not. It fails if a version that is back is taken for the state that the
// process has, or if the events since then are published again.
func TestG7_OlderSnapshot(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			r := onRedis(t)
			s := &survivor{r: r}
			s.history(200, 4)
			first := r.dump()
			s.history(201, 6)
			if !running {
				s.p.stop(t)
			}
			r.restore(first)
			s.settles()
			r.agrees()
			s.history(202, 4)
			r.agrees()
		})
	}
}

// TestG7_KeysLost deletes each kind of key, and each kind of member, while the processor
// runs and while it does not: the shard is rebuilt, or refused with a reason, and no
// read and no event is ever wrong. It fails if a loss is found only after an output was
// computed from it.
func TestG7_KeysLost(t *testing.T) {
	t.Parallel()
	type loss struct {
		name    string
		pattern string
		do      func(r *rig, key string) error
	}
	del := func(r *rig, key string) error { return r.redis.Del(context.Background(), key).Err() }
	hdel := func(field string) func(r *rig, key string) error {
		return func(r *rig, key string) error { return r.redis.HDel(context.Background(), key, field).Err() }
	}
	losses := []loss{
		{"state", "*:state", del}, {"config", "*:config", del}, {"docs", "*:docs:c", del}, {"inherit", "*:inherit:c", del},
		{"own", "*:own:c", del},
		{"version", "*:state", hdel("version")}, {"offset", "*:state", hdel("offset")},
		{"watermark", "*:state", hdel("watermark")},
		{"log", "*:state", hdel("log")}, {"size", "*:state", hdel("size:c")}, {"a configuration", "*:config", hdel("c")},
		{"a document", "*:docs:c", func(r *rig, key string) error {
			fields, err := r.redis.HKeys(context.Background(), key).Result()
			if err != nil || len(fields) == 0 {
				return err
			}
			return r.redis.HDel(context.Background(), key, fields[0]).Err()
		}},
		{"an index member", "*:own:c", func(r *rig, key string) error {
			members, err := r.redis.ZRange(context.Background(), key, 0, 0).Result()
			if err != nil || len(members) == 0 {
				return err
			}
			return r.redis.ZRem(context.Background(), key, members[0]).Err()
		}},
	}
	for i, l := range losses {
		for n, running := range []bool{true, false} {
			if !chosen(i, n) {
				continue
			}
			t.Run(fmt.Sprintf("%s/running %v", l.name, running), func(t *testing.T) {
				t.Parallel()
				// A busy machine may need longer than the TTL until the keys are lost.
				for ttl := 2; ttl <= longestTTL; ttl *= 2 {
					r := newRigOn(t, backends[i%2], Options{})
					p := r.start(nil)
					p.ready(t)
					expires := r.manyExpire(ttl)
					r.caughtUp(p)
					if !running {
						p.stop(t)
					}
					keys := keysOf(t, r, l.pattern)
					for _, key := range keys {
						if err := l.do(r, key); err != nil {
							t.Fatal(err)
						}
					}
					if time.Now().UnixMilli() >= expires {
						t.Logf("the keys were lost too late for a TTL of %d s", ttl)
						p.cancel()
						<-p.done
						continue
					}
					if len(keys) == 0 {
						t.Fatalf("no key %s", l.pattern)
					}
					if !running {
						p = r.start(nil)
					}
					r.rebuiltOrRefused(p)
					return
				}
				t.Fatalf("the keys were lost too late for a TTL of %d s", longestTTL)
			})
		}
	}
}

// manyExpire writes 41 documents of c that expire, and 20 that do not. It returns an instant
// before which none expires.
func (r *rig) manyExpire(ttl int) int64 {
	r.t.Helper()
	configured := r.config("c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl+1)).Ts
	r.config("other", `{"defaultTtl":-1}`)
	for i := range 20 {
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("i", i)), `{"n":1}`)
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("o", i)), fmt.Sprintf(`{"ttl":%d}`, ttl))
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("n", i)), `{"ttl":-1}`)
	}
	r.flush()
	r.put("c", "last", `{}`)
	return int64(configured) + int64(ttl)*1000
}

// rebuiltOrRefused waits until each of the 41 documents of c that expire has had its
// event, and the others are read; or until the processor has a reason why not. There is
// traffic all the time, for a collection that lost nothing.
func (r *rig) rebuiltOrRefused(p *process) {
	r.t.Helper()
	begun, n := time.Now(), 0
	refused := func() bool {
		select {
		case <-p.done:
			return true
		default:
		}
		err := p.Ready()
		return errors.Is(err, store.ErrForeign) || errors.Is(err, ErrLogChanged)
	}
	eventually(r.t, "it is rebuilt or refused", func() bool {
		if n++; n%10 == 0 {
			r.sendAsync(prefix.Write(wire.Upsert, "other", fmt.Sprint("x", n%7)), `{}`)
		}
		return r.storedOf("c") >= 41 || refused() && time.Since(begun) > 100*time.Millisecond
	})
	r.flush()
	if refused() {
		if p.err == nil && p.Ready() == nil {
			r.t.Error("the processor ended without a word")
		}
		if _, err := r.newReader().List(r.t.Context(), "c", sink.ListOptions{}); err == nil {
			r.t.Log("what is left can still be read")
		}
		r.t.Logf("refused: %v %v", p.err, p.Ready())
		p.cancel()
		<-p.done
		return
	}
	r.caughtUp(p)
	r.agrees()
	p.stop(r.t)
}

// TestG7_LogTruncated: a log that begins after the offset is refused, at the start and
// after a wipe. It fails if the reader begins at the beginning of the log instead.
func TestG7_LogTruncated(t *testing.T) {
	truncate := func(t *testing.T, r *rig) {
		t.Helper()
		log, err := r.js.Stream(t.Context(), prefix.LogStream())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Purge(t.Context(), jetstream.WithPurgeKeep(3)); err != nil {
			t.Fatal(err)
		}
	}
	prepare := func(t *testing.T, r *rig) *process {
		p := r.start(nil)
		p.ready(t)
		for i := range 10 {
			r.put("c", fmt.Sprint(i), `{}`)
		}
		r.caughtUp(p)
		return p
	}
	onBoth(t, func(t *testing.T, r *rig) {
		p := prepare(t, r)
		p.stop(t)
		for i := range 10 {
			r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		truncate(t, r)
		r.start(nil).ends(t, ErrLogTruncated)
	})
	t.Run("wiped", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		p := prepare(t, r)
		truncate(t, r)
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p.ends(t, ErrLogTruncated)
	})
}

// A log that was truncated up to messages that are applied does no harm, not even to a
// shard that had no message for long, and has to read again. It fails if a shard
// reads from its last message, and not from how far the log was applied.
func TestTruncatedBehindWhatIsApplied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	for i := range 50 {
		r.put("c", "always the same", fmt.Sprintf(`{"n":%d}`, i)) // three shards get nothing
	}
	r.caughtUp(p)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Purge(t.Context(), jetstream.WithPurgeKeep(3)); err != nil {
		t.Fatal(err)
	}
	p.session.queue.Again() // as a reconnection would
	r.put("c", "x", `{}`)
	r.put("c", "always the same", `{}`)
	p.stop(t)
}

// TestG7_AnotherLog: a log that was deleted and made anew is refused, with Redis as
// it was, and with Redis wiped. It fails if the identity of the log is not kept.
func TestG7_AnotherLog(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				p := r.start(nil)
				p.ready(t)
				for i := range 5 {
					r.put("c", fmt.Sprint(i), `{}`)
				}
				r.caughtUp(p)
				if !running {
					p.stop(t)
				}
				log, err := r.js.Stream(t.Context(), prefix.LogStream())
				if err != nil {
					t.Fatal(err)
				}
				config := log.CachedInfo().Config
				if err := r.js.DeleteStream(t.Context(), prefix.LogStream()); err != nil {
					t.Fatal(err)
				}
				if _, err := r.js.CreateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
				for i := range 20 { // beyond the old one's end
					r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint("new", i)), `{}`)
				}
				if running {
					p.ends(t, ErrLogChanged, ErrStreamGone) // it may look while there is no log
				} else {
					p = r.start(nil)
					<-p.done
				}
				if p.err == nil || !strings.Contains(strings.ToLower(p.err.Error()), "log") {
					t.Errorf("run ended with %v", p.err)
				}
				if got := keysOf(t, r, "*docs:c"); len(got) == 0 {
					t.Error("documents were removed")
				}
				for i := range 20 {
					d, err := r.newReader().Get(t.Context(), "c", fmt.Sprint("new", i))
					if err == nil {
						t.Fatalf("a document of the new log is there: %+v", d)
					}
				}
			})
		})
	}
}
