package integration

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG7_EmbeddedKilledAndStartedAgain: the embedded default is killed under load and started again. It has the same
// documents and publishes no event twice, though its Redis is empty at each start.
//
// It fails if NATS acknowledges a message before it has written it; if a rebuild publishes
// events again.
func TestG7_EmbeddedKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	kept := w.Want(201, wire.Upsert, "kept", "a", `{"v": 1}`)
	l := startLoad(t, w.Client, 13)
	for range 3 {
		l.wait(t, 400)
		w.lapse.Kill()
		w.lapse.Start()
	}
	l.end()
	if d := w.settled("kept", "a", uint64(kept.Etag)); string(d.Body) != `{"v": 1}` {
		t.Errorf("body %s", d.Body)
	}
	w.verify()
	l.verifyStored(t)

	// The same after SIGTERM, which ends lapse with exit code 0.
	if code := w.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.lapse.Start()
	w.verify()
}

// TestG1_NATSDiesAndComesBack: nats-server is killed under load and started again. Meanwhile reads of Redis go on.
//
// It fails if the processor ends when it loses the connection; if it does not continue at
// the committed offset; if it publishes an event again whose acknowledgement was lost.
func TestG1_NATSDiesAndComesBack(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	kept := w.Want(201, wire.Upsert, "kept", "a", `{"v":1}`)
	w.Configure("kept", `{"defaultTtl":-1}`)
	dying := w.Want(201, wire.Upsert, "kept", "dying", `{"ttl":2}`)
	l := startLoad(t, w.Client, 11)
	l.wait(t, 300)
	w.nats.Kill()
	after(t, *dying.ExpiresAt)
	if w.readable("kept", "dying") {
		t.Error("an expired document is read while NATS is down")
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
	l.verifyStored(t)
}

// TestG1_ServersStandStill: servers stand still for a while or answer late. lapse waits for them.
//
// It fails if a request waits without a limit for an answer that never comes; if lapse
// takes a timeout for a failure of the request.
func TestG1_ServersStandStill(t *testing.T) {
	t.Parallel()
	w := servers(t, harness.RedisOptions{})
	toRedis, toNATS := harness.NewProxy(t, w.redis.Address()), harness.NewProxy(t, harness.Address(w.nats.Port))
	w.lapse = harness.StartLapse(t, "nats://"+toNATS.Address(), toRedis.Address(), "--duplicate-window",
		duplicateWindow.String())
	l := startLoad(t, w.Client, 12)
	for _, proxy := range []*harness.Proxy{toRedis, toNATS} {
		for _, way := range []harness.Direction{harness.ToServer, harness.ToClient} {
			proxy.Delay(way, 100*time.Millisecond)
			l.wait(t, 200)
			proxy.Delay(way, 0)
			proxy.Hold(way)
			l.wait(t, 500)
			proxy.Cut() // as a half-open connection ends
			proxy.Release()
			l.wait(t, 100)
		}
	}
	l.end()
	w.lapse.Ready()
	w.verify()
}
