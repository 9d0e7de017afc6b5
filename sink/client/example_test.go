package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

// Order is the document type of the examples.
type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count,omitempty"`
}

// startLapse runs a lapse for an example, and connects to it: elsewhere that is
//
//	c, err := client.Connect(client.Options{Server: "nats://127.0.0.1:4222"})
func startLapse() (l *clienttest.Lapse, c *client.Client) {
	l, err := clienttest.New(clienttest.OpenCollections)
	check(err)
	return l, l.Client()
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func Example() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()

	orders, err := client.Open[Order](c, "orders")
	check(err)
	// A document of this collection expires an hour after its last write.
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour})
	check(err)
	written, err := orders.Upsert(ctx, "42", Order{Item: "tea"})
	check(err)
	fmt.Println("created:", written.Created, "expires after", written.ExpiresAt.Sub(written.Ts))

	doc, err := orders.Get(ctx, "42")
	check(err)
	fmt.Println("item:", doc.Value.Item)

	l.Advance(time.Hour) // elsewhere: wait
	_, err = orders.Get(ctx, "42")
	fmt.Println("not found:", errors.Is(err, client.ErrNotFound))
	err = orders.OnExpired(ctx, "billing", func(_ context.Context, e client.Expired[Order]) error {
		fmt.Println("expired:", e.ID, e.Value.Item)
		done() // ends OnExpired
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// created: true expires after 1h0m0s
	// item: tea
	// not found: true
	// expired: 42 tea
}

func ExampleCollection_Create() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	_, err = orders.Create(ctx, "42", Order{Item: "tea"})
	check(err)

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

	// Output:
	// 409 the document exists already: use another id, or upsert or replace it.
}

func ExampleIfMatch() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	first, err := orders.Upsert(ctx, "42", Order{Item: "tea"})
	check(err)
	_, err = orders.Patch(ctx, "42", map[string]any{"count": 2}, client.IfMatch(first.Etag))
	check(err)
	_, err = orders.Delete(ctx, "42", client.IfMatch(first.Etag)) // somebody has changed it since
	fmt.Println("precondition:", errors.Is(err, client.ErrPrecondition))
	doc, err := orders.Get(ctx, "42")
	check(err)
	fmt.Println(doc.Value.Item, doc.Value.Count)

	// Output:
	// precondition: true
	// tea 2
}

func ExampleTTL() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	// TTL is on, and only documents with a TTL of their own expire.
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: client.Never})
	check(err)
	written, err := orders.Upsert(ctx, "42", Order{Item: "tea"}, client.TTL(90*time.Second))
	check(err)
	fmt.Println("expires after", written.ExpiresAt.Sub(written.Ts))
	_, err = orders.Upsert(ctx, "43", Order{Item: "tea"}, client.TTL(1500*time.Millisecond))
	fmt.Println(err)

	// Output:
	// expires after 1m30s
	// orders/43: TTL 1.5s is not valid: use a whole number of seconds from 1 s to 2147483647 s, or client.Never
}

func ExampleMessageID() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	add := func() {
		_, err := orders.Patch(ctx, "42", map[string]any{"count": 2}, client.MessageID("request-7"))
		for errors.Is(err, client.ErrUnknownOutcome) { // give up after a while
			_, err = orders.Patch(ctx, "42", map[string]any{"count": 2}, client.MessageID("request-7"))
		}
		check(err)
	}
	_, err = orders.Upsert(ctx, "42", Order{Item: "tea"})
	check(err)
	add()
	again, err := orders.Patch(ctx, "42", map[string]any{"count": 2}, client.MessageID("request-7"))
	check(err)
	fmt.Println("duplicate:", again.Duplicate)

	// Output:
	// duplicate: true
}

func ExampleCollection_List() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	for _, item := range []string{"coffee", "tea"} {
		_, err := orders.Upsert(ctx, item, Order{Item: item})
		check(err)
	}
	for doc, err := range orders.List(ctx) {
		check(err)
		fmt.Println(doc.ID, doc.Value.Item)
	}
	n, err := orders.Count(ctx)
	check(err)
	fmt.Println(n.Live, "live")

	// Unordered output:
	// coffee coffee
	// tea tea
	// 2 live
}

