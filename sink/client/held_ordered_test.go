//go:build held

package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// heldTarget is the target of the due messages of these tests: they have one stripe, so what happens in it is about all
// of them.
const heldTarget = "mail.send"

// heldStripe is its consumer.
const heldStripe = "test-0"

// due publishes a due message about a version of a document.
func (b *bench) due(t *testing.T, document string, version int) {
	msg := &nats.Msg{Subject: wire.DefaultPrefix.Due(heldTarget), Header: nats.Header{
		"ce-source": {"/lapse/1/collections/orders"}, "ce-subject": {document}, "Version": {strconv.Itoa(version)},
		wire.HeaderTarget: {heldTarget}, "ce-id": {fmt.Sprintf("orders/%s/%d", document, version)},
	}}
	if _, err := b.js.PublishMsg(context.WithoutCancel(t.Context()), msg); err != nil {
		t.Error(err)
	}
}

// heldOrder checks the order in which handlers get the versions of documents.
type heldOrder struct {
	t *testing.T

	mu       sync.Mutex
	returned map[string]int  // how many versions a handler has returned nil for, by document
	running  map[string]bool // by process and document
}

// handle returns the handler of a process, which calls do with each message. A version has to come after a handler has
// returned nil for each earlier one, and a process may have one handler for a document at a time (O2).
func (o *heldOrder) handle(process string, do func(context.Context, *client.Ordered) error) func(
	context.Context, *client.Ordered,
) error {
	return func(ctx context.Context, m *client.Ordered) error {
		document, version := m.Header.Get("ce-subject"), 0
		if _, err := fmt.Sscan(m.Header.Get("Version"), &version); err != nil {
			o.t.Error(err)
		}
		one := process + " " + document
		o.mu.Lock()
		if o.returned == nil {
			o.returned, o.running = map[string]int{}, map[string]bool{}
		}
		if version > o.returned[document] {
			o.t.Errorf("%s: version %d comes when %d have returned", one, version, o.returned[document])
		}
		if o.running[one] {
			o.t.Errorf("%s: two handlers run", one)
		}
		o.running[one] = true
		o.mu.Unlock()
		err := do(ctx, m)
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.running[one] = false; err == nil {
			o.returned[document] = max(o.returned[document], version+1)
		}
		return err
	}
}

// checkAll checks that handlers have returned nil for so many versions of each document (O1).
func (o *heldOrder) checkAll(documents, versions int) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.returned) != documents {
		o.t.Errorf("messages about %d documents have come, want %d", len(o.returned), documents)
	}
	for document, n := range o.returned {
		if n != versions {
			o.t.Errorf("%d versions of %s have come, want %d", n, document, versions)
		}
	}
}

// heldOptions are those of Ordered in these tests, in which it returns when all is acknowledged.
func heldOptions() client.OrderedOptions {
	return client.OrderedOptions{Durable: "test", Due: heldTarget, Since: new(time.Unix(0, 0)), AckWait: 3 * time.Second,
		Once: true}
}

// nothing is a handler that does nothing.
func nothing(context.Context, *client.Ordered) error { return nil }

// TestHeldOrdered: the connection is lost between two steps of a stripe: its consumer, a request, a delivery, the look
// whether it is sure, a handler, its acknowledgement. No message is missing, and the order of each document remains.
func TestHeldOrdered(t *testing.T) {
	for _, operation := range []string{"Client.Ordered", "stripe.run", "stripe.turn", "stripe.look", "stripe.work"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Reconnection, func(t *testing.T, during func(func())) {
				b := newBench(t, true)
				const documents, versions = 3, 3
				for version := range versions {
					for document := range documents {
						b.due(t, fmt.Sprint(document), version)
					}
				}
				c := client.NewProxied(t, b.url, limit)
				o := heldOrder{t: t}
				during(c.Reconnect)
				if err := c.Ordered(t.Context(), heldOptions(), o.handle("first", nothing)); err != nil {
					t.Fatal(err)
				}
				o.checkAll(documents, versions)
			})
		})
	}
}

