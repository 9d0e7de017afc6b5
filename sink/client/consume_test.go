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
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// orders is a collection on a bench, by a client of its own.
func (b *bench) orders(t *testing.T) *client.Collection[Order] {
	t.Helper()
	orders, err := client.Open[Order](b.client(t, limit), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

// info is the consumer with the name "test".
func (b *bench) info(t *testing.T) *jetstream.ConsumerInfo {
	t.Helper()
	consumer, err := b.js.Consumer(t.Context(), "LAPSE_EVENTS", "test")
	if err != nil {
		t.Fatal(err)
	}
	return consumer.CachedInfo()
}

var fromTheFirst = client.Since(time.Time{})

// Two processes share the events: each goes to one of them, and each of them gets some. At the
// end nothing is left.
func TestOnExpiredIsShared(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	const events = 200
	for i := range events {
		b.event(t, "orders", fmt.Sprint(i))
	}
	b.event(t, "carts", "1") // of another collection
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var mu sync.Mutex
	seen := map[string]int{}
	var each [2]atomic.Int32
	both := make(chan struct{}) // closed when each has an event
	var running sync.WaitGroup
	for n := range 2 {
		orders := b.orders(t)
		running.Go(func() {
			err := orders.OnExpired(ctx, "test", func(ctx context.Context, e client.Expired[Order]) error {
				if each[n].Add(1) == 1 && each[1-n].Load() > 0 {
					close(both)
				}
				<-both
				mu.Lock()
				defer mu.Unlock()
				if seen[e.ID]++; len(seen) == events {
					stop()
				}
				return nil
			}, fromTheFirst, client.Concurrency(2))
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %s came %d times", id, n)
		}
	}
	if len(seen) != events {
		t.Errorf("%d events came, want %d", len(seen), events)
	}
	harness.Until(t, limit, "all events are acknowledged", func(context.Context) error {
		if info := b.info(t); info.NumAckPending != 0 || info.NumPending != 0 {
			return fmt.Errorf("%+v", info)
		}
		return nil
	})
}

// An error comes back after the backoff; Discard ends an event; an event without its document
// comes with Omitted; one with another document counts as an error.
func TestOnExpiredErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	for _, id := range []string{"fails", "discarded"} {
		b.event(t, "orders", id)
	}
	publish := func(id, rest string) {
		body := fmt.Sprintf(`{"id":%q,"collection":"orders",%s"etag":"7","ts":"2026-01-31T12:00:00.000Z","ttl":5,`+
			`"expiredAt":"2026-01-31T12:00:05.000Z"}`, id, rest)
		if _, err := b.js.Publish(t.Context(), wire.DefaultPrefix.Expired("orders", id), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	publish("omitted", `"documentOmitted":true,`)
	publish("other", `"document":{"item":7},`)
	publish("last", `"document":{"item":"tea"},`)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var mu sync.Mutex
	got := map[string][]client.Expired[Order]{}
	err := b.orders(t).OnExpired(ctx, "test", func(_ context.Context, e client.Expired[Order]) error {
		mu.Lock()
		defer mu.Unlock()
		got[e.ID] = append(got[e.ID], e)
		switch n := len(got["fails"]); {
		case e.ID == "discarded":
			return fmt.Errorf("no use: %w", client.Discard(errors.New("of no interest")))
		case e.ID == "fails" && n < 3:
			return errors.New("not yet")
		case n == 3 && len(got) == 4:
			stop()
		}
		return nil
	}, fromTheFirst, client.Concurrency(1), client.Backoff(10*time.Millisecond, 20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int{"fails": 3, "discarded": 1, "omitted": 1, "last": 1, "other": 0} {
		if n := len(got[id]); n != want {
			t.Errorf("%s came %d times, want %d", id, n, want)
		}
	}
	for i, e := range got["fails"] {
		if e.Attempt != i+1 {
			t.Errorf("attempt %d is numbered %d", i+1, e.Attempt)
		}
	}
	if e := got["omitted"][0]; !e.Omitted || e.Value != (Order{}) || e.Etag != 7 || e.TTL != 5*time.Second ||
		e.ExpiredAt.Sub(e.Ts) != 5*time.Second {
		t.Errorf("omitted: %+v", e)
	}
	if e := got["last"][0]; e.Omitted || e.Value.Item != "tea" || e.Collection != "orders" {
		t.Errorf("last: %+v", e)
	}
}

// A handler may be slower than AckWait, and neither its event nor the one after it comes again
// meanwhile. At the end OnExpired waits for its handlers, and has received nothing that it has
// not begun.
func TestOnExpiredEndsCleanly(t *testing.T) {
	b := newBench(t, true)
	orders := b.orders(t)
	b.event(t, "orders", "slow")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, finish := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	ended := make(chan error, 1)
	const wait = 300 * time.Millisecond
	go func() {
		ended <- orders.OnExpired(ctx, "test", func(ctx context.Context, _ client.Expired[Order]) error {
			if calls.Add(1) > 1 {
				return nil
			}
			close(began)
			<-finish
			return ctx.Err() // it is not done although that of OnExpired is
		}, fromTheFirst, client.AckWait(wait), client.Concurrency(1))
	}()
	<-began
	b.event(t, "orders", "not begun")
	harness.At(t, time.Now().Add(4*wait)) // only so could one of them come again
	stop()
	select {
	case err := <-ended:
		t.Fatalf("it ended before its handler: %v", err)
	case <-time.After(wait):
	}
	close(finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("%d events came, want 1", n)
	}
	ctx, stop = context.WithTimeout(t.Context(), limit)
	defer stop()
	var ids []string
	err := orders.OnExpired(ctx, "test", func(_ context.Context, e client.Expired[Order]) error {
		ids = append(ids, fmt.Sprint(e.ID, e.Attempt))
		stop()
		return nil
	}, fromTheFirst, client.AckWait(time.Hour))
	if err != nil || len(ids) != 1 || ids[0] != "not begun1" {
		t.Errorf("%v, %v", ids, err)
	}
}

// The handlers' own context is done when the grace is over.
func TestOnExpiredGrace(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	b.event(t, "orders", "1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	err := b.orders(t).OnExpired(ctx, "test", func(ctx context.Context, _ client.Expired[Order]) error {
		stop()
		<-ctx.Done()
		return ctx.Err()
	}, fromTheFirst, client.Grace(10*time.Millisecond))
	if err != nil {
		t.Error(err)
	}
	if info := b.info(t); info.NumPending+uint64(info.NumAckPending) != 1 {
		t.Errorf("the event is lost: %+v", info)
	}
}

// A consumer begins with new events, unless Since says otherwise, and a name belongs to one
// collection.
func TestOnExpiredBegins(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	b.event(t, "orders", "old")
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var ids []string
	ended := make(chan error, 1)
	orders := b.orders(t)
	go func() {
		ended <- orders.OnExpired(ctx, "test", func(_ context.Context, e client.Expired[Order]) error {
			ids = append(ids, e.ID)
			stop()
			return nil
		})
	}()
	if !b.hasConsumers(t, 1, limit) {
		t.Fatal("there is no consumer")
	}
	b.event(t, "orders", "new")
	if err := <-ended; err != nil || len(ids) != 1 || ids[0] != "new" {
		t.Errorf("%v, %v", ids, err)
	}
	carts, err := client.Open[Order](b.client(t, limit), "carts")
	if err != nil {
		t.Fatal(err)
	}
	err = carts.OnExpired(t.Context(), "test", nil)
	wantIs(t, err, client.ErrInvalid)
	wantError(t, err, "the consumer test exists, and is for [lapse.expired.orders.>] instead of "+
		"[lapse.expired.carts.>]: use another name")
	err = orders.OnRejected(t.Context(), "test", nil)
	wantIs(t, err, client.ErrInvalid)
	for _, name := range []string{"", "a.b", "a b", "*"} {
		wantIs(t, orders.OnExpired(t.Context(), name, nil), client.ErrInvalid)
	}
	for _, option := range []client.ConsumeOption{client.Concurrency(0), client.Backoff(0, time.Second), client.Backoff(2,
		1), client.AckWait(1)} {
		wantIs(t, orders.OnExpired(t.Context(), "test", nil, option), client.ErrInvalid)
	}
}

// Somebody deletes the consumer, or the stream: its position is lost, so OnExpired ends.
func TestOnExpiredConsumerIsLost(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(jetstream.JetStream, context.Context) error{
		"consumer": func(js jetstream.JetStream, ctx context.Context) error {
			return js.DeleteConsumer(ctx, "LAPSE_EVENTS", "test")
		},
		"stream": func(js jetstream.JetStream, ctx context.Context) error {
			return js.DeleteStream(ctx, "LAPSE_EVENTS")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, true)
			b.event(t, "orders", "1")
			ctx, stop := context.WithTimeout(t.Context(), limit)
			defer stop()
			handled := make(chan struct{})
			ended := make(chan error, 1)
			orders := b.orders(t)
			go func() {
				ended <- orders.OnExpired(ctx, "test", func(context.Context,
					client.Expired[Order]) error {
					close(handled)
					return nil
				}, fromTheFirst)
			}()
			<-handled
			if err := remove(b.js, t.Context()); err != nil {
				t.Fatal(err)
			}
			err := <-ended
			wantIs(t, err, client.ErrConsumerLost)
			wantError(t, err, "orders: ", "to begin a new one, start again")
		})
	}
}

func TestOnExpiredWithoutLapse(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	err := b.orders(t).OnExpired(t.Context(), "test", nil)
	wantIs(t, err, client.ErrUnavailable)
	wantError(t, err, "no lapse answers")
}

func TestOnRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	b.event(t, "orders", "1")
	b.reject(t, "carts.1")
	b.reject(t, "orders") // a configuration
	b.reject(t, "orders.1")
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var subjects []string
	err := b.orders(t).OnRejected(ctx, "test", func(_ context.Context, r client.Rejection) error {
		if subjects = append(subjects, r.Subject); len(subjects) == 2 {
			stop()
		}
		return nil
	}, fromTheFirst, client.Concurrency(1))
	if err != nil || fmt.Sprint(subjects) != "[lapse.write.upsert.orders lapse.write.upsert.orders.1]" {
		t.Errorf("%v, %v", subjects, err)
	}
}
