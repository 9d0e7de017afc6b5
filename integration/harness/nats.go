package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/programs"
)

// NATSOptions are the settings of a nats-server.
type NATSOptions struct {
	MaxPayload int    // bytes; the server's default (1 MiB) if 0
	Config     string // added to its configuration file
	OwnUsers   bool   // Config has users; otherwise they are those of deploy/
	Denies     bool   // a client without a user; otherwise that is the operator
	Shards     int    // to which the account of deploy/ maps writes, up to 4; 1 if 0
}

// NATS is a nats-server with JetStream in a process of its own. Its port and its store
// outlive the process, so that it can be started again.
type NATS struct {
	*Process
	Port  int
	login []nats.Option // of the operator, if the server denies others
}

// StartNATS starts a nats-server and waits until it is ready.
func StartNATS(t testing.TB, opts NATSOptions) *NATS {
	t.Helper()
	more := opts.Config
	if opts.MaxPayload != 0 {
		more += fmt.Sprintf("\nmax_payload: %d\n", opts.MaxPayload)
	}
	n := newNATS(t, "nats-server", more, opts)
	if opts.Denies {
		n.login = []nats.Option{nats.UserInfo("operator", RolePassword("operator"))}
	}
	n.Start()
	return n
}

// PrepareNATS makes a nats-server with more text in its configuration, and does not start it.
func PrepareNATS(t testing.TB, name, more string) *NATS {
	t.Helper()
	return newNATS(t, name, more, NATSOptions{})
}

// PrepareShardedNATS is PrepareNATS, and the server maps writes to so many shards.
func PrepareShardedNATS(t testing.TB, name, more string, shards int) *NATS {
	t.Helper()
	return newNATS(t, name, more, NATSOptions{Shards: shards})
}

// newNATS makes a nats-server with more text in its configuration, and the users of deploy/
// unless it has its own, and does not start it.
func newNATS(t testing.TB, name, more string, opts NATSOptions) *NATS {
	t.Helper()
	n := &NATS{Port: FreePort(t)}
	n.Process = newProcess(t, name, programs.Path(t, "nats-server"))
	if !opts.OwnUsers {
		more += n.natsRoles(opts)
	}
	config := filepath.Join(n.dir, "nats.conf")
	text := fmt.Sprintf("listen: %q\njetstream { store_dir: %q }\n%s", Address(n.Port), n.store(), more)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.args = []string{"-c", config}
	return n
}

// Custom is a server that a test configures by itself.
type Custom struct {
	Name      string
	Port      int
	Args, Env []string
	Forbidden []string      // texts that its log must not contain
	Login     []nats.Option // of an operator
}

// CustomNATS makes a nats-server and does not start it.
func CustomNATS(t testing.TB, c Custom) *NATS {
	t.Helper()
	n := &NATS{Process: newProcess(t, c.Name, programs.Path(t, "nats-server")), Port: c.Port, login: c.Login}
	n.args, n.env, n.forbidden = c.Args, c.Env, c.Forbidden
	return n
}

// Change changes the environment and the login that count from the next start on.
func (n *NATS) Change(env []string, login []nats.Option) { n.env, n.login = env, login }

// Start starts the server (again) on the same port and store, and waits until JetStream
// answers.
func (n *NATS) Start() {
	n.t.Helper()
	n.start()
	n.Ready()
}

// Reload tells the server to read its configuration anew, and waits until it has.
func (n *NATS) Reload() {
	n.t.Helper()
	reloads := func() int { return strings.Count(n.Log(), "Reloaded server configuration") }
	before := reloads()
	n.signal(syscall.SIGHUP)
	Until(n.t, Limit, "nats-server has read its configuration anew", func(context.Context) error {
		if reloads() == before {
			return errors.New("its log does not say so")
		}
		return nil
	})
}

// Evacuate puts the server into lame duck mode, and waits until it has ended: it gives up what it leads, and sends its
// clients away.
func (n *NATS) Evacuate() {
	n.t.Helper()
	n.signal(syscall.SIGUSR2)
	n.WaitEnded()
}

// Empty removes all that the server has stored. The server must not run.
func (n *NATS) Empty() {
	n.t.Helper()
	if err := os.RemoveAll(n.store()); err != nil {
		n.t.Fatal(err)
	}
}

// Ready waits until JetStream answers.
func (n *NATS) Ready() {
	n.t.Helper()
	Until(n.t, Limit, "nats-server is ready", func(context.Context) error {
		if err := n.ended(); err != nil {
			return err
		}
		nc, err := nats.Connect(n.URL(), append(n.login, nats.Timeout(5*time.Second))...)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := nc.JetStream(nats.MaxWait(5 * time.Second))
		if err != nil {
			return err
		}
		_, err = js.AccountInfo()
		return err
	})
}

// Copy copies the store, for Restore and PutBack. The server must not run, or must stand still.
func (n *NATS) Copy() string { n.t.Helper(); return natstest.Copy(n.t, n.store()) }

// Restore kills the server and starts it with a copy of its store.
func (n *NATS) Restore(copied string) {
	n.t.Helper()
	n.Kill()
	natstest.PutBack(n.t, n.store(), copied, ".")
	n.Start()
}

// RestoreStream is Restore of one stream alone. The others stay as they are.
func (n *NATS) RestoreStream(copied, stream string) {
	n.t.Helper()
	n.Kill()
	n.PutBack(copied, &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: stream}})
	n.Start()
}

// PutBack puts streams back to what a copy has of them, each with the log of its Raft group. The server
// must not run.
func (n *NATS) PutBack(copied string, streams ...*jetstream.StreamInfo) {
	n.t.Helper()
	for _, s := range streams {
		patterns := []string{filepath.Join("jetstream", "*", "streams", s.Config.Name)}
		if s.Cluster != nil && s.Cluster.RaftGroup != "" {
			patterns = append(patterns, filepath.Join("jetstream", "*", "_js_", s.Cluster.RaftGroup))
		}
		for _, pattern := range patterns {
			dirs, err := fs.Glob(os.DirFS(n.store()), pattern)
			if err != nil || len(dirs) != 1 {
				n.t.Fatalf("the store has %d directories %s, want one: %v", len(dirs), pattern, err)
			}
			natstest.PutBack(n.t, n.store(), copied, dirs[0])
		}
	}
}

func (n *NATS) store() string { return filepath.Join(n.dir, "store") }

// URL returns the URL of the server.
func (n *NATS) URL() string { return "nats://" + Address(n.Port) }

// Connect connects to a NATS server until the test ends. The connection reconnects for ever.
func Connect(t testing.TB, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	opts = append([]nats.Option{
		natstest.Patient, nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
		// some tests publish messages that a client cannot decode
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}
