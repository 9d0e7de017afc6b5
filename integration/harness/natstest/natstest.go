// Package natstest runs nats-servers inside tests. It imports nothing of lapse, so the tests of
// every package can use it.
package natstest

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/freeport"
)

// limit is the longest that a test waits.
const limit = time.Minute

// Patient makes a client wait for its connection as long as a busy machine needs: nats.go
// gives up after 2 s.
var Patient nats.Option = nats.Timeout(limit)

// Start starts a server with JetStream until the test ends, and returns its URL. It
// overrides the addresses in opts; the directory is one of the test, unless opts name one.
func Start(t testing.TB, opts server.Options) (url string) {
	t.Helper()
	srv := start(t, opts)
	ready(t, srv)
	return srv.ClientURL()
}

// StartCluster starts a cluster of servers until the test ends, and returns their addresses
// once JetStream has a leader. Streams may have as many replicas.
func StartCluster(t testing.TB, servers int) (addresses []string) {
	t.Helper()
	ports := make([]int, servers)
	routes := make([]*url.URL, servers)
	for i := range ports {
		ports[i] = freeport.Take(t)
		routes[i] = &url.URL{Scheme: "nats", Host: freeport.Address(ports[i])}
	}
	all := make([]*server.Server, servers)
	for i := range all {
		all[i] = start(t, server.Options{
			ServerName: fmt.Sprintf("nats-server-%d", i+1), Routes: routes,
			Cluster: server.ClusterOpts{Name: "lapse", Host: "127.0.0.1", Port: ports[i]},
		})
	}
	for _, srv := range all {
		ready(t, srv)
		addresses = append(addresses, srv.Addr().String())
	}
	leads := func(srv *server.Server) bool {
		return srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == servers
	}
	for end := time.Now().Add(limit); !slices.ContainsFunc(all, leads); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("JetStream has no leader")
		}
	}
	return addresses
}

// StartMapped is Start for a server that maps a subject to another one.
func StartMapped(t testing.TB, opts server.Options, from, to string) (url string) {
	t.Helper()
	srv := start(t, opts)
	ready(t, srv)
	if err := srv.GlobalAccount().AddMapping(from, to); err != nil {
		t.Fatal(err)
	}
	return srv.ClientURL()
}

func start(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.JetStream, opts.NoLog, opts.NoSigs = "127.0.0.1", -1, true, true, true
	opts.StoreDir = cmp.Or(opts.StoreDir, t.TempDir())
	srv, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	keepDirectory(t, opts.StoreDir)
	return srv
}

func ready(t testing.TB, srv *server.Server) {
	t.Helper()
	if !srv.ReadyForConnections(limit) {
		t.Fatal("nats-server is not ready")
	}
}

// Connect starts a server, and connects to it until the test ends.
func Connect(t testing.TB, opts server.Options) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(Start(t, opts), Patient)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{}) // closed when the goroutines of the connection have ended
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	return JetStream(t, nc)
}

// JetStream is a client of JetStream whose calls may take as long as a busy machine needs:
// without a limit of their own they end after 5 s.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// keepDirectory keeps the directory of the streams from being empty. After it has deleted the
// last stream, the server removes an empty one a moment later, and then cannot create a stream
// that a test asks for meanwhile.
func keepDirectory(t testing.TB, store string) {
	t.Helper()
	streams := filepath.Join(store, "jetstream", "$G", "streams")
	err := os.MkdirAll(streams, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(streams, "keep"), nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
