package processor

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// A default that is set reaches documents that are there, from their _ts: those
// that are past it expire at the instant of the change, the others when their time
// comes.
func TestG3_AShorterDefaultReachesWhatIsThere(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		r.config("c", `{"defaultTtl":3600}`)
		old := r.put("c", "old", `{}`)
		own := r.put("c", "own", `{"ttl":3600}`)
		eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(old.Ts)+1000 })
		r.sendAsync(prefix.Write(wire.Upsert, "c", "young"), `{}`) // just before the change
		change := r.config("c", `{"defaultTtl":1}`)
		for _, e := range r.waitEvents("c", 2) {
			want := map[string]wire.Time{"old": change.Ts, "young": max(e.Ts+1000, change.Ts)}[e.ID]
			if e.ExpiredAt != want || e.TTL != 1 {
				t.Errorf("%s expired at %s by %d, want %s by 1", e.ID, e.ExpiredAt, e.TTL, want)
			}
		}
		d, err := r.reader.Get(t.Context(), "c", "own")
		if err != nil || d.ExpiresAt == nil || *d.ExpiresAt != *own.ExpiresAt {
			t.Errorf("a document with a TTL of its own is %+v, %v", d, err)
		}
	})
}

// Off stops all expiry, own TTLs included; on again, they count again, and what is
// past its time expires at the instant of the change.
func TestG5_OffAndOnAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		r.sendAsync(prefix.Config("c"), `{"defaultTtl":-1}`)
		r.sendAsync(prefix.Write(wire.Upsert, "c", "own"), `{"ttl":5}`)
		r.sendAsync(prefix.Write(wire.Upsert, "c", "inherits"), `{}`)
		off := r.config("c", `{}`)
		r.put("c", "odd", `{"ttl":"soon"}`)
		eventually(t, "the deadline passes", func() bool { return time.Now().UnixMilli() > int64(off.Ts)+5000 })
		if r.body("c", "own") == "" {
			t.Error("a document expired while TTL was off")
		}
		change := r.config("c", `{"defaultTtl":-1}`)
		e := r.waitEvents("c", 1)[0]
		if e.ID != "own" || e.ExpiredAt != change.Ts || e.TTL != 5 {
			t.Errorf("%s expired at %s, want own at %s", e.ID, e.ExpiredAt, change.Ts)
		}
		if r.body("c", "inherits") == "" || r.body("c", "odd") == "" {
			t.Error("a document without a TTL expired where there is no default")
		}
	})
}

// TestG5_ARaiseBringsNothingBack: a document that has expired stays expired, reaped or
// not, whatever configuration comes later. It fails if only the present default decides.
func TestG5_ARaiseBringsNothingBack(t *testing.T) {
	for _, raised := range []string{`{"defaultTtl":3600}`, `{"defaultTtl":-1}`, `{}`} {
		t.Run(raised, func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				p := r.start(nil)
				p.ready(t)
				r.config("c", `{"defaultTtl":1}`)
				x := r.put("c", "x", `{}`)
				p.stop(t) // so that nothing is reaped before the change
				eventually(t, "the deadline passes", func() bool { return time.Now().UnixMilli() >= int64(*x.ExpiresAt) })
				r.send(prefix.Config("c"), raised)
				r.send(prefix.Write(wire.Touch, "c", "x"), ``)
				p = r.run()
				if e := r.waitEvents("c", 1)[0]; e.ExpiredAt != *x.ExpiresAt {
					t.Errorf("it expired at %s, want %s", e.ExpiredAt, *x.ExpiresAt)
				}
				r.caughtUp(p)
				if r.body("c", "x") != "" {
					t.Error("it is there again")
				}
			})
		})
	}
}

// When a default is removed, live documents stay.
func TestDefaultRemovedKeepsWhatIsAlive(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.sendAsync(prefix.Config("c"), `{"defaultTtl":5}`)
		r.sendAsync(prefix.Write(wire.Upsert, "c", "x"), `{}`)
		off := r.config("c", `{"defaultTtl":null}`)
		eventually(t, "the deadline passes", func() bool { return time.Now().UnixMilli() > int64(off.Ts)+5000 })
		r.put("c", "y", `{}`) // time goes on in the log
		r.caughtUp(p)
		if r.body("c", "x") == "" || len(r.events("c")) != 0 {
			t.Error("it expired")
		}
	})
}

