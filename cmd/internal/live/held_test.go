//go:build held

package live

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/integration/held"
)

// throughProxy makes a rig whose hub reaches NATS through a proxy.
func throughProxy(t *testing.T) (*rig, *proxy.Proxy) {
	t.Helper()
	js := natstest.Connect(t, natstest.Options{})
	p := proxy.New(t, strings.TrimPrefix(js.Conn().ConnectedUrl(), "nats://"))
	return newRig(t, js, "nats://"+p.Address(), 1), p
}

// reconnect cuts the connection of the hub, and waits until it is there again.
func (r *rig) reconnect(p *proxy.Proxy) {
	r.t.Helper()
	before := r.hub.client.Conn().Stats().Reconnects
	p.Cut()
	if err := poll.Met(limit, "the hub has connected again", func() bool {
		return r.hub.client.Conn().Stats().Reconnects > before && r.hub.client.Conn().IsConnected()
	}); err != nil {
		r.t.Error(err)
	}
}

// all are the sequences behind one, up to another one.
func all(after, upTo uint64) (seqs []uint64) {
	for seq := after + 1; seq <= upTo; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// TestHeldCatchUp: events come between the batch that a client has read, the leader's answer, and the ring. The client
// gets each once and in order.
func TestHeldCatchUp(t *testing.T) {
	held.Each(t, "cmd/internal/live.stream.catchUp", held.Write, func(t *testing.T, during func(happen func())) {
		js := natstest.Connect(t, natstest.Options{})
		r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
		const before = 3*catchUpBatch - 40 // the ring is behind it
		r.publish(slices.Repeat([]string{"orders"}, before)...)
		r.publish("carts")
		r.tailAt(before + 1)
		during(func() { r.tailHas(r.publish("orders", "orders")[1]) })
		f := follower{r: r, query: "collection=orders", after: before - 300}
		f.follow(before)
		last := r.publish("orders")[0]
		f.follow(last)
		want := append(all(before-300, before), all(before+1, last)...)
		if !slices.Equal(f.got, want) || f.gaps+f.dropped > 0 {
			t.Errorf("the client got %v, %d gaps, and was dropped %d times", f.got, f.gaps, f.dropped)
		}
	})
}

// TestHeldCatchUpOverAReconnection: the connection to NATS is lost between two questions of a catch-up. The client, which
// connects again with the id of its last event, gets each event once and in order.
func TestHeldCatchUpOverAReconnection(t *testing.T) {
	held.Each(t, "cmd/internal/live.stream.catchUp", held.Reconnection, func(t *testing.T, during func(happen func())) {
		r, p := throughProxy(t)
		const before = 2*catchUpBatch + 10
		r.publish(slices.Repeat([]string{"orders"}, before)...)
		r.tailAt(before)
		during(func() { r.publish("orders"); r.reconnect(p) })
		f := follower{r: r, query: "collection=orders"}
		f.follow(before)
		last := r.publish("orders")[0]
		f.follow(last)
		if !slices.Equal(f.got, all(0, last)) || f.gaps > 0 {
			t.Errorf("the client got %v and %d gaps", f.got, f.gaps)
		}
	})
}

// TestHeldServe: events come, and the connection to NATS is lost, before a client that has joined finds its place, and
// before it follows the ring. It gets each event behind its place once and in order.
func TestHeldServe(t *testing.T) {
	for _, operation := range []string{"cmd/internal/live.Hub.Serve", "cmd/internal/live.stream.serve"} {
		held.Each(t, operation, held.Reconnection, func(t *testing.T, during func(happen func())) {
			r, p := throughProxy(t)
			first := r.publish("orders", "orders", "orders")[0]
			during(func() { r.publish("orders"); r.reconnect(p); r.publish("orders") })
			f := follower{r: r, query: "collection=orders", after: first}
			f.follow(first + 2)
			last := r.publish("orders")[0]
			f.follow(last)
			if !slices.Equal(f.got, all(first, last)) || f.gaps > 0 {
				t.Errorf("the client got %v and %d gaps", f.got, f.gaps)
			}
		})
	}
}

// TestHeldLost: a leader of the stream that was elected just now does not have what a client has seen, and has it when it
// is asked again. The client is told of no gap, and goes on behind what it has seen.
func TestHeldLost(t *testing.T) {
	servers := natstest.StartCluster(t, 3)
	nc, err := nats.Connect("nats://"+servers[0], natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := newRig(t, natstest.JetStream(t, nc), "nats://"+servers[0], 3)
	held.Each(t, "cmd/internal/live.stream.lost", held.Takeover, func(t *testing.T, during func(happen func())) {
		r.t = t
		seen := r.publish("orders")[0] + 1
		come := make(chan uint64, 1)
		during(func() { come <- r.publish("orders")[0] })
		f := follower{r: r, query: "collection=orders", after: seen}
		var following sync.WaitGroup
		following.Go(func() { f.connect(seen + 1) })
		asked := false
		select {
		case seq := <-come:
			if asked = true; seq != seen {
				t.Errorf("message %d came, want %d", seq, seen)
			}
		case <-time.After(2 * settleWithin): // on a machine that did not ask so often in time
		}
		for r.publish("orders")[0] <= seen {
		}
		following.Wait()
		if asked && (!slices.Equal(f.got, []uint64{seen + 1}) || f.gaps+f.dropped > 0) {
			t.Errorf("the client got %v, %d gaps, and was dropped %d times", f.got, f.gaps, f.dropped)
		}
	})
}

// TestHeldRecent: events come while somebody looks at the last ones. With those that a client gets behind the sequence
// that the look has told, it has each once.
func TestHeldRecent(t *testing.T) {
	held.Each(t, "cmd/internal/live.Recent", held.Write, func(t *testing.T, during func(happen func())) {
		js := natstest.Connect(t, natstest.Options{})
		r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
		const before = 8 * recentFirst
		r.publish(slices.Repeat([]string{"orders"}, before)...)
		during(func() { r.publish("orders", "orders") })
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", 256<<20))
		defer hold.Leave()
		recent, end, err := Recent(context.Background(), r.hub, Request{Collection: "orders"}, before, hold,
			func(m Message) (uint64, bool) { return m.Seq, true })
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(recent)
		last := r.publish("orders")[0]
		f := follower{r: r, query: "collection=orders", after: end}
		f.follow(last)
		if got := append(recent, f.got...); !slices.Equal(got, all(got[0]-1, last)) || got[0] > before {
			t.Errorf("the look and the client have %v", got)
		}
	})
}
