package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRecent: the last messages of a topic come newest first and each once, also where the stream has
// more messages than are looked at, and has lost its first ones.
func TestRecent(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	defer js.Conn().Close()
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.DefaultPrefix.EventsStream(), Subjects: []string{"lapse.expired.>"}, AllowDirect: true,
		Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(client.Options{Server: js.Conn().ConnectedUrl()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := New(c)
	defer h.Close()
	recent := func(n int, want, last uint64) {
		t.Helper()
		limit := access.NewLimit("bytes", "bytes", 256<<20)
		hold := access.NewHold(access.Client{}, limit)
		defer hold.Leave()
		found, end, err := Recent(t.Context(), h, Request{Collection: "orders"}, n, hold, func(m Message) (Message,
			bool) {
			return m, true
		})
		if limit.Used() != recentHeld {
			t.Errorf("it holds %d bytes", limit.Used())
		}
		if err != nil || len(found) != n || end != want {
			t.Fatalf("%d of %d messages, the last of the stream is %d, %v", len(found), n, end, err)
		}
		for i, m := range found {
			if seq := want - 2*uint64(i); m.Seq != seq {
				t.Fatalf("message %d is %d, want %d", i, m.Seq, seq)
			}
		}
		if got := found[n-1].Seq; got != last {
			t.Errorf("it ends with %d, want %d", got, last)
		}
	}
	publish := func(n int) {
		t.Helper()
		for i := range n {
			subject := "lapse.expired.orders.1"
			if i%2 == 0 {
				subject = "lapse.expired.others.1"
			}
			if _, err := js.PublishAsync(subject, []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
	}
	publish(400)
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(101)); err != nil {
		t.Fatal(err)
	}
	recent(3, 400, 396)
	recent(150, 400, 102) // all that are left, in several looks
	publish(2 * recentMost)
	recent(150, 400+2*recentMost, 102+2*recentMost)
}

// TestRecentHolds: who looks at the last messages gets an error if so much is under way that there is no room for them.
func TestRecentHolds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	limit := access.NewLimit("bytes", "bytes", recentHeld)
	other := access.NewHold(access.Client{}, limit)
	defer other.Leave()
	if err := other.Bytes(recentHeld); err != nil {
		t.Fatal(err)
	}
	h := &Hub{catching: make(chan struct{}, 1)}
	hold := access.NewHold(access.Client{}, limit)
	defer hold.Leave()
	for range 20 { // its turn may have come when its context ends, or not
		keep := func(m Message) (Message, bool) { return m, true }
		if _, _, err := Recent(ctx, h, Request{}, 1, hold, keep); err == nil {
			t.Error("it holds nothing, and finds nothing")
		}
	}
}

// TestRecentWaits for its turn no longer than its context.
func TestRecentWaits(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := &Hub{catching: make(chan struct{})}
	keep := func(m Message) (Message, bool) { return m, true }
	if _, _, err := Recent(ctx, h, Request{}, 1, nil, keep); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRecentOfAlmostNothing: an only message is found. Without one there is nothing, and without a stream an error.
func TestRecentOfAlmostNothing(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	recent := func() (found []uint64, last uint64, err error) {
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", 256<<20))
		defer hold.Leave()
		return Recent(t.Context(), r.hub, Request{}, 3, hold, func(m Message) (uint64, bool) { return m.Seq, true })
	}
	for want := range 3 {
		if found, last, err := recent(); err != nil || len(found) != want || last != uint64(want) {
			t.Errorf("of %d messages it finds %v, the last is %d, %v", want, found, last, err)
		}
		r.publish("orders")
	}
	if err := js.DeleteStream(t.Context(), wire.DefaultPrefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	if found, _, err := recent(); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a stream it finds %v, %v", found, err)
	}
}

// TestRecentOfLargeMessages: what is looked at has a bound of bytes, and what is not kept goes as it comes.
func TestRecentOfLargeMessages(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	defer js.Conn().Close()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.DefaultPrefix.EventsStream(), Subjects: []string{"lapse.expired.>"}, AllowDirect: true,
		Storage: jetstream.MemoryStorage,
	}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(client.Options{Server: js.Conn().ConnectedUrl()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := New(c)
	defer h.Close()
	body := fmt.Appendf(nil, `{"x":"%s"}`, strings.Repeat("x", 512<<10))
	const messages = 100 // 50 MiB
	for range messages {
		if _, err := js.Publish(t.Context(), "lapse.expired.orders.1", body); err != nil {
			t.Fatal(err)
		}
	}
	hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", 256<<20))
	defer hold.Leave()
	seen := 0
	found, last, err := Recent(t.Context(), h, Request{}, 50, hold, func(m Message) (uint64,
		bool) {
		seen += len(m.Data)
		return m.Seq, true
	})
	if err != nil || last != messages || len(found) < 8 || found[0] != messages || !slices.IsSortedFunc(found,
		func(a, b uint64) int { return cmp.Compare(b, a) }) {
		t.Errorf("%v, the last is %d: %v", found, last, err)
	}
	if seen > 3*recentBytes {
		t.Errorf("it has looked at %d MiB", seen>>20)
	}
}
