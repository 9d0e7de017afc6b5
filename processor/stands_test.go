package processor

import (
	"context"
	"fmt"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestOutcomeAfterALostReply: a commit takes effect, and its reply is lost. The client gets
// its outcome when the owner finds that out. It fails if only a step that has seen its own
// commit succeed sends outcomes.
func TestOutcomeAfterALostReply(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var lose atomic.Bool
		p := r.start(func(here crash.Point) error {
			if here == crash.AfterCommit && lose.Swap(false) {
				return errFail
			}
			return nil
		})
		p.ready(t)
		for i := range 5 {
			lose.Store(true)
			if o := r.ask(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`); o.Status != 201 {
				t.Errorf("outcome %+v, want 201", o)
			}
			lose.Store(true)
			if o := r.ask(prefix.Config("c"), fmt.Sprintf(`{"defaultTtl":%d}`, 100+i)); o.Status != 200 {
				t.Errorf("outcome of a configuration %+v, want 200", o)
			}
		}
		p.stop(t)
	})
}

// TestG4_ClockLead: a stamp that leads this process's clock and Redis's stops the log
// before anything expires by it; the log goes on when the clocks agree. It fails if such a
// stamp is accepted.
func TestG4_ClockLead(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var behind atomic.Int64 // how far both clocks are behind NATS's
		now := func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
		r.clocks = &shard.Clocks{Own: now, Redis: func(context.Context) (time.Time, error) { return now(), nil }}
		p := r.start(nil)
		p.ready(t)
		var before wire.Outcome
		earlier := 0 // documents that expired before the clocks went wrong
		// A busy machine may need longer than the TTL until then.
		for ttl, inTime := 2, false; !inTime; ttl *= 2 {
			if ttl > longestTTL {
				t.Fatalf("the clocks went wrong too late for a TTL of %d s", longestTTL)
			}
			earlier = len(r.outputs())
			r.config("c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl))
			before = r.put("c", fmt.Sprint("x", ttl), `{}`)
			r.caughtUp(p)
			behind.Store(int64(time.Hour))
			if inTime = time.Now().UnixMilli() < int64(*before.ExpiresAt); !inTime {
				behind.Store(0)
				r.waitEvents("c", earlier+1)
			}
		}
		r.send(prefix.Write(wire.Upsert, "c", "y"), `{}`)
		eventually(t, "it is held, and says why", func() bool {
			err := p.Ready()
			return err != nil && strings.Contains(err.Error(), "--max-clock-lead")
		})
		// Longer than the TTL by the clock of NATS, which is the one that is wrong here.
		eventually(t, "more than the TTL has passed", func() bool {
			return time.Now().UnixMilli() > int64(*before.ExpiresAt)+1000
		})
		if n := len(r.outputs()) - earlier; n != 0 {
			t.Errorf("%d events came while the clocks disagreed", n)
		}
		if got := r.body("c", "y"); got != "" {
			t.Errorf("a write was applied that is stamped an hour ahead: %s", got)
		}
		behind.Store(0)
		eventually(t, "it goes on", func() bool { return p.Ready() == nil && len(r.outputs()) == earlier+2 })
		r.caughtUp(p) // the events come before the commit
		r.agrees()
		p.stop(t)
	})
}

// TestG11_NATSClockBehind: NATS's clock is an hour behind the others, and the log is silent, as nothing
// is due by its own time. lapse is not ready, and says why, until the clocks agree. It fails if only
// messages show what NATS's clock is.
func TestG11_NATSClockBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var ahead atomic.Int64 // how far both other clocks are ahead of NATS's
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		r.clocks = &shard.Clocks{Own: now, Redis: func(context.Context) (time.Time, error) { return now(), nil }}
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":3600}`)
		r.put("c", "x", `{}`)
		r.caughtUp(p)
		ahead.Store(int64(time.Hour))
		eventually(t, "it says that NATS's clock is behind", func() bool {
			err := p.Ready()
			return err != nil && strings.Contains(err.Error(), "clock behind: NATS's clock shows")
		})
		ahead.Store(0)
		eventually(t, "it is ready", func() bool { return p.Ready() == nil })
		p.stop(t)
	})
}

