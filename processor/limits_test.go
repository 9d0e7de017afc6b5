package processor

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink/wire"
)

// natsAt starts a nats-server on a port and a store, with a maximum payload.
func natsAt(t *testing.T, port int, store string, maxPayload int32) (*server.Server, *server.Options) {
	t.Helper()
	opts := &server.Options{Port: port, JetStream: true, StoreDir: store, MaxPayload: maxPayload}
	return inprocess.Start(t, opts), opts
}

// TestG8_TheServerTakesLess: the NATS server comes back with a lower max_payload while a
// processor runs. The event of a document that no longer fits comes without it, once.
//
// Goes red if the limit is that of the start.
func TestG8_TheServerTakesLess(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	port := freeport.Take(t)
	srv, _ := natsAt(t, port, store, 1<<20)
	r := newRigAt(t, srv.ClientURL(), backends[0], Options{})
	p := r.start(nil)
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	r.put("c", "large", `{"x":"`+strings.Repeat("x", 200_000)+`"}`)
	r.caughtUp(p)
	srv.Shutdown()
	srv.WaitForShutdown()
	natsAt(t, port, store, 64<<10)
	eventually(t, "the server takes less", func() bool { return r.nc.IsConnected() && r.nc.MaxPayload() == 64<<10 })
	r.config("c", `{"defaultTtl":1}`)
	if e := r.waitEvents("c", 1)[0]; !e.Omitted || len(e.Document) > 0 {
		t.Errorf("the event is %.200s", e.stored.data)
	}
	r.must(201, prefix.Write(wire.Create, "c", "large"), `{}`)
	r.caughtUp(p)
	p.stop(t)
}

// TestG11_TheConnectionIsClosed: max_payload of the NATS server is lowered while it runs.
// It does not tell its clients, and closes the connection of one that sends more; the
// client library does not connect again. The processor ends with the reason, and the next
// one publishes the event without its document.
//
// Goes red if the processor goes on without a connection.
func TestG11_TheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	srv, opts := natsAt(t, 0, t.TempDir(), 1<<20)
	r := newRigAt(t, srv.ClientURL(), backends[0], Options{})
	p := r.startOn(r.connect(r.url), r.redis, nil)
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	r.put("c", "large", `{"x":"`+strings.Repeat("x", 200_000)+`"}`)
	lower := opts.Clone()
	lower.Port, lower.MaxPayload = srv.Addr().(*net.TCPAddr).Port, 64<<10
	if err := srv.ReloadOptions(lower); err != nil {
		t.Fatal(err)
	}
	r.send(prefix.Config("c"), `{"defaultTtl":1}`)
	eventually(t, "the processor ends, or goes on with another limit", func() bool {
		select {
		case <-p.done:
			return true
		default:
			return p.nc.MaxPayload() == 64<<10 // the connection was lost before its end was read
		}
	})
	select {
	case <-p.done:
		if !errors.Is(p.err, ErrConnectionClosed) || !strings.Contains(strings.ToLower(p.err.Error()), "maximum payload") {
			t.Errorf("it ended with %v", p.err)
		}
		p = r.startOn(r.connect(r.url), r.redis, nil)
	default:
	}
	if e := r.waitEvents("c", 1)[0]; !e.Omitted || len(e.Document) > 0 {
		t.Errorf("the event is %.200s", e.stored.data)
	}
	r.caughtUp(p)
	p.stop(t)
}

// TestG11_OneStreamDoesNotAnswer: nobody answers for the bucket of checkpoints. The other streams work.
// It fails if lapse names one of them, because a question that gets no answer takes its time.
func TestG11_OneStreamDoesNotAnswer(t *testing.T) {
	t.Parallel()
	srv, _ := natsAt(t, 0, t.TempDir(), 1<<20)
	r := newRigAt(t, srv.ClientURL(), backends[0], Options{})
	p := r.run()
	silent, err := r.nc.SubscribeSync("silent")
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.GlobalAccount().AddMapping("$JS.API.STREAM.INFO.KV_"+prefix.CheckpointBucket(), "silent"); err != nil {
		t.Fatal(err)
	}
	var named []error
	eventually(t, "lapse has asked three times", func() bool {
		if err := p.Ready(); err != nil && strings.Contains(err.Error(), prefix.LogStream()) {
			named = append(named, err)
		}
		n, _, _ := silent.Pending()
		return n >= 3
	})
	if len(named) > 0 {
		t.Errorf("lapse blames the log: %v", named[0])
	}
}