// TestHeldBegin: a process has died with messages about three documents. The next one holds them all and begins them, and
// loses its connection meanwhile. The order of each document remains.
func TestHeldBegin(t *testing.T) {
	held.Each(t, "sink/client.stripe.begin", held.Reconnection, func(t *testing.T, during func(func())) {
		b := newBench(t, true)
		c := client.NewProxied(t, b.url, limit)
		o := heldOrder{t: t}
		if err := c.Ordered(t.Context(), heldOptions(), nil); err != nil { // makes the consumer
			t.Fatal(err)
		}
		const documents, versions = 3, 2
		for version := range versions {
			for document := range documents {
				b.due(t, fmt.Sprint(document), version)
			}
		}
		consumer, err := b.js.Consumer(t.Context(), wire.DefaultPrefix.EventsStream(), heldStripe)
		if err != nil {
			t.Fatal(err)
		}
		dead, err := consumer.Fetch(documents, jetstream.FetchPriorityGroup("stripe"), jetstream.FetchMaxWait(limit))
		if err != nil {
			t.Fatal(err)
		}
		for msg := range dead.Messages() {
			if err := msg.Nak(); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(dead.Error(), b.nc.Flush()); err != nil {
			t.Fatal(err)
		}
		b.unpin(t)
		during(c.Reconnect)
		if err := c.Ordered(t.Context(), heldOptions(), o.handle("next", nothing)); err != nil {
			t.Fatal(err)
		}
		o.checkAll(documents, versions)
	})
}

// TestHeldGiveBack: a process has lost its connection and gives its messages back, and loses the next connection
// meanwhile. What it has not given back comes again after AckWait.
func TestHeldGiveBack(t *testing.T) {
	held.Each(t, "sink/client.stripe.giveBack", held.Reconnection, func(t *testing.T, during func(func())) {
		b := newBench(t, true)
		const versions = 4
		for version := range versions {
			b.due(t, "1", version)
		}
		c := client.NewProxied(t, b.url, limit)
		o := heldOrder{t: t}
		var once sync.Once
		err := c.Ordered(t.Context(), heldOptions(), o.handle("first", func(_ context.Context, m *client.Ordered) error {
			once.Do(func() {
				harness.Until(t, limit, "the stripe has all messages", func(ctx context.Context) error {
					return b.delivered(ctx, versions)
				})
				during(c.Reconnect)
				c.Reconnect()
			})
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		o.checkAll(1, versions)
	})
}

// delivered returns an error until so many messages are delivered and not acknowledged.
func (b *bench) delivered(ctx context.Context, n int) error {
	consumer, err := b.js.Consumer(ctx, wire.DefaultPrefix.EventsStream(), heldStripe)
	if err != nil {
		return err
	}
	if info := consumer.CachedInfo(); info.NumAckPending < n {
		return fmt.Errorf("%d are", info.NumAckPending)
	}
	return nil
}

// TestHeldRenew: the connection is lost while a stripe tells the server that its messages are at work here. It handles
// them all, in their order.
func TestHeldRenew(t *testing.T) {
	held.Each(t, "sink/client.stripe.renew", held.Reconnection, func(t *testing.T, during func(func())) {
		b := newBench(t, true)
		const versions = 4
		for version := range versions {
			b.due(t, "1", version)
		}
		c := client.NewProxied(t, b.url, limit)
		o := heldOrder{t: t}
		happened := make(chan struct{})
		during(func() { c.Reconnect(); close(happened) })
		err := c.Ordered(t.Context(), heldOptions(), o.handle("first", func(ctx context.Context, m *client.Ordered) error {
			if m.Header.Get("Version") == "0" {
				select {
				case <-happened:
				case <-ctx.Done():
				case <-time.After(limit):
				}
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		o.checkAll(1, versions)
	})
}

// TestHeldTakeover: between the return of a handler and the acknowledgement its process loses the connection, and
// another one gets the stripe. From the moment at which that one has begun a message, the first one neither acknowledges
// it nor begins another one of the document, although it has a connection again.
func TestHeldTakeover(t *testing.T) {
	const versions = 3
	runs := 0
	held.Each(t, "sink/client.stripe.work", held.Takeover, func(t *testing.T, during func(func())) {
		if runs++; runs > 1 {
			return // whether there are more gaps depends on the pace
		}
		b := newBench(t, true)
		for version := range versions {
			b.due(t, "1", version)
		}
		c := client.NewProxied(t, b.url, limit)
		o := heldOrder{t: t}
		opts := heldOptions()
		opts.Once = false
		ctx, stop := context.WithTimeout(t.Context(), 2*limit)
		defer stop()
		begun, goOn, second := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		happened := make(chan struct{})
		var seq uint64 // of the first message that the second process has
		during(func() {
			defer close(happened)
			before := c.Conn().Stats().Reconnects
			c.Proxy.Down()
			c.Lose()
			b.unpin(t)
			other := b.client(t, limit)
			go func() {
				first := sync.OnceFunc(func() { close(begun); <-goOn })
				opts := opts
				opts.Once = true
				second <- other.Ordered(ctx, opts, o.handle("second", func(_ context.Context, m *client.Ordered) error {
					if seq == 0 {
						seq = m.Seq
					}
					first()
					return nil
				}))
			}()
			select {
			case <-begun:
			case <-ctx.Done():
				t.Error("the second process gets nothing")
			}
			c.Proxy.Up()
			c.Reconnected(before)
		})
		running, end := context.WithCancel(ctx)
		first := make(chan error, 1)
		go func() {
			first <- c.Ordered(running, opts, o.handle("first", func(_ context.Context, m *client.Ordered) error {
				select {
				case <-begun:
					t.Errorf("the first process begins message %d behind a takeover", m.Seq)
				default:
				}
				return nil
			}))
		}()
		select {
		case <-happened:
		case <-ctx.Done():
		}
		end()
		if err := <-first; err != nil {
			t.Error(err)
		}
		consumer, err := b.js.Consumer(ctx, wire.DefaultPrefix.EventsStream(), heldStripe)
		if err != nil {
			t.Fatal(err)
		}
		if info := consumer.CachedInfo(); info.AckFloor.Stream >= seq || info.NumAckPending != versions-int(seq)+1 {
			t.Errorf("the second process has message %d; acknowledged up to %d, %d pending", seq, info.AckFloor.Stream,
				info.NumAckPending)
		}
		close(goOn)
		if err := <-second; err != nil {
			t.Error(err)
		}
		o.checkAll(1, versions)
	})
}

// unpin lets the next process that asks have the stripe.
func (b *bench) unpin(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	stream, err := b.js.Stream(ctx, wire.DefaultPrefix.EventsStream())
	if err == nil {
		err = stream.UnpinConsumer(ctx, heldStripe, "stripe")
	}
	if err != nil {
		t.Error(err)
	}
}

// TestHeldGiveUp: a process with more than its share of the stripes has given one up, and there is no connection when it
// looks its consumer up again. It goes on once there is one.
func TestHeldGiveUp(t *testing.T) {
	runs := 0
	held.Each(t, "sink/client.stripe.giveUp", held.Reconnection, func(t *testing.T, during func(func())) {
		if runs++; runs > 1 {
			return // there is one gap
		}
		b := newBench(t, true)
		c := client.NewProxied(t, b.url, limit)
		o := heldOrder{t: t}
		ctx, stop := context.WithTimeout(t.Context(), 2*limit)
		defer stop()
		opts := client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0))}
		var running sync.WaitGroup
		begun, happened := make(chan struct{}), make(chan struct{})
		const documents = 40 // in all stripes
		for document := range documents {
			b.version(t, fmt.Sprint(document), 0)
		}
		during(func() {
			before := c.Conn().Stats().Reconnects
			c.Proxy.Down()
			c.Lose()
			go func() {
				defer close(happened)
				if err := poll.Met(limit, "the client tries to connect", func() bool { return c.Proxy.Refused() > 4 }); err != nil {
					t.Error(err)
				}
				c.Proxy.Up()
				c.Reconnected(before)
			}()
		})
		start := func(c *client.Client, process string, do func(context.Context, *client.Ordered) error) {
			running.Go(func() {
				if err := c.Ordered(ctx, opts, o.handle(process, do)); err != nil {
					t.Errorf("the %s process: %v", process, err)
				}
			})
		}
		first := sync.OnceFunc(func() { close(begun) })
		start(c.Client, "first", func(context.Context, *client.Ordered) error { first(); return nil })
		<-begun
		start(b.client(t, limit), "second", nothing)
		select {
		case <-happened:
		case <-ctx.Done():
			t.Error("no stripe is given up")
		}
		for document := range documents {
			b.version(t, fmt.Sprint(document), 1)
		}
		harness.Until(t, limit, "all messages have come", func(context.Context) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			for document := range documents {
				if n := o.returned[fmt.Sprint(document)]; n != 2 {
					return fmt.Errorf("%d of document %d have", n, document)
				}
			}
			return nil
		})
		stop()
		running.Wait()
	})
}

// TestHeldStripes: events are published while the stripes are opened one by one, without a beginning of their own. Each
// of these events comes: a stripe begins where the first one does.
func TestHeldStripes(t *testing.T) {
	held.Each(t, "sink/client.ordered.open", held.Write, func(t *testing.T, during func(func())) {
		b := newBench(t, true)
		b.version(t, "before", 7)
		o := heldOrder{t: t}
		const documents = 40 // in all stripes
		during(func() {
			for document := range documents {
				b.version(t, fmt.Sprint(document), 0)
			}
		})
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		err := b.client(t, limit).Ordered(ctx, client.OrderedOptions{Durable: "test", Collection: "orders"},
			func(ctx context.Context, m *client.Ordered) error {
				err := o.handle("first", nothing)(ctx, m)
				o.mu.Lock()
				defer o.mu.Unlock()
				if len(o.returned) == documents {
					stop()
				}
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
		o.checkAll(documents, 1)
	})
}