// A drop removes live documents without events. Documents that had expired by then, and
// were not reaped yet, still get their event.
func TestG3_Drop(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":-1}`)
		var last wire.Outcome
		for i := range 30 {
			last = r.put("c", fmt.Sprint("dead", i), `{"ttl":1}`)
			r.put("c", fmt.Sprint("live", i), `{"ttl":3600}`)
		}
		p.stop(t)
		eventually(t, "the deadlines pass", func() bool { return time.Now().UnixMilli() >= int64(*last.ExpiresAt) })
		r.send(prefix.Drop("c"), ``)
		p = r.run()
		for _, e := range r.waitEvents("c", 30) {
			if string(e.Document) != `{"ttl":1}` {
				t.Errorf("event %+v", e)
			}
		}
		r.caughtUp(p)
		if r.body("c", "live1") != "" {
			t.Error("a dropped document is there")
		}
		c, err := r.reader.Config(t.Context(), "c")
		if err != nil || c.DefaultTTL != nil {
			t.Errorf("configuration after the drop: %+v, %v", c, err)
		}
		r.must(204, prefix.Drop("c"), ``)
		if n := len(keysOf(t, r, "*:c")); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// TestG3_NoneCostsNothing: while the indexing mode is none, no default may be set, and nothing expires. The index is
// kept all the same: what was written meanwhile is counted and listed, and expires as soon as TTL is on.
func TestG3_NoneCostsNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"indexingMode":"none"}`)
		const n = 3000
		for i := range n {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"ttl":1}`)
		}
		r.flush()
		stays := r.put("c", "stays", `{}`)
		r.caughtUp(p)
		if count, err := r.reader.Count(t.Context(), "c"); err != nil || count.Live != n+1 || count.Expired != 0 {
			t.Errorf("count while the mode is none: %+v, %v", count, err)
		}
		r.must(400, prefix.Config("c"), `{"defaultTtl":1}`)
		eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(stays.Ts)+1000 })
		change := r.config("c", `{"indexingMode":"consistent","defaultTtl":null}`)
		forecast, err := r.reader.Forecast(t.Context(), "c", sink.ForecastOptions{Default: new(ttlrules.NoDefault)})
		if err != nil || *forecast.AtOnce != n {
			t.Errorf("forecast at once after none: %+v, %v", forecast.AtOnce, err)
		}
		change = r.config("c", `{"defaultTtl":-1}`)
		r.send(prefix.Write(wire.Upsert, "c", "late"), `{"ttl":1}`)
		events := r.waitEvents("c", n+1)
		for _, e := range events {
			if e.ID != "late" && e.ExpiredAt != change.Ts {
				t.Fatalf("%s expired at %s, want %s", e.ID, e.ExpiredAt, change.Ts)
			}
		}
		if r.body("c", "stays") == "" {
			t.Error("a document without TTL expired")
		}
		c, err := r.reader.Config(t.Context(), "c")
		if err != nil || c.IndexingMode != wire.Consistent {
			t.Errorf("configuration: %+v, %v", c, err)
		}
	})
}

// Configurations that are not allowed are rejected, and change nothing.
func TestConfigRejections(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		for _, bad := range []string{
			``, `[]`, `{"defaultTtl":0}`, `{"defaultTtl":1.5}`, `{"defaultTtl":"1"}`, `{"defaultTtl":-2}`,
			`{"defaultTtl":2147483648}`,
			`{"defaultTTL":1}`, `{"indexingMode":"eager"}`, `{"indexingMode":null}`, `{"indexingMode":"none","defaultTtl":1}`,
		} {
			r.must(400, prefix.Config("c"), bad)
		}
		r.config("c", `{"defaultTtl":60}`)
		r.must(400, prefix.Config("c"), `{"indexingMode":"none"}`)
		r.config("n", `{"indexingMode":"none"}`)
		r.must(400, prefix.Config("n"), `{"defaultTtl":60}`)
		c, err := r.reader.Config(t.Context(), "c")
		if err != nil || c.DefaultTTL == nil || *c.DefaultTTL != 60 || c.IndexingMode != wire.Consistent {
			t.Errorf("configuration of c: %+v, %v", c, err)
		}
		n, err := r.reader.Config(t.Context(), "n")
		if err != nil || n.DefaultTTL != nil || n.IndexingMode != wire.NoIndex {
			t.Errorf("configuration of n: %+v, %v", n, err)
		}
	})
}

