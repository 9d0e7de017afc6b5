package processor

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// pauseAll pauses every consumer of the log that is made from now on, until end is called.
func pauseAll(t *testing.T, r *rig) (end func()) {
	t.Helper()
	nc := r.connect(r.url)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	sub, err := nc.Subscribe("$JS.EVENT.ADVISORY.CONSUMER.CREATED."+prefix.LogStream()+".*", func(m *nats.Msg) {
		name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		_, _ = log.PauseConsumer(t.Context(), name, time.Now().Add(time.Hour)) // it may be gone again
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}
}

// TestG11_NoConsumerBringsAnything: the servers answer, and bring no messages of the log: to any
// partition, or to one that reads the log for itself, while the others go on. lapse tells, and
// applies what waits once a server brings it.
//
// It fails if the reading only begins again and again, or never; or if only what waits in an inbox
// counts as waiting.
func TestG11_NoConsumerBringsAnything(t *testing.T) {
	for name, reads := range map[string]func(s *session){
		"all":           func(s *session) { s.reader.Rewind() },
		"one partition": func(s *session) { s.inboxes[0].Rewind(0, s.reader.Position().Seq) }, // as if it had gone back
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.start(nil)
			p.ready(t)
			r.put("c", idIn(0, 4, "c", 0), `{}`)
			r.caughtUp(p)
			end := pauseAll(t, r)
			reads(p.session)
			time.Sleep(time.Second) // a consumer that brings a message at once is paused too late
			waits := idIn(0, 4, "c", 1)
			r.send(prefix.Write(wire.Upsert, "c", waits), `{}`)
			eventually(t, "it is told", func() bool {
				err := p.Ready()
				return err != nil && strings.Contains(err.Error(), problemBehind)
			})
			if r.body("c", waits) != "" {
				t.Fatal("the write was applied: the test shows nothing")
			}
			end()
			eventually(t, "it goes on", func() bool { return p.Ready() == nil && r.body("c", waits) != "" })
		})
	}
}

// TestG11_NothingIsBehindAfterARest: nothing was written for a while, and then much at once. Nothing
// has waited for long.
//
// It fails if the rest counts as the time for which messages wait.
func TestG11_NothingIsBehindAfterARest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var slow atomic.Bool
	p := r.start(func(here crash.Point) error {
		if here == crash.AfterRead && slow.Load() {
			time.Sleep(1500 * time.Millisecond) // of a step, which may take 5 s
		}
		return nil
	})
	p.ready(t)
	r.put("c", "before", `{}`)
	r.caughtUp(p)
	time.Sleep(behindAfter + time.Second)
	slow.Store(true)
	defer slow.Store(false)
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		r.send(prefix.Write(wire.Upsert, "c", "after"), `{}`)
		if err := p.Ready(); err != nil {
			t.Fatalf("within 2 s after the first write: %v", err)
		}
	}
}

// TestG11_TheEndOfTheLogIsDeleted: lapse cannot read the last message of the log, as that is deleted.
// Nothing is written after it.
//
// It fails if lapse waits for that message for ever, and says that it is behind.
func TestG11_TheEndOfTheLogIsDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	end := pauseAll(t, r)
	p.session.reader.Rewind()
	time.Sleep(time.Second)
	ack, err := r.js.Publish(t.Context(), p.opts.log().Tick(), nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.DeleteMsg(t.Context(), ack.Sequence); err != nil {
		t.Fatal(err)
	}
	end()
	eventually(t, "all is applied", func() bool { return p.Progress().Applied >= ack.Sequence })
}
