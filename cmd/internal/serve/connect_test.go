package serve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/dial"
)

// tokens lets clients in that have the present token, and counts the refusals by the name of the
// connection.
type tokens struct {
	mu      sync.Mutex
	present string
	refused map[string]int
}

// Check implements [server.Authentication].
func (k *tokens) Check(c server.ClientAuthentication) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.GetOpts().Token == k.present {
		return true
	}
	k.refused[c.GetOpts().Name]++
	return false
}

func (k *tokens) change(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.present = token
}

func (k *tokens) refusals(name string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refused[name]
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := poll.Met(limit, what, ok); err != nil {
		t.Fatal(err)
	}
}

// TestG11_TheServerRefusesForAWhile: the NATS server knows other credentials for a while, and then
// those of lapse again. All connections come back.
//
// It fails if the connection of the writes over HTTP is given up: then each write fails until a
// restart, and lapse says that it is ready.
func TestG11_TheServerRefusesForAWhile(t *testing.T) {
	known := &tokens{present: "one", refused: make(map[string]int)}
	srv := inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), CustomClientAuthentication: known})
	o := options(t)
	o.NATS = "nats://one@" + srv.Addr().String()
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
	all, err := srv.Connz(nil)
	if err != nil {
		t.Fatal(err)
	}
	known.change("two")
	for _, one := range all.Conns {
		if err := srv.DisconnectClientByID(one.Cid); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "lapse says that NATS is lost", is(503))
	for _, one := range all.Conns {
		wait(t, one.Name+" was refused three times: the library would give up after the second",
			func() bool { return known.refusals(one.Name) > 2 })
	}
	known.change("one")
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
	const within = 40 * time.Second
	address := inprocess.Start(t, &server.Options{}).Addr().String()
	for name, connect := range map[string]func(url string) (*nats.Conn, error){
		"lapse": func(url string) (*nats.Conn, error) {
			o := options(t)
			o.NATS = url
			return connectNATS(o, nil, "log")
		},
		"a client": func(url string) (*nats.Conn, error) {
			c, err := client.Connect(client.Options{Server: url, Timeout: 5 * time.Second})
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
		case <-time.After(within):
			t.Errorf("%s: the connection is not lost after %s", name, within)
		}
		way.Cut()
		nc.Close()
		<-ended
	}
}

// TestEventsStayOnTheirConnection: it fails if an event that stands still may be sent on the next connection.
func TestEventsStayOnTheirConnection(t *testing.T) {
	o := options(t)
	o.NATS = inprocess.Start(t, &server.Options{}).ClientURL()
	nc, err := connectNATS(o, nil, "log")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, ok := nc.Opts.CustomDialer.(*dial.Dialer); !ok || nc.Opts.ReconnectBufSize != -1 {
		t.Errorf("it dials with %T, and keeps %d bytes", nc.Opts.CustomDialer, nc.Opts.ReconnectBufSize)
	}
}

// It fails if a connection that is closed for good ends nothing, or one that is there does.
func TestUntilClosed(t *testing.T) {
	o := options(t)
	o.NATS = inprocess.Start(t, &server.Options{}).ClientURL()
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