// TestG9_AConsumerBringsNothing: the server that has the consumer of the log goes on to answer, and
// brings no messages. Another consumer takes its place.
//
// It fails if only silence ends the reading: such a server sends its heartbeats.
func TestG9_AConsumerBringsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run()
	r.put("c", "before", `{}`)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	paused := 0
	for name := range log.ConsumerNames(t.Context()).Name() {
		if _, err := log.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		paused++
	}
	if paused == 0 {
		t.Fatal("the log has no consumer: the test shows nothing")
	}
	if o := r.put("c", "after", `{}`); o.Status != 201 {
		t.Errorf("the outcome is %+v", o)
	}
}

// TestG11_StreamGone: a stream that somebody deletes ends the processor with a reason.
func TestG11_StreamGone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{prefix.LogStream(), prefix.EventsStream(), "KV_" + prefix.CheckpointBucket()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.start(nil)
			p.ready(t)
			r.put("c", "x", `{}`)
			if err := r.js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			p.ends(t, ErrStreamGone)
			if !strings.Contains(p.err.Error(), name) {
				t.Errorf("the reason does not name the stream: %v", p.err)
			}
		})
	}
}

// TestG11_LogIsFull: a log that refuses the messages of clients is a problem, although it
// still takes those of lapse; the problem is over when there is room again.
func TestG11_LogIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run()
	r.put("c", "x", `{}`)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int64{1, -1} {
		config := log.CachedInfo().Config
		config.Discard, config.MaxMsgs = jetstream.DiscardNew, limit
		if log, err = r.js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("with a limit of %d it is told", limit), func() bool {
			err := p.Ready()
			return (err != nil) == (limit == 1)
		})
	}
}

// TestG11_TickRefused: a document is due, and the log refuses the tick that would reap it.
// It fails if that is only logged.
func TestG11_TickRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run()
	r.config("c", `{"defaultTtl":-1}`)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	r.put("c", "x", `{"ttl":10}`)
	config := log.CachedInfo().Config
	config.Discard, config.MaxMsgs = jetstream.DiscardNew, 1
	if _, err = r.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the tick is told of", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), "append a tick")
	})
	config.MaxMsgs = -1
	if _, err = r.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the event comes, and all is well", func() bool { return len(r.outputs()) == 1 && p.Ready() == nil })
}

// TestG11_Evicts: a maxmemory-policy by which Redis may evict is found while lapse runs.
func TestG11_Evicts(t *testing.T) {
	r := onRedis(t)
	p := r.run()
	if err := r.redis.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is noticed", func() bool { return p.Ready() != nil })
	if err := r.redis.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is over", func() bool { return p.Ready() == nil })
}

// TestG11_OnlyWhatIsKnownIsOverdue: a new owner tells the monitor of no deadline that it has
// not looked up. It fails if the next deadline is 0 until then, or the instant of a
// configuration: the monitor would report an event as overdue by years.
func TestG11_OnlyWhatIsKnownIsOverdue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.start(nil)
	before.ready(t)
	const many = 40 // more collections than the owner looks up at once
	var configured wire.Time
	for i := range many {
		configured = r.config(fmt.Sprint("c", i), `{"defaultTtl":-1}`).Ts
	}
	for i := range many {
		r.sendAsync(prefix.Write(wire.Upsert, fmt.Sprint("c", i), "x"), `{"ttl":3}`)
	}
	r.flush()
	last := r.put("c0", "last", `{"ttl":3}`)
	r.caughtUp(before)
	before.stop(t)
	eventually(t, "the deadlines pass", func() bool { return time.Now().UnixMilli() > int64(*last.ExpiresAt) })
	var p *process
	started := make(chan struct{})
	p = r.start(func(here crash.Point) error {
		<-started
		if next := p.current().status.FirstDue.Load(); next < int64(configured)+3000 {
			t.Errorf("%s: the next deadline is %d, and the documents came after %d", here, next, configured)
		}
		return nil
	})
	close(started)
	eventually(t, "all expire", func() bool { return len(r.outputs()) == many+1 })
	r.caughtUp(p)
	if next := p.session.status.FirstDue.Load(); next != math.MaxInt64 {
		t.Errorf("nothing is left, and the next deadline is %d", next)
	}
	p.stop(t)
}
