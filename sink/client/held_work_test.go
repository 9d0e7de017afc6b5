//go:build held

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// heldEvents is how many events a held worker gets.
const heldEvents = 12

// heldWorker is a worker with the durable name "test", which checks what its handler gets.
type heldWorker struct {
	t *testing.T
	b *bench

	mu      sync.Mutex
	running map[string]bool
	handled map[string]bool
	failed  atomic.Bool
}

// newHeldWorker publishes the events.
func newHeldWorker(t *testing.T) *heldWorker {
	t.Helper()
	w := &heldWorker{t: t, b: newBench(t, true), running: map[string]bool{}, handled: map[string]bool{}}
	for i := range heldEvents {
		w.b.event(t, "orders", fmt.Sprint(i))
	}
	return w
}

// handle fails the first event.
func (w *heldWorker) handle(_ context.Context, e client.Expired[Order]) error {
	w.set(e.ID, true)
	defer w.set(e.ID, false)
	if w.failed.CompareAndSwap(false, true) {
		return errors.New("the first one fails")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handled[e.ID] = true
	return nil
}

// set notes whether a handler has an event. No two may have the same one (W2).
func (w *heldWorker) set(id string, running bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[id] && running {
		w.t.Errorf("two handlers have event %s", id)
	}
	w.running[id] = running
}

// run runs the worker until all events are acknowledged, or it ends by itself.
func (w *heldWorker) run(c *client.Client) error {
	w.t.Helper()
	orders, err := client.Open[Order](c, "orders")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- orders.OnExpired(ctx, "test", w.handle, fromTheFirst, client.Concurrency(4), client.AckWait(2*time.Second),
			client.Backoff(time.Millisecond, time.Millisecond))
	}()
	harness.Until(w.t, limit, "all events are acknowledged", func(ctx context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			return nil
		default:
		}
		consumer, err := w.b.js.Consumer(ctx, wire.DefaultPrefix.EventsStream(), "test")
		if err != nil {
			return err
		}
		if floor := consumer.CachedInfo().AckFloor.Stream; floor < heldEvents {
			return fmt.Errorf("they are up to %d", floor)
		}
		return nil
	})
	stop()
	return <-ended
}

// checkAll checks that each event was handled (W1).
func (w *heldWorker) checkAll() {
	w.t.Helper()
	if len(w.handled) != heldEvents {
		w.t.Errorf("%d events are handled and all are acknowledged, want %d", len(w.handled), heldEvents)
	}
}

// TestHeldWork: the connection is lost between two steps of a worker: the consumer, a request, its messages, and the
// flush at the end. No event is acknowledged before it is handled, and none goes to two handlers at a time.
func TestHeldWork(t *testing.T) {
	for _, operation := range []string{"runWork", "worker.follow", "worker.request"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Reconnection, func(t *testing.T, during func(func())) {
				w := newHeldWorker(t)
				c := client.NewProxied(t, w.b.url, limit)
				during(c.Reconnect)
				if err := w.run(c.Client); err != nil {
					t.Fatal(err)
				}
				w.checkAll()
			})
		})
	}
}

// TestHeldConsumerIsDeleted: somebody deletes the consumer between two steps of a worker, and with it the position in
// the events. The worker ends, and does not begin a new one by itself.
func TestHeldConsumerIsDeleted(t *testing.T) {
	held.Each(t, "sink/client.runWork", held.Write, func(t *testing.T, during func(func())) {
		w := newHeldWorker(t)
		during(func() {
			if err := w.b.js.DeleteConsumer(context.WithoutCancel(t.Context()), wire.DefaultPrefix.EventsStream(),
				"test"); err != nil {
				t.Error(err)
			}
		})
		if err := w.run(w.b.client(t, limit)); err == nil {
			w.checkAll()
		} else if !errors.Is(err, client.ErrConsumerLost) || len(w.handled) > 0 {
			t.Errorf("%v, %d events are handled", err, len(w.handled))
		}
	})
}

// TestHeldConsumerAppears: another process creates the consumer between the look-up and the creation. The worker shares
// it, and sets its wait for acknowledgements; one of other messages it refuses.
func TestHeldConsumerAppears(t *testing.T) {
	for _, collection := range []string{"orders", "carts"} {
		t.Run(collection, func(t *testing.T) {
			held.Each(t, "sink/client.worker.open", held.Takeover, func(t *testing.T, during func(func())) {
				w := newHeldWorker(t)
				happened := false
				during(func() {
					happened = true
					if _, err := w.b.js.CreateConsumer(context.WithoutCancel(t.Context()), wire.DefaultPrefix.EventsStream(),
						jetstream.ConsumerConfig{Durable: "test", FilterSubject: "lapse.expired." + collection + ".>",
							AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}); err != nil {
						t.Error(err)
					}
				})
				err := w.run(w.b.client(t, limit))
				if happened && collection == "carts" {
					wantIs(t, err, client.ErrInvalid)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				w.checkAll()
				if wait := w.b.info(t).Config.AckWait; wait != 2*time.Second {
					t.Errorf("the consumer waits for %s", wait)
				}
			})
		})
	}
}