// Indexing mode lazy is stored and reported, and has the guarantees of consistent.
func TestG3_LazyIsConsistent(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		r.config("c", `{"indexingMode":"none"}`)
		r.put("c", "x", `{"ttl":1}`)
		r.config("c", `{"indexingMode":"lazy"}`)
		r.config("c", `{"indexingMode":"lazy","defaultTtl":-1}`)
		r.put("c", "y", `{"ttl":1}`)
		r.waitEvents("c", 2)
		c, err := r.reader.Config(t.Context(), "c")
		if err != nil || c.IndexingMode != wire.Lazy || *c.DefaultTTL != -1 {
			t.Errorf("configuration: %+v, %v", c, err)
		}
		r.must(400, prefix.Config("c"), `{"indexingMode":"none"}`)
	})
}

// TestConfigOutcomeComesAfterTheCommit: the outcome of a configuration comes when it is committed, so a read
// right after it finds it.
func TestConfigOutcomeComesAfterTheCommit(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	held, release := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(release) })
	var hold atomic.Bool
	p := r.start(func(here crash.Point) error {
		if here == crash.BeforeCommit && hold.CompareAndSwap(true, false) {
			close(held)
			<-release
		}
		return nil
	})
	t.Cleanup(goOn) // before the processor is stopped
	p.ready(t)
	hold.Store(true)
	inbox, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	r.send(prefix.Config("c"), `{"defaultTtl":60}`, wire.HeaderReplyTo, inbox.Subject)
	select {
	case <-held:
	case <-time.After(limit):
		t.Fatal("no commit")
	}
	if m, err := inbox.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("an outcome before the commit: %v, %v", m, err)
	}
	goOn()
	if _, err := inbox.NextMsg(limit); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		ttl := int32(i + 1)
		r.config("c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
		c, err := r.newReader().Config(t.Context(), "c")
		if err != nil || *c.DefaultTTL != ttl {
			t.Fatalf("configured %d, and read %+v, %v", ttl, c, err)
		}
		f, err := r.reader.Forecast(t.Context(), "c", sink.ForecastOptions{Buckets: 1})
		if err != nil || f.Buckets[0].Count != 0 {
			t.Fatalf("forecast: %+v, %v", f, err)
		}
	}
}

// startHeld starts a processor that has taken its shards over, and commits nothing
// before release is closed.
func (r *rig) startHeld() (release chan struct{}) {
	r.t.Helper()
	release = make(chan struct{})
	p := r.start(func(here crash.Point) error {
		if here == crash.BeforeCommit {
			<-release
		}
		return nil
	})
	eventually(r.t, "the shard is taken over", func() bool { return p.current().status.Owned.Load() })
	return release
}

// A read of a shard that is being rebuilt is refused: it never returns "not found"
// for a document that is only not there yet.
func TestG7_ReadsWaitForARebuild(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.put("c", "x", `{"v":1}`)
		p.stop(t)
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		release := r.startHeld()
		if d, err := r.newReader().Get(t.Context(), "c", "x"); !errors.Is(err, sink.ErrUnavailable) {
			t.Errorf("a read during the rebuild: %+v, %v", d, err)
		}
		close(release)
		if got := r.body("c", "x"); got != `{"v":1}` {
			t.Errorf("after the rebuild it reads %q", got)
		}
	})
}

// TestG7_ReadsWaitForWhatIsMissing: a shard whose state went back to an older one is
// not read until it has caught up with its former offset. It fails if only a shard
// without a state counts as one that lacks documents.
func TestG7_ReadsWaitForWhatIsMissing(t *testing.T) {
	r := onRedis(t)
	p := r.start(nil)
	p.ready(t)
	r.put("c", "x", `{"v":1}`)
	r.caughtUp(p)
	older := r.dump()
	r.put("c", "y", `{"v":2}`)
	r.caughtUp(p)
	p.stop(t)
	r.restore(older)
	release := r.startHeld()
	if d, err := r.newReader().Get(t.Context(), "c", "y"); !errors.Is(err, sink.ErrUnavailable) {
		t.Errorf("a read of what is missing: %+v, %v", d, err)
	}
	close(release)
	if got := r.body("c", "y"); got != `{"v":2}` {
		t.Errorf("when it has caught up it reads %q", got)
	}
}
