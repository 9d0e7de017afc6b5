package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// version publishes an event about a version of a document, whose header says so.
func (b *bench) version(t *testing.T, document string, version int) {
	t.Helper()
	msg := &nats.Msg{Subject: wire.DefaultPrefix.Expired("orders", document), Header: nats.Header{
		"ce-source": {"/lapse/1/collections/orders"}, "ce-subject": {document}, "ce-id": {fmt.Sprintf("orders/%s/%d",
			document, version)}, "Version": {strconv.Itoa(version)},
	}}
	if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// record is which versions have come, by document.
type record struct {
	mu  sync.Mutex
	all map[string][]int
}

// add adds the version of a message, and returns how many messages have come.
func (r *record) add(m *client.Ordered) (n int) {
	version, _ := strconv.Atoi(m.Header.Get("Version"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[string][]int)
	}
	document := m.Header.Get("ce-subject")
	r.all[document] = append(r.all[document], version)
	for _, versions := range r.all {
		n += len(versions)
	}
	return n
}

// check checks that each version has come, and for the first time after the one before it.
func (r *record) check(t *testing.T, documents, versions int) {
	t.Helper()
	if len(r.all) != documents {
		t.Errorf("messages about %d documents, want %d", len(r.all), documents)
	}
	for document, all := range r.all {
		next := 0
		for _, version := range all {
			if version > next {
				t.Fatalf("document %s: %v: version %d comes before %d", document, all, version, next)
			}
			if version == next {
				next++
			}
		}
		if next != versions {
			t.Errorf("document %s: %v, want %d versions", document, all, versions)
		}
	}
}

// TestO2_OrderAfterADeath: a process dies while it holds messages that it has not handled. The next one has
// each version of a document for the first time after the one before, although the server gives it new messages
// first.
//
// Goes red if a stripe is sure from the beginning.
func TestO2_OrderAfterADeath(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	const documents, versions = 20, 20
	publish := func(from, to int) {
		for version := from; version < to; version++ {
			for document := range documents {
				b.version(t, fmt.Sprint(document), version)
			}
		}
	}
	publish(0, versions/2)
	var r record
	opts := client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0)),
		AckWait: 3 * time.Second}
	first := b.client(t, limit)
	err := first.Ordered(t.Context(), opts, func(ctx context.Context, m *client.Ordered) error {
		switch n := r.add(m); {
		case n == documents+documents/4:
			first.Close()
		case n > documents:
			<-ctx.Done()
		}
		return nil
	})
	if !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("after the connection was closed: %v", err)
	}
	publish(versions/2, versions)
	opts.Once = true
	err = b.client(t, limit).Ordered(t.Context(), opts, func(_ context.Context,
		m *client.Ordered) error {
		r.add(m)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.check(t, documents, versions)
}

// stripeOf is the consumer that has the events of a document.
func (b *bench) stripeOf(t *testing.T, document string) string {
	stored := wire.DefaultPrefix.Stored(wire.DefaultPrefix.Expired("orders", document))
	bucket, err := strconv.Atoi(stored[strings.LastIndexByte(stored, '.')+1:])
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("test-%d", bucket%client.Stripes)
}

// TestO2_FormerProcessAcknowledges: a process that is pinned no longer acknowledges a message that the next one has
// by then. So the next one holds as many messages as the server has without an acknowledgement, although one that
// it does not hold is among these.
//
// Goes red if a stripe is sure whenever the two numbers are the same.
func TestO2_FormerProcessAcknowledges(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	opts := client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0)),
		AckWait: 12 * time.Second, Once: true}
	c := b.client(t, limit)
	if err := c.Ordered(t.Context(), opts, nil); err != nil { // makes the consumers
		t.Fatal(err)
	}
	for version := range 3 {
		b.version(t, "x", version)
	}
	consumer, err := b.js.Consumer(t.Context(), wire.DefaultPrefix.EventsStream(), b.stripeOf(t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	batch, err := consumer.Fetch(2, jetstream.FetchPriorityGroup("stripe"), jetstream.FetchMaxWait(limit))
	if err != nil {
		t.Fatal(err)
	}
	var former []jetstream.Msg
	for msg := range batch.Messages() {
		former = append(former, msg)
	}
	if len(former) != 2 {
		t.Fatalf("%d messages, %v", len(former), batch.Error())
	}
	if err := former[1].Nak(); err != nil {
		t.Fatal(err)
	}
	var got []string
	ended := make(chan error, 1)
	go func() {
		ended <- c.Ordered(t.Context(), opts, func(_ context.Context, m *client.Ordered) error {
			got = append(got, m.Header.Get("Version"))
			return nil
		})
	}()
	harness.Until(t, limit, "the next process has the others", func(ctx context.Context) error {
		if info, err := consumer.Info(ctx); err != nil || info.Delivered.Stream < 3 {
			return fmt.Errorf("%+v, %w", info, err)
		}
		return nil
	})
	if err := b.nc.Publish(former[1].Reply(), []byte("+ACK")); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil || !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("versions %v, %v: want 0 and 2, as the former process has acknowledged 1", got, err)
	}
}

