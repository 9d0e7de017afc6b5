package processor

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// newPausing is a rig whose NATS server can make each new consumer of the log a paused one, which
// answers and brings nothing. pause does so from now on and until end is called. It calls begin, which
// lets lapse make a consumer, and waits for that.
func newPausing(t *testing.T) (r *rig, pause func(begin func()) (end func())) {
	t.Helper()
	const domain, create, held = "other", "$JS.API.CONSUMER.CREATE.", "held."
	srv := inprocess.Start(t, &server.Options{JetStream: true, JetStreamDomain: domain, StoreDir: t.TempDir()})
	r = newRigAt(t, srv.ClientURL(), backends[0], Options{})
	return r, func(begin func()) (end func()) {
		t.Helper()
		var made atomic.Bool
		sub, err := r.nc.Subscribe(held+">", func(m *nats.Msg) {
			var request struct {
				Stream string         `json:"stream_name"`
				Config map[string]any `json:"config"`
				Action string         `json:"action"`
			}
			if err := json.Unmarshal(m.Data, &request); err != nil {
				t.Error(err)
			}
			request.Config["pause_until"] = time.Now().Add(time.Hour)
			body, _ := json.Marshal(request)
			// The name of the domain leads around the mapping.
			to := "$JS." + domain + ".API.CONSUMER.CREATE." + strings.TrimPrefix(m.Subject, held)
			if err := r.nc.PublishMsg(&nats.Msg{Subject: to, Reply: m.Reply, Data: body}); err != nil {
				t.Error(err)
			}
			made.Store(true)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.nc.Flush(); err != nil {
			t.Fatal(err)
		}
		log := prefix.LogStream() + ".>"
		if err := srv.GlobalAccount().AddMapping(create+log, held+log); err != nil {
			t.Fatal(err)
		}
		begin()
		eventually(t, "lapse makes a consumer", made.Load)
		return func() {
			srv.GlobalAccount().RemoveMapping(create + log)
			if err := sub.Unsubscribe(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestG11_NoConsumerBringsAnything: the servers answer, and bring no messages of the log. lapse tells, and applies what
// waits once a server brings it.
//
// It fails if the reading only begins again and again, or never; or if only what waits in the queue counts as waiting.
func TestG11_NoConsumerBringsAnything(t *testing.T) {
	t.Parallel()
	r, pause := newPausing(t)
	p := r.start(nil)
	p.ready(t)
	r.put("c", "before", `{}`)
	r.caughtUp(p)
	end := pause(p.session.queue.Again)
	r.send(prefix.Write(wire.Upsert, "c", "waits"), `{}`)
	eventually(t, "it is told", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), problemBehind.Name)
	})
	if r.body("c", "waits") != "" {
		t.Fatal("the write was applied: the test shows nothing")
	}
	end()
	eventually(t, "it goes on", func() bool { return p.Ready() == nil && r.body("c", "waits") != "" })
}

// TestStandsOnlyWhileSomethingWaits goes red if a counter stands while nothing waits, as in a rest without a tick.
func TestStandsOnlyWhileSomethingWaits(t *testing.T) {
	t.Parallel()
	var s seenAt
	began := time.Now()
	for _, look := range []struct {
		at     time.Duration
		value  uint64
		waits  bool
		stands time.Duration
	}{
		{0, 3, false, 0}, {time.Minute, 3, false, 0},
		{61 * time.Second, 3, true, time.Second}, {62 * time.Second, 3, true, 2 * time.Second},
		{63 * time.Second, 4, true, 0}, {64 * time.Second, 4, true, time.Second},
		{65 * time.Second, 4, false, 0},
	} {
		if got := s.stands(look.value, look.waits, began.Add(look.at)); got != look.stands {
			t.Errorf("after %v: it stands for %v, want %v", look.at, got, look.stands)
		}
	}
}

// TestG11_NothingIsBehindAfterARest: nothing was written for a while, and then much at once. Nothing
// has waited for long.
//
// It fails if the rest counts as the time for which messages wait.
func TestG11_NothingIsBehindAfterARest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	steps := make(chan struct{}) // closed when steps may go on
	var held atomic.Bool
	p := r.start(func(here crash.Point) error {
		if here == crash.AfterRead && held.Load() {
			<-steps
		}
		return nil
	})
	defer close(steps)
	p.ready(t)
	r.put("c", "before", `{}`)
	r.caughtUp(p)
	rest := time.Now()
	eventually(t, "lapse has rested", func() bool { return time.Since(rest) > behindAfter+time.Second })
	rounds, err := r.nc.SubscribeSync(prefix.Probe()) // the monitor publishes there once a round
	if err != nil {
		t.Fatal(err)
	}
	r.flush()
	held.Store(true)
	began := time.Now()
	for i := range 100 {
		r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
	}
	eventually(t, "the monitor has looked twice", func() bool {
		err := p.Ready()
		// If the rest counted, lapse would be behind at once. A tick may have been read before the first write.
		if waited := time.Since(began); err != nil && strings.Contains(err.Error(), problemBehind.Name) &&
			waited < behindAfter/2 {
			t.Fatalf("%s after the first write: %v", waited, err)
		}
		n, _, _ := rounds.Pending()
		return n > 2
	})
}

// TestG11_TheEndOfTheLogIsDeleted: lapse cannot read the last message of the log, as that is deleted.
// Nothing is written after it. lapse refuses to go on without it.
//
// It fails if lapse waits for that message for ever, and says that it is behind.
func TestG11_TheEndOfTheLogIsDeleted(t *testing.T) {
	t.Parallel()
	r, pause := newPausing(t)
	p := r.start(nil)
	p.ready(t)
	end := pause(p.session.queue.Again)
	r.send(prefix.Write(wire.Upsert, "c", "x"), `{}`)
	r.removeWrites("c", "x")
	end()
	p.ends(t, ErrLogGap)
	r.beginAnew(r.accepts(p.err))
	p = r.start(nil)
	p.ready(t)
	p.stop(t)
}
