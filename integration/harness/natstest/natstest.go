// Package natstest runs nats-servers for tests, each in a process of its own: there it needs half
// the CPU time, because it has no race detector. It imports nothing of lapse, so the tests of
// every package can use it.
package natstest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/programs"
)

// Main runs the tests of a package that starts servers. It fails if they leave goroutines behind.
func Main(m *testing.M, options ...goleak.Option) {
	goleak.VerifyTestMain(m, append(options, goleak.IgnoreAnyFunction(child.Goroutine))...)
}

// limit is the longest that a test waits.
const limit = time.Minute

// Patient makes a client wait for its connection as long as a busy machine needs: nats.go
// gives up after 2 s.
var Patient nats.Option = nats.Timeout(limit)

// Options are the settings of a server.
type Options struct {
	Store     string // the directory of the streams; one of the test if empty
	JetStream string // added to the block jetstream of its configuration
	Config    string // added to its configuration
}

// Start starts a server with JetStream until the test ends, and returns its URL.
func Start(t testing.TB, opts Options) (url string) {
	t.Helper()
	return start(t, opts).ready().NATS[0]
}

// StartMapped is Start for a server that maps a subject to another one.
func StartMapped(t testing.TB, opts Options, from, to string) (url string) {
	t.Helper()
	opts.Config += fmt.Sprintf("\nmappings: { %q: %q }\n", from, to)
	return Start(t, opts)
}

// StartCluster starts a cluster of servers until the test ends, and returns their addresses
// once JetStream has a leader. Streams may have as many replicas.
func StartCluster(t testing.TB, servers int) (addresses []string) {
	t.Helper()
	ports := make([]int, servers)
	routes := make([]string, servers)
	for i := range ports {
		ports[i] = freeport.Take(t)
		routes[i] = "nats://" + freeport.Address(ports[i])
	}
	all := make([]*process, servers)
	for i := range all {
		all[i] = start(t, Options{Config: fmt.Sprintf("server_name: nats-server-%d\ncluster { name: lapse, listen: "+
			"%q, routes: [%s] }\n",
			i+1, freeport.Address(ports[i]), strings.Join(routes, ", "))})
	}
	var monitoring []string
	for _, p := range all {
		at := p.ready()
		u, err := url.Parse(at.NATS[0])
		if err != nil {
			t.Fatal(err)
		}
		addresses, monitoring = append(addresses, u.Host), append(monitoring, at.Monitoring[0])
	}
	all[0].wait("JetStream has a leader", func() bool {
		return slices.ContainsFunc(monitoring, func(at string) bool { return leads(at, servers) })
	})
	return addresses
}

// leads tells whether the server at an address of monitoring is the leader of JetStream and knows
// all servers. Only the leader lists the others.
func leads(at string, servers int) bool {
	resp, err := http.Get(at + "/jsz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var jsz struct {
		Meta struct {
			Replicas []struct{} `json:"replicas"`
		} `json:"meta_cluster"`
	}
	return json.NewDecoder(resp.Body).Decode(&jsz) == nil && len(jsz.Meta.Replicas) == servers-1
}

// process is a running server.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	dir   string
	said  *bytes.Buffer // complete when ended is closed
	ended chan struct{}
}

// addresses is what a server writes into its file of ports.
type addresses struct {
	NATS       []string `json:"nats"`
	Monitoring []string `json:"monitoring"`
}

func start(t testing.TB, opts Options) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), said: &bytes.Buffer{}, ended: make(chan struct{})}
	store := cmp.Or(opts.Store, filepath.Join(p.dir, "store"))
	keepDirectory(t, store)
	config := filepath.Join(p.dir, "nats.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nhttp: \"127.0.0.1:-1\"\nports_file_dir: %q\njetstream { "+
		"store_dir: %q\n%s\n}\n%s", p.dir, store, opts.JetStream, opts.Config)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(programs.Path(t, "nats-server"), "-c", config)
	p.cmd.Stdout, p.cmd.Stderr = p.said, p.said
	if err := child.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // killed, or it says why
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // or it has ended
		<-p.ended
	})
	return p
}

// ready waits until the server has written its addresses.
func (p *process) ready() (at addresses) {
	p.t.Helper()
	file := filepath.Join(p.dir, fmt.Sprintf("nats-server_%d.ports", p.cmd.Process.Pid))
	p.wait("nats-server is ready", func() bool {
		b, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(b, &at) == nil
	})
	return at
}

func (p *process) wait(what string, ok func() bool) {
	p.t.Helper()
	for end := time.Now().Add(limit); !ok(); {
		select {
		case <-p.ended:
			p.t.Fatalf("wait until %s: it has ended: %s", what, p.said)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			p.t.Fatalf("wait until %s: not within %v", what, limit)
		}
	}
}

// Connect starts a server, and connects to it until the test ends.
func Connect(t testing.TB, opts Options) jetstream.JetStream {
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

// CreateStream makes a stream. It asks again after a while: a cluster can lose the request while
// its leaders change, and making the same stream twice makes one.
func CreateStream(t testing.TB, js jetstream.JetStream, config jetstream.StreamConfig) (stream jetstream.Stream) {
	t.Helper()
	err := poll.Until(t.Context(), limit, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, limit/10)
		defer cancel()
		stream, err = js.CreateStream(ctx, config)
		return err
	})
	if err != nil {
		t.Fatalf("create stream %s: %v", config.Name, err)
	}
	return stream
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
