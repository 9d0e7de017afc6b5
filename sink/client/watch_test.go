package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink/client"
)

// hasConsumers waits until the stream of events has n consumers, and reports whether it does.
func (b *bench) hasConsumers(t *testing.T, n int, within time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(within); time.Now().Before(deadline); { // each time it asks the server
		stream, err := b.js.Stream(t.Context(), "LAPSE_EVENTS")
		if err != nil {
			t.Fatal(err)
		}
		if stream.CachedInfo().State.Consumers == n {
			return true
		}
	}
	return false
}

// The server forgets the consumer of a watch after a minute. A watch that deletes its own is
// faster, unless the machine stands still meanwhile: then Watch gives up after 2 s.
const (
	byWatch  = 30 * time.Second
	byServer = 3 * time.Minute
	tries    = 3
)

func TestWatchLeavesNoConsumer(t *testing.T) {
	t.Parallel()
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
			for range tries {
				ctx, stop := context.WithCancel(t.Context())
				f, want := end(ctx, stop)
				watching := func([]string) {
					if !b.hasConsumers(t, 1, limit) {
						t.Error("the watch has no consumer")
					}
					b.event(t, "orders", "1")
				}
				err := c.Watch(ctx, client.WatchOptions{Watching: watching}, f)
				stop()
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
				// The client is still connected, so nothing but Watch deletes the consumer.
				if b.hasConsumers(t, 0, byWatch) {
					return
				}
				b.hasConsumers(t, 0, byServer)
			}
			t.Errorf("%d times a consumer was left", tries)
		})
	}
}

// After a reconnect there is another consumer; Watch deletes both, and misses nothing that the
// stream stored in between.
func TestWatchLeavesNoConsumerAfterAReconnect(t *testing.T) {
	t.Parallel()
	for range tries {
		if watchAfterAReconnect(t) {
			return
		}
	}
	t.Errorf("%d times a consumer was left", tries)
}

func watchAfterAReconnect(t *testing.T) (deleted bool) {
	dir := t.TempDir()
	start := func(port int) *server.Server {
		return inprocess.Start(t, &server.Options{Port: port, JetStream: true, StoreDir: dir})
	}
	connect := func(srv *server.Server) *bench {
		nc, err := nats.Connect(srv.ClientURL(), natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		return &bench{nc: nc, js: natstest.JetStream(t, nc), url: srv.ClientURL()}
	}
	port := freeport.Take(t)
	srv := start(port)
	b := connect(srv)
	if _, err := b.js.CreateStream(t.Context(), eventsConfig()); err != nil {
		t.Fatal(err)
	}
	c := b.client(t, limit)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first, second := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	var got []string
	go func() {
		ended <- c.Watch(ctx, client.WatchOptions{Watching: func([]string) { b.event(t, "orders", "1") }},
			func(n client.Notification) error {
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
		case <-time.After(limit):
			t.Fatalf("waited %s for %s", limit, what)
		}
	}
	wait(first, "the first event")
	b.nc.Close()
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
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	return b.hasConsumers(t, 0, byWatch)
}
