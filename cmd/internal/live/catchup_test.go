package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestL1_CatchUpAndTheEndOfTheRing: the leader answers that it has nothing more for a client, an event for it comes, and
// the ring has the event before the client has the answer. The client gets the event (L1).
//
// It fails if the client goes on from an end of the ring that was read behind the answer, or from one message further; or
// from before the ring, which drops it.
func TestL1_CatchUpAndTheEndOfTheRing(t *testing.T) {
	question := "STREAM.MSG.GET." + wire.DefaultPrefix.EventsStream()
	url := natstest.StartMapped(t, natstest.Options{JetStream: "domain: here"}, "$JS.API."+question, "asked")
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := newRig(t, natstest.JetStream(t, nc), url, 1)
	end := r.publish("orders", "carts", "carts", "carts")[3]
	r.tailAt(end)
	var come uint64
	if _, err := nc.Subscribe("asked", func(m *nats.Msg) {
		answer, err := nc.Request("$JS.here.API."+question, m.Data, limit)
		if err != nil {
			t.Error(err)
			return
		}
		if come == 0 {
			if !strings.Contains(string(answer.Data), "no message found") {
				t.Errorf("the leader answers %s", answer.Data)
			}
			come = r.publish("orders")[0]
			r.tailHas(come)
		}
		if err := m.Respond(answer.Data); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	f := follower{r: r, query: "collection=orders", after: 1}
	f.follow(end + 1)
	if !slices.Equal(f.got, []uint64{end + 1}) || f.gaps+f.dropped > 0 {
		t.Errorf("the client got %v, %d gaps, and was dropped %d times, want message %d alone", f.got, f.gaps, f.dropped, end+1)
	}
}

// TestL1_EveryPlaceBeforeTheRing: a client that begins at any place, before the ring, at its beginning and within it,
// gets each event of its collection from there on once (L1).
//
// It fails if the catch-up ends one message before the beginning of the ring or one behind it.
func TestL1_EveryPlaceBeforeTheRing(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	var orders []uint64
	publish := func(collections ...string) {
		t.Helper()
		for i, seq := range r.publish(collections...) {
			if collections[i] == "orders" {
				orders = append(orders, seq)
			}
		}
	}
	publish("orders", "carts", "orders", "carts", "orders", "orders")
	r.tailAt(6)
	publish("orders", "carts", "orders", "carts", "orders")
	r.tailHas(11)
	for after := uint64(0); after < 11; after++ {
		for _, query := range []string{"collection=orders", ""} {
			f := follower{r: r, query: query, after: after}
			f.follow(11)
			var want []uint64
			for seq := after + 1; seq <= 11; seq++ {
				if query == "" || slices.Contains(orders, seq) {
					want = append(want, seq)
				}
			}
			if fmt.Sprint(f.got) != fmt.Sprint(want) || f.gaps+f.dropped > 0 {
				t.Errorf("%q after %d: the client got %v, %d gaps, and was dropped %d times, want %v", query, after, f.got,
					f.gaps, f.dropped, want)
			}
		}
	}
}

// TestL1_ABatchThatEndsAtTheRing: the last batch of a catch-up ends one message before the beginning of the ring, at it,
// or behind it. The client gets each event once and is not dropped (L1).
//
// It fails if the client leaves the batches one message too early: the ring does not have the next one.
func TestL1_ABatchThatEndsAtTheRing(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	const begins = catchUpBatch + 10 // the ring is behind it
	r.publish(slices.Repeat([]string{"orders"}, begins)...)
	r.tailAt(begins)
	r.publish(slices.Repeat([]string{"orders"}, 5)...)
	r.tailHas(begins + 5)
	for after := uint64(8); after <= 12; after++ {
		f := follower{r: r, query: "collection=orders", after: after}
		f.follow(begins + 5)
		if f.got[0] != after+1 || len(f.got) != int(begins+5-after) || !slices.IsSorted(f.got) || f.gaps+f.dropped > 0 {
			t.Errorf("after %d: the client got %v, %d gaps, and was dropped %d times", after, f.got, f.gaps, f.dropped)
		}
	}
}
