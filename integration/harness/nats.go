package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSOptions say what nats-server is started with.
type NATSOptions struct {
	MaxPayload int    // bytes; the server's default (1 MiB) if 0
	Config     string // more of its configuration
}

// NATS is a nats-server with JetStream in a process of its own. Its port and
// its store outlive it: see [NATS.Start].
type NATS struct {
	*Process
	Port int
}

// StartNATS starts a nats-server and waits until it is ready.
func StartNATS(t testing.TB, opts NATSOptions) *NATS {
	t.Helper()
	more := opts.Config
	if opts.MaxPayload != 0 {
		more += fmt.Sprintf("\nmax_payload: %d\n", opts.MaxPayload)
	}
	n := newNATS(t, "nats-server", more)
	n.Start()
	return n
}

// StartCluster starts so many nats-servers as one cluster, and waits until it is ready.
func StartCluster(t testing.TB, servers int) []*NATS {
	t.Helper()
	ports := make([]int, servers)
	routes := make([]string, servers)
	for i := range ports {
		ports[i] = FreePort(t)
		routes[i] = "nats://" + Address(ports[i])
	}
	all := make([]*NATS, servers)
	for i := range all {
		name := fmt.Sprintf("nats-server-%d", i+1)
		all[i] = newNATS(t, name, fmt.Sprintf("server_name: %q\ncluster { name: lapse, listen: %q, routes: [%s] }\n", name, Address(ports[i]), strings.Join(routes, ", ")))
		all[i].start()
	}
	for _, n := range all {
		n.Ready()
	}
	return all
}

// newNATS makes a nats-server with more in its configuration, not started yet.
func newNATS(t testing.TB, name, more string) *NATS {
	t.Helper()
	path, err := buildNATS()
	if err != nil {
		t.Fatalf("build nats-server: %v", err)
	}
	n := &NATS{Port: FreePort(t)}
	n.Process = newProcess(t, name, path)
	config := filepath.Join(n.dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q }\n%s", Address(n.Port), filepath.Join(n.dir, "store"), more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"-c", config}
	return n
}

// Start starts it (again), on the same port and store, and waits until
// JetStream answers.
func (n *NATS) Start() {
	n.t.Helper()
	n.start()
	n.Ready()
}

// Ready waits until JetStream answers.
func (n *NATS) Ready() {
	n.t.Helper()
	Until(n.t, Limit, "nats-server is ready", func(context.Context) error {
		if err := n.ended(); err != nil {
			return err
		}
		nc, err := nats.Connect(n.URL(), nats.Timeout(time.Second))
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := nc.JetStream(nats.MaxWait(time.Second))
		if err != nil {
			return err
		}
		_, err = js.AccountInfo()
		return err
	})
}

// URL is where it listens.
func (n *NATS) URL() string { return "nats://" + Address(n.Port) }

// Connect connects to a NATS server for as long as the test runs, reconnecting for ever.
func Connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}
