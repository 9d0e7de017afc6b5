package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestConnectionsLeaveFiles: connections that do nothing, more than HTTP and the embedded NATS server have places for,
// keep nobody from connecting, and the store writes on.
func TestConnectionsLeaveFiles(t *testing.T) {
	opts := options(t)
	opts.files = 128
	http1, nats1 := shares(opts.files, true)
	if http1+nats1 != opts.files/2 {
		t.Fatalf("the connections have %d + %d of %d files: the store needs half", http1, nats1, opts.files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, ended := serving(t, ctx, opts)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	dial := func(address string) {
		t.Helper()
		c, err := net.DialTimeout("tcp", address, harness.Limit)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	for range 3 * http1 {
		dial(p.http.Addr().String())
	}
	for range 3 * nats1 {
		dial(p.embedded.Addr().String())
	}
	// Each of these is the first thing of a new connection.
	harness.Until(t, harness.Limit, "HTTP answers", func(ctx context.Context) error {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.at.HTTP+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "ok\n" {
			return errors.New(string(text))
		}
		return nil
	})
	harness.Until(t, harness.Limit, "the embedded NATS server stores", func(ctx context.Context) error {
		nc, err := nats.Connect(p.at.NATS)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		// The longest names are within the limit of a line.
		_, err = js.Publish(ctx, wire.DefaultPrefix.Write(wire.Upsert, strings.Repeat("c", 128), strings.Repeat("%", 255)),
			[]byte("{}"))
		if err != nil {
			return err
		}
		err = nc.Publish("lapse.write.upsert.orders."+strings.Repeat("x", longestLine), nil)
		if err == nil {
			err = nc.FlushTimeout(time.Second)
		}
		if err == nil {
			return errors.New("the server took a subject that no client needs")
		}
		return nil
	})
	if n := p.embedded.NumClients(); n > nats1 {
		t.Errorf("%d connections to NATS, and %d are allowed", n, nats1)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// serving starts a process, and waits until it is ready.
func serving(t *testing.T, ctx context.Context, opts Options) (p *process, ended <-chan error) {
	t.Helper()
	opts.permissions, opts.malformed = newPermissions(), newMalformed()
	p = &process{opts: opts}
	if err := p.open(ctx); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- errors.Join(p.serve(ctx, time.Now()), p.close()) }()
	harness.Until(t, harness.Limit, "the process is ready", func(ctx context.Context) error {
		resp, err := http.Get(p.at.HTTP + "/readyz")
		if err != nil {
			return err
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer func() { _ = resp.Body.Close() }()
		if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			return errors.New(string(text))
		}
		return nil
	})
	return p, end
}

// TestMakeRoom: the embedded NATS server closes as few connections as leave an eighth of the places free. The first are
// those that never did anything, then those without a subscription; of both kinds the one that is idle for longest.
func TestMakeRoom(t *testing.T) {
	const most, stay = 16, 14
	srv := inprocess.Start(t, &server.Options{MaxConn: most})
	clients := newNATSClients(srv, most)
	connect := func(first func(*nats.Conn) error) *nats.Conn {
		t.Helper()
		nc, err := nats.Connect(srv.ClientURL(), natstest.Patient, nats.NoReconnect())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		if err := errors.Join(first(nc), nc.FlushTimeout(harness.Limit)); err != nil {
			t.Fatal(err)
		}
		return nc
	}
	idles := func(*nats.Conn) error { return nil }
	publishes := func(nc *nats.Conn) error { return nc.Publish("p", nil) }
	subscribes := func(nc *nats.Conn) error { _, err := nc.SubscribeSync("s"); return err }
	stays := []*nats.Conn{connect(subscribes)}
	third, first, second := connect(publishes), connect(idles), connect(idles)
	stays = append(stays, connect(publishes))
	for srv.NumClients() < stay {
		stays = append(stays, connect(subscribes))
	}
	for i, nc := range []*nats.Conn{first, second, third} {
		clients.makeRoom() // there is room
		stays = append(stays, connect(subscribes))
		clients.makeRoom()
		wait(t, fmt.Sprintf("connection %d is closed", i), func() bool { return nc.IsClosed() && srv.NumClients() == stay })
	}
	for i, nc := range stays {
		if err := nc.FlushTimeout(harness.Limit); err != nil {
			t.Errorf("connection %d of those that should stay: %v", i, err)
		}
	}
}
