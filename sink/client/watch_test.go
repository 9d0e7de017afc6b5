package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// wantConsumers waits until the stream of events has n consumers.
func (b *bench) wantConsumers(t *testing.T, n int) {
	t.Helper()
	got := -1
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); { // each time it asks the server
		stream, err := b.js.Stream(t.Context(), "LAPSE_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if got = stream.CachedInfo().State.Consumers; got == n {
			return
		}
	}
	t.Errorf("the stream has %d consumers, want %d", got, n)
}

func TestWatchLeavesNoConsumer(t *testing.T) {
	b := newBench(t, true)
	c := b.client(t, limit)
	for name, end := range map[string]func(context.Context, func()) (func(client.Notification) error, error){
		"interrupt": func(_ context.Context, stop func()) (func(client.Notification) error, error) {
			return func(client.Notification) error { stop(); return nil }, nil
		},
		"error": func(context.Context, func()) (func(client.Notification) error, error) {
			return func(client.Notification) error { return errors.ErrUnsupported }, errors.ErrUnsupported
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			f, want := end(ctx, stop)
			watching := func([]string) {
				b.wantConsumers(t, 1)
				b.event(t, "orders", "1")
			}
			if err := c.Watch(ctx, client.WatchOptions{Watching: watching}, f); !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
			// The client is still connected, so nothing but Watch deletes the consumer.
			b.wantConsumers(t, 0)
		})
	}
}

// After a reconnect there is another consumer; Watch deletes both, and misses nothing that the
// stream stored in between.
func TestWatchLeavesNoConsumerAfterAReconnect(t *testing.T) {
	dir := t.TempDir()
	start := func(port int) *server.Server {
		srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		if !srv.ReadyForConnections(30 * time.Second) {
			t.Fatal("nats-server is not ready")
		}
		return srv
	}
	connect := func(srv *server.Server) *bench {
		nc, err := nats.Connect(srv.ClientURL())
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		return &bench{nc: nc, js: js, url: srv.ClientURL()}
	}
	srv := start(-1)
	b := connect(srv)
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LAPSE_EVENTS", Subjects: wire.DefaultPrefix.EventSubjects()}); err != nil {
		t.Fatal(err)
	}
	c := b.client(t, limit)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first, second := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	var got []string
	go func() {
		ended <- c.Watch(ctx, client.WatchOptions{Watching: func([]string) { b.event(t, "orders", "1") }}, func(n client.Notification) error {
			got = append(got, n.Expired.ID)
			switch len(got) {
			case 1:
				close(first)
			case 3:
				close(second)
			}
			return nil
		})
	}()
	wait := func(done <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("waited 30s for %s", what)
		}
	}
	wait(first, "the first event")
	b.nc.Close()
	port := srv.Addr().(*net.TCPAddr).Port
	srv.Shutdown()
	srv.WaitForShutdown()
	srv = start(port)
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	b = connect(srv)
	t.Cleanup(b.nc.Close)
	b.event(t, "orders", "2")
	b.event(t, "orders", "3")
	wait(second, "the events after the reconnect")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("error %v", err)
	}
	b.wantConsumers(t, 0)
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
