package serve

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/sink/client"
)

// startServer starts a NATS server that knows a token. reload makes it know another one.
func startServer(t *testing.T, token string) (address string, reload func(token string)) {
	t.Helper()
	opts := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, Authorization: token}
	srv, err := server.NewServer(opts.Clone())
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(limit) {
		t.Fatal("the NATS server did not start")
	}
	return srv.Addr().String(), func(token string) {
		other := opts.Clone()
		other.Port, other.Authorization = srv.Addr().(*net.TCPAddr).Port, token
		if err := srv.ReloadOptions(other); err != nil {
			t.Fatal(err)
		}
	}
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// TestG11_TheServerRefusesForAWhile: the NATS server knows other credentials for a while, and then
// those of lapse again. All connections come back.
//
// It fails if the connection of the writes over HTTP is given up: then each write fails until a
// restart, and lapse says that it is ready.
func TestG11_TheServerRefusesForAWhile(t *testing.T) {
	address, reload := startServer(t, "one")
	o := options(t)
	o.NATS = "nats://one@" + address
	o.Processor.Prefix = "lapse"
	o.ReadyFile = filepath.Join(t.TempDir(), "ready")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	defer func() { stop(); <-ended }()
	var at addresses
	wait(t, "lapse is ready", func() bool {
		content, err := os.ReadFile(o.ReadyFile)
		return err == nil && json.Unmarshal(content, &at) == nil
	})
	api := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	ask := func(method, path string) (status int, text string) {
		req, err := http.NewRequestWithContext(t.Context(), method, at.HTTP+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := api.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = res.Body.Close() }()
		content, err := io.ReadAll(res.Body)
		if err != nil {
			return 0, err.Error()
		}
		return res.StatusCode, string(content)
	}
	is := func(status int) func() bool {
		return func() bool { got, _ := ask("GET", "/readyz"); return got == status }
	}
	const document = "/v1/collections/c/documents/a"
	if status, text := ask("PUT", document); status != 201 {
		t.Fatalf("the first write answers %d %s", status, text)
	}
	reload("two")
	wait(t, "lapse says that NATS is lost", is(503))
	time.Sleep(2 * time.Second) // the library gives up after two refusals, at 250 ms
	reload("one")
	wait(t, "lapse is ready again", is(200))
	wait(t, "a write over HTTP is taken", func() bool {
		status, text := ask("PUT", document)
		t.Log(status, text)
		return status == 200
	})
}

// TestG11_TheConnectionTakesNothing: a connection takes no more bytes, and nobody closes it.
//
// It fails if the library writes for the minute that is its own limit: it holds its lock meanwhile,
// so nobody learns that the connection is lost.
func TestG11_TheConnectionTakesNothing(t *testing.T) {
	address, _ := startServer(t, "")
	for name, connect := range map[string]func(url string) (*nats.Conn, error){
		"lapse": func(url string) (*nats.Conn, error) {
			o := options(t)
			o.NATS = url
			return connectNATS(o, nil, "log")
		},
		"a client": func(url string) (*nats.Conn, error) {
			c, err := client.Connect(client.Options{Server: url, Timeout: 2 * time.Second})
			if err != nil {
				return nil, err
			}
			return c.Conn(), nil
		},
	} {
		way := proxy.New(t, address)
		nc, err := connect("nats://" + way.Address())
		if err != nil {
			t.Fatal(err)
		}
		lost := nc.StatusChanged(nats.RECONNECTING)
		way.Hold(proxy.ToServer)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for nc.Publish("x", make([]byte, 500_000)) == nil {
			}
		}()
		select {
		case <-lost:
		case <-time.After(2 * limit):
			t.Errorf("%s: the connection is not lost after %s", name, 2*limit)
		}
		way.Cut()
		nc.Close()
		<-ended
	}
}

// It fails if a connection that is closed for good ends nothing, or one that is there does.
func TestUntilClosed(t *testing.T) {
	address, _ := startServer(t, "")
	o := options(t)
	o.NATS = "nats://" + address
	nc, err := connectNATS(o, nil, "http")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := untilClosed(ctx, nc); err != nil {
		t.Errorf("while it is there: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, nc.Close)
	for range 2 { // while it waits, and before
		wantError(t, untilClosed(t.Context(), nc), `"lapse http"`, "closed for good")
	}
}
