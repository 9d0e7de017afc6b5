// Package inprocess runs nats-servers inside of a test, which can change them while they run. Package
// natstest runs them as processes. It imports nothing of lapse, so the tests of every package can use it.
package inprocess

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// limit is the longest that a test waits.
const limit = time.Minute

// Start starts a server on 127.0.0.1 until the test ends. It listens on a free port if opts.Port is 0.
// With opts.JetStream it needs opts.StoreDir.
func Start(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.NoLog, opts.NoSigs = "127.0.0.1", true, true
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(limit) {
		t.Fatal("nats-server is not ready")
	}
	return srv
}