func ExampleCollection_Query() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	// Declare what you look for before you write, or wait until the index is made: see client.ErrIndexMade.
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour, Indexes: []string{"/item", "/count"}})
	check(err)
	for id, document := range map[string]Order{"1": {"tea", 7}, "2": {"coffee", 9}, "3": {"tea", 9}, "4": {"tea", 1}} {
		_, err := orders.Upsert(ctx, id, document)
		check(err)
	}
	many := []client.QueryOption{client.Where("/item").Eq("tea"), client.Where("/count").Gt(1)}
	for doc, err := range orders.Query(ctx, append(many, client.OrderBy("-/count"))...) {
		check(err)
		fmt.Println(doc.ID, doc.Value.Count)
	}
	n, err := orders.QueryCount(ctx, many...)
	check(err)
	fmt.Println("count:", n)
	_, err = orders.QueryCount(ctx, client.Where("/customer").Eq("c1"))
	fmt.Println("no index:", errors.Is(err, client.ErrNoIndex))

	// Output:
	// 3 9
	// 1 7
	// count: 2
	// no index: true
}

func ExampleCollection_Batch() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	created, failed := 0, 0
	batch, err := orders.Batch(ctx, func(id string, w client.Written, err error) {
		if err != nil {
			failed++
		} else if w.Created {
			created++
		}
	})
	check(err)
	for i := range 1000 {
		check(batch.Create(ctx, fmt.Sprint(i), Order{Count: i}, client.TTL(time.Hour)))
	}
	check(batch.Create(ctx, "7", Order{})) // exists
	check(batch.Close(ctx))
	fmt.Println(created, "created,", failed, "failed")

	// Output:
	// 1000 created, 1 failed
}

// With AckOnly a batch is faster: it ends when the log has all writes.
func ExampleCollection_Batch_ackOnly() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	batch, err := orders.Batch(ctx, nil, client.AckOnly())
	check(err)
	for i := range 1000 {
		check(batch.Upsert(ctx, fmt.Sprint(i), Order{Count: i}))
	}
	check(batch.Close(ctx))
	fmt.Println("1000 writes are durable")

	// Output:
	// 1000 writes are durable
}

func ExampleCollection_OnExpired() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour})
	check(err)
	for _, id := range []string{"fine", "later", "never"} {
		_, err := orders.Upsert(ctx, id, Order{Item: "tea"})
		check(err)
	}
	l.Advance(time.Hour)

	// Run it in as many processes as you like: each event goes to one of them.
	handled := 0
	err = orders.OnExpired(ctx, "billing", func(ctx context.Context, e client.Expired[Order]) error {
		switch {
		case e.ID == "later" && e.Attempt == 1:
			return errors.New("the bank does not answer") // it comes back
		case e.ID == "never":
			return client.Discard(errors.New("nothing to bill"))
		}
		fmt.Printf("%s after %s, attempt %d\n", e.ID, e.TTL, e.Attempt)
		if handled++; handled == 2 {
			done()
		}
		return nil
	}, client.Concurrency(1), client.Since(time.Time{}), client.Backoff(10*time.Millisecond, time.Second))
	check(err)

	// Events of different documents come in any order.

	// Unordered output:
	// fine after 1h0m0s, attempt 1
	// later after 1h0m0s, attempt 2
}

func ExampleCollection_OnRejected() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	_, err = orders.Replace(ctx, "42", Order{Item: "tea"}, client.AckOnly())
	check(err) // the log has it
	err = orders.OnRejected(ctx, "audit", func(_ context.Context, r client.Rejection) error {
		fmt.Println(r.Subject, r.Code, r.Error)
		done()
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// lapse.write.replace.orders.42 404 there is no such document, or it has expired: a replace needs one that is there.
}

func ExampleCollection_ForecastFor() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	orders, err := client.Open[Order](c, "orders")
	check(err)
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour})
	check(err)
	_, err = orders.Upsert(ctx, "old", Order{})
	check(err)
	l.Advance(30 * time.Minute)
	_, err = orders.Upsert(ctx, "new", Order{})
	check(err)

	atOnce, later, err := orders.ForecastFor(ctx, 10*time.Minute, time.Hour, 2)
	check(err)
	fmt.Println("a default of 10 minutes would expire at once:", atOnce)
	fmt.Println("within half an hour:", later[0].Count)

	// Output:
	// a default of 10 minutes would expire at once: 1
	// within half an hour: 1
}

// Watch follows the events of all collections, without a durable consumer.
func ExampleClient_Watch() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	_, err := c.Write(ctx, client.Message{Subject: wire.DefaultPrefix.Config("orders"), Body: []byte(`{"defaultTtl":60}`)})
	check(err)
	_, err = c.Write(ctx, client.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "orders", "42"),
		Body: []byte(`{"item":"tea"}`)})
	check(err)
	l.Advance(time.Minute)
	err = c.Watch(ctx, client.WatchOptions{Since: new(time.Now().Add(-time.Hour))}, func(n client.Notification) error {
		fmt.Printf("expired %s/%s %s\n", n.Expired.Collection, n.Expired.ID, n.Expired.Document)
		done() // ends the watch
		return nil
	})
	check(err)

	// Output:
	// expired orders/42 {"item":"tea"}
}