// wait waits until a channel is closed.
func wait(t *testing.T, closed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Fatalf("wait until %s", what)
	}
}

// connected waits until a client has a connection again.
func connected(t *testing.T, c *client.Client) {
	t.Helper()
	harness.Until(t, limit, "the client has a connection", func(context.Context) error {
		if !c.Conn().IsConnected() {
			return errors.New("it has none")
		}
		return nil
	})
}

// TestO2_AServerForgetsADelivery: nats-server loses power while a handler runs, and with it that the message was
// delivered. So the next process gets it as one that no other has had, and begins it. The former one has a connection
// again when its handler ends; it does not acknowledge the message.
//
// Goes red if a process that is pinned does not ask on which connection.
func TestO2_AServerForgetsADelivery(t *testing.T) {
	t.Parallel()
	server := natstest.NewServer(t, "")
	server.Start()
	b := &bench{url: server.URL}
	b.connect(t)
	b.makeStreams(t)
	opts := client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0)),
		AckWait: time.Minute, Once: true}
	c := b.client(t, limit)
	if err := c.Ordered(t.Context(), opts, nil); err != nil { // makes the consumers
		t.Fatal(err)
	}
	b.version(t, "x", 0)
	server.Kill()
	before := server.Copy()
	server.Start()
	connected(t, c)

	running := opts
	running.Once = false
	ctx, end := context.WithCancel(t.Context())
	formerHas, formerGoesOn, formerEnds := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		formerEnds <- c.Ordered(ctx, running, func(context.Context, *client.Ordered) error {
			close(formerHas)
			<-formerGoesOn
			return nil
		})
	}()
	wait(t, formerHas, "the former process has the message")
	server.Kill()
	server.PutBack(before, wire.DefaultPrefix.EventsStream())
	server.Start()

	nextHas, nextGoesOn, nextEnds := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	begun := sync.OnceFunc(func() { close(nextHas) }) // it comes again if the former process gives it back
	go func() {
		nextEnds <- b.client(t, limit).Ordered(t.Context(), opts, func(context.Context, *client.Ordered) error {
			begun()
			<-nextGoesOn
			return nil
		})
	}()
	wait(t, nextHas, "the next process has the message")
	connected(t, c)
	close(formerGoesOn)
	end()
	if err := <-formerEnds; err != nil {
		t.Error(err)
	}
	consumer, err := b.js.Consumer(t.Context(), wire.DefaultPrefix.EventsStream(), b.stripeOf(t, "x"))
	if err != nil {
		t.Fatal(err)
	}
	if info := consumer.CachedInfo(); info.NumAckPending != 1 {
		t.Errorf("the former process has acknowledged what the next one is at: %d pending", info.NumAckPending)
	}
	close(nextGoesOn)
	if err := <-nextEnds; err != nil {
		t.Error(err)
	}
}

