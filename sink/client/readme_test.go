//lint:file-ignore SA4006 the README of the project leaves out the check of each error

package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// onceConsumed calls f when somebody consumes the events under a durable name. The caller waits until f has returned.
func onceConsumed(l *clienttest.Lapse, durable string, f func()) (wait func()) {
	var called sync.WaitGroup
	called.Go(func() {
		js, err := jetstream.New(l.Client().Conn())
		check(err)
		check(poll.Until(context.Background(), 30*time.Second, func(ctx context.Context) error {
			_, err := js.Consumer(ctx, "LAPSE_EVENTS", durable)
			return err
		}))
		f()
	})
	return called.Wait
}

// Example_readme is the program in Go of the README of the project.
func Example_readme() {
	l, err := clienttest.New()
	check(err)
	defer l.Close()
	server := l.URL()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	_, err = l.Client().Publish(ctx, client.Message{Subject: "lapse.config.orders", Body: []byte(`{"defaultTtl":-1}`)})
	check(err)
	bill := func(_ context.Context, id string, order Order) error {
		fmt.Println("bill", id, order.Item)
		done() // ends OnExpired
		return nil
	}
	defer onceConsumed(l, "billing", func() { l.Advance(time.Minute) })()

	c, err := client.Connect(client.Options{Server: server})
	orders, err := client.Open[Order](c, "orders")
	_, err = orders.Upsert(ctx, "42", Order{Item: "tea"}, client.TTL(time.Minute))
	err = orders.OnExpired(ctx, "billing", func(ctx context.Context, e client.Expired[Order]) error {
		return bill(ctx, e.ID, e.Value)
	})
	check(err)
	c.Close()

	// Output:
	// bill 42 tea
}

// Example_guide is the program of the README of this package.
func Example_guide() {
	l, err := clienttest.New()
	check(err)
	defer l.Close()
	server := l.URL()
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()

	c, err := client.Connect(client.Options{Server: server})
	check(err)
	defer c.Close()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour, Indexes: []string{"/item"}}) // once
	check(err)

	written, err := orders.Create(ctx, "42", Order{Item: "tea"}, client.TTL(30*time.Minute))
	check(err)
	_, err = orders.Patch(ctx, "42", map[string]any{"count": 2}, client.IfMatch(written.Etag))
	check(err)
	doc, err := orders.Get(ctx, "42")
	check(err)
	fmt.Println(doc.Value.Item, doc.Value.Count, "expires after", doc.ExpiresAt.Sub(doc.Ts))

	for d, err := range orders.List(ctx, client.ByDeadline(), client.ExpiringWithin(time.Hour)) {
		check(err)
		fmt.Println(d.ID)
	}

	for d, err := range orders.Query(ctx, client.Where("/item").Eq("tea"), client.Where("/count").Gte(2),
		client.OrderBy("/item")) {
		check(err)
		fmt.Println(d.ID)
	}
	n, err := orders.QueryCount(ctx, client.Where("/item").In("tea", "coffee"))
	check(err)
	fmt.Println(n)

	_, err = orders.Create(ctx, "42", Order{Item: "coffee"})
	var rejected *client.RejectedError
	switch {
	case errors.Is(err, client.ErrExists):
		errors.As(err, &rejected)
		fmt.Println(rejected.Code, rejected.Reason)
	case errors.Is(err, client.ErrUnknownOutcome):
		fmt.Println("it may have been created: read it, or repeat the call if it has a MessageID")
	case errors.Is(err, client.ErrUnavailable):
		fmt.Println("it was not created: try later")
	}

	l.Advance(time.Hour) // elsewhere: wait
	err = orders.OnExpired(ctx, "orders-billing", func(ctx context.Context, e client.Expired[Order]) error {
		fmt.Println("expired", e.ID, e.Value.Item)
		done() // a service goes on
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// tea 2 expires after 30m0s
	// 42
	// 42
	// 1
	// 409 the document exists already: use another id, or upsert or replace it.
	// expired 42 tea
}

// TestOrdersExpire is the test of the README of this package.
func TestOrdersExpire(t *testing.T) {
	l := clienttest.Start(t)
	orders, err := client.Open[Order](l.Client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Configure(t.Context(), client.Config{DefaultTTL: 24 * time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Create(t.Context(), "42", Order{Item: "tea"}); err != nil {
		t.Fatal(err)
	}
	l.Advance(23 * time.Hour)
	if _, err := orders.Get(t.Context(), "42"); err != nil {
		t.Error(err)
	}
	l.Expire("orders", "42") // no waiting, however long its TTL is
	if _, err := orders.Get(t.Context(), "42"); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}
