// Package natstest runs nats-servers inside of tests. It depends on nothing of lapse, so
// that the tests of every package can use it.
package natstest

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Start starts a server with JetStream for as long as the test runs, and returns where it
// listens. What opts say of addresses and folders does not count.
func Start(t testing.TB, opts server.Options) (url string) {
	t.Helper()
	opts.Host, opts.Port, opts.JetStream, opts.StoreDir, opts.NoLog, opts.NoSigs = "127.0.0.1", -1, true, t.TempDir(), true, true
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	return srv.ClientURL()
}

// Connect starts a server and connects to it.
func Connect(t testing.TB, opts server.Options) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(Start(t, opts))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{}) // when its goroutines have ended
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
