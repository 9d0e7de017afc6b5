package integration

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// The embedded default is killed under load and started again: the same
// documents, and not one event twice, though Redis begins empty each time.
//
// It fails if an acknowledgement comes before the server has the message on
// disk (or in the kernel's hands); if a rebuild publishes what was published.
func TestG7_EmbeddedKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	kept := w.Want(201, wire.Upsert, "kept", "a", `{"v": 1}`)
	l := startBoundedLoad(t, w.Client, 13)
	for range 5 {
		l.wait(t, 400)
		w.lapse.Kill()
		w.lapse.Start()
	}
	l.end()
	if d := w.settled("kept", "a", uint64(kept.Etag)); string(d.Body) != `{"v": 1}` {
		t.Errorf("body %s", d.Body)
	}
	w.verify()
	l.verifyStored(t, w.Log())

	// An orderly end is one too, with exit code 0.
	if code := w.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.lapse.Start()
	w.verify()
}

// NATS is killed under load and comes back. Reads of Redis go on meanwhile.
//
// It fails if the processor takes a lost connection for the end; if the
// consumer goes on elsewhere than where the commit was; if an event whose
// acknowledgement was lost is published again.
func TestG1_NATSDiesAndComesBack(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	kept := w.Want(201, wire.Upsert, "kept", "a", `{"v":1}`)
	w.Configure("kept", `{"defaultTtl":-1}`)
	dying := w.Want(201, wire.Upsert, "kept", "dying", `{"ttl":2}`)
	l := startBoundedLoad(t, w.Client, 11)
	l.wait(t, 300)
	w.nats.Kill()
	after(t, *dying.ExpiresAt)
	if w.readable("kept", "dying") {
		t.Error("an expired document is read while NATS is away")
	}
	if d := w.settled("kept", "a", uint64(kept.Etag)); string(d.Body) != `{"v":1}` {
		t.Errorf("body %s", d.Body)
	}
	w.nats.Start()
	for range 2 {
		l.wait(t, 300)
		w.nats.Kill()
		w.nats.Start()
	}
	l.wait(t, 100)
	l.end()
	w.lapse.Ready()
	w.verify()
	l.verifyStored(t, w.Log())
}

// Servers that stand still for a while, or answer late, are waited for.
//
// It fails if something waits without a limit for an answer that does not come,
// or takes the limit for a failure of what it asked.
func TestG1_ServersStandStill(t *testing.T) {
	t.Parallel()
	w := servers(t, harness.RedisOptions{})
	toRedis, toNATS := harness.NewProxy(t, w.redis.Address()), harness.NewProxy(t, harness.Address(w.nats.Port))
	w.lapse = harness.StartLapse(t, "nats://"+toNATS.Address(), toRedis.Address(), "--duplicate-window", duplicateWindow.String())
	l := startBoundedLoad(t, w.Client, 12)
	for _, proxy := range []*harness.Proxy{toRedis, toNATS} {
		for _, way := range []harness.Direction{harness.ToServer, harness.ToClient} {
			proxy.Delay(way, 100*time.Millisecond)
			l.wait(t, 200)
			proxy.Delay(way, 0)
			proxy.Hold(way)
			l.wait(t, 500)
			proxy.Cut() // a connection that is half open ends like this, in the end
			proxy.Release()
			l.wait(t, 100)
		}
	}
	l.end()
	w.lapse.Ready()
	w.verify()
}
