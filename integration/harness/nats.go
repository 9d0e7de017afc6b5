package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// NATSOptions say what nats-server is started with.
type NATSOptions struct {
	MaxPayload int // bytes; the server's default (1 MiB) if 0
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
	path, err := buildNATS()
	if err != nil {
		t.Fatalf("build nats-server: %v", err)
	}
	n := &NATS{Port: FreePort(t)}
	n.Process = newProcess(t, "nats-server", path)
	config := filepath.Join(n.dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q }\n", Address(n.Port), filepath.Join(n.dir, "store"))
	if opts.MaxPayload != 0 {
		text += fmt.Sprintf("max_payload: %d\n", opts.MaxPayload)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"-c", config}
	n.Start()
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