// TestOrderedIsShared: a second process gets some of the stripes of the first one, and the order remains.
//
// Goes red if a process gives up nothing.
func TestOrderedIsShared(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	const documents = 40
	opts := client.OrderedOptions{Durable: "test", Collection: "orders", Since: new(time.Unix(0, 0))}
	var r record
	var running sync.WaitGroup
	var second atomic.Int64
	start := func(handle func()) {
		c := b.client(t, limit)
		running.Go(func() {
			err := c.Ordered(ctx, opts, func(_ context.Context, m *client.Ordered) error { r.add(m); handle(); return nil })
			if err != nil {
				t.Error(err)
			}
		})
	}
	begun := make(chan struct{})
	start(sync.OnceFunc(func() { close(begun) }))
	versions := 0
	publish := func() {
		for document := range documents {
			b.version(t, fmt.Sprint(document), versions)
		}
		versions++
	}
	publish()
	<-begun
	start(func() { second.Add(1) })
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for second.Load() < 100 {
		select {
		case <-pace.C:
			publish()
		case <-ctx.Done():
			t.Fatalf("the second process has %d messages", second.Load())
		}
	}
	opts.Once = true
	if err := b.client(t, limit).Ordered(ctx, opts, func(_ context.Context,
		m *client.Ordered) error {
		r.add(m)
		return nil
	}); err != nil {
		t.Error(err)
	}
	stop()
	running.Wait()
	r.check(t, documents, versions)
}

// TestOrderedEndsWhileItBegins: a context that is done before the consumers are there is the usual end, and no error.
func TestOrderedEndsWhileItBegins(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.client(t, limit).Ordered(ctx, client.OrderedOptions{Durable: "test", Collection: "orders"},
		nil); err != nil {
		t.Error(err)
	}
}

// TestOrderedChanges: the changes of a collection and its drop come too, if they are asked for.
func TestOrderedChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	for _, subject := range []string{wire.DefaultPrefix.Changed("orders", "1"), wire.DefaultPrefix.Changed("orders", "2"),
		wire.DefaultPrefix.Dropped("orders"), wire.DefaultPrefix.Dropped("others")} {
		if _, err := b.js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatal(err)
		}
	}
	for changes, want := range map[bool]int32{false: 0, true: 3} {
		opts := client.OrderedOptions{Durable: fmt.Sprint("changes-", changes), Collection: "orders", Changes: changes,
			Since: new(time.Unix(0, 0)), Once: true}
		var n atomic.Int32
		err := b.client(t, limit).Ordered(t.Context(), opts, func(context.Context,
			*client.Ordered) error {
			n.Add(1)
			return nil
		})
		if err != nil || n.Load() != want {
			t.Errorf("changes %t: %d messages, %v: want %d", changes, n.Load(), err, want)
		}
	}
}

// TestOrderedDue: a consumer of a target of two tokens has its messages alone, although the stream stores those of
// others under the same subject. An error of a handler ends it.
func TestOrderedDue(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	for i := range 64 { // some of them have the same number in place of the second token
		target := fmt.Sprintf("mail.t%d", i)
		msg := &nats.Msg{Subject: wire.DefaultPrefix.Due(target), Header: nats.Header{wire.HeaderTarget: {target}}}
		if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	opts := client.OrderedOptions{Since: new(time.Unix(0, 0)), Once: true}
	for due, want := range map[string]int{"mail.t7": 1, "mail.>": 64, ">": 64, "mail.none": 0} {
		opts.Durable, opts.Due = fmt.Sprintf("due-%d-%d", want, len(due)), due
		var r record
		n := 0
		err := b.client(t, limit).Ordered(t.Context(), opts, func(_ context.Context,
			m *client.Ordered) error {
			n = r.add(m)
			return nil
		})
		if err != nil || n != want {
			t.Errorf("%s: %d messages, %v: want %d", due, n, err, want)
		}
	}
	opts.Durable, opts.Due = "fails", "mail.t7"
	failed := errors.New("failed")
	err := b.client(t, limit).Ordered(t.Context(), opts, func(context.Context, *client.Ordered) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("the handler's error: %v", err)
	}
	opts.Due = "mail.>"
	wantIs(t, b.client(t, limit).Ordered(t.Context(), opts, nil), client.ErrInvalid)
}
