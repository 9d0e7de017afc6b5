//go:build held

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// heldBatch is a batch without outcomes on a log of some shards, by a client whose connection a test cuts.
type heldBatch struct {
	*client.Batch[Order]
	t       *testing.T
	b       *bench
	c       *client.Proxied
	shards  int
	sent    int
	results results
}

// newHeldBatch begins a batch.
func newHeldBatch(t *testing.T, shards int, config func(*jetstream.StreamConfig)) *heldBatch {
	t.Helper()
	h := &heldBatch{t: t, b: newLogs(t, startMapped(t, shards, natstest.Options{}), shards, config), shards: shards}
	h.c = client.NewProxied(t, h.b.url, limit)
	h.begin()
	return h
}

// begin begins the batch.
func (h *heldBatch) begin() {
	h.t.Helper()
	orders, err := client.Open[Order](h.c.Client, "orders")
	if err == nil {
		h.Batch, err = orders.Batch(h.t.Context(), h.results.done, client.AckOnly())
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// send sends so many writes, each of which has a number.
func (h *heldBatch) send(n int, options ...client.Option) {
	h.t.Helper()
	for range n {
		h.write(Order{}, options...)
	}
}

// write sends a write.
func (h *heldBatch) write(o Order, options ...client.Option) {
	h.t.Helper()
	o.Count = h.sent
	h.sent++
	if err := h.Upsert(h.t.Context(), fmt.Sprint(o.Count), o, options...); err != nil {
		h.t.Fatalf("write %d: %v", o.Count, err)
	}
}

// check ends the batch. Each write has to end once: without an error if the log has it, or with an unknown outcome,
// but for so many that the log has refused. The log has to have none twice, and all in the order of sending.
func (h *heldBatch) check(refused int) {
	h.t.Helper()
	if err := h.Close(h.t.Context()); err != nil {
		h.t.Errorf("close: %v", err)
	}
	stored := map[string]int{}
	for shard := range h.shards {
		last := -1
		for _, m := range h.b.messages(h.t, wire.DefaultPrefix.Log(shard, h.shards).Stream()) {
			var o Order
			if err := json.Unmarshal(m.Data, &o); err != nil {
				h.t.Fatal(err)
			}
			if stored[fmt.Sprint(o.Count)]++; o.Count <= last {
				h.t.Errorf("the log of shard %d has write %d behind %d", shard, o.Count, last)
			}
			last = o.Count
		}
	}
	ended := map[string]bool{}
	for _, id := range h.results.ids {
		if ended[id] {
			h.t.Errorf("write %s has ended twice", id)
		}
		ended[id] = true
	}
	if len(ended) != h.sent {
		h.t.Errorf("%d writes have ended, want %d", len(ended), h.sent)
	}
	for id := range ended {
		switch err := h.results.failed[id]; {
		case err == nil && stored[id] != 1:
			h.t.Errorf("write %s is acknowledged, and the log has it %d times", id, stored[id])
		case err == nil, errors.Is(err, client.ErrUnknownOutcome):
		case stored[id] == 0 && strings.Contains(err.Error(), "the log refuses the message"):
			refused--
		default:
			h.t.Errorf("write %s, which the log has %d times: %v", id, stored[id], err)
		}
	}
	if refused != 0 {
		h.t.Errorf("the log has refused %d fewer writes than it should", refused)
	}
}

// losses are the ways to lose a connection: with another one by the time of the next call, or without.
var losses = map[string]func(*client.Proxied){"reconnected": (*client.Proxied).Reconnect, "lost": (*client.Proxied).Lose}

// TestHeldAdd: the connection is lost while a write goes into an open fast batch, or begins one. Until there is another
// connection, the write waits. What the log has acknowledged it has once, in the order of sending.
func TestHeldAdd(t *testing.T) {
	for name, lose := range losses {
		for _, before := range []int{0, 150} {
			t.Run(fmt.Sprintf("%s after %d", name, before), func(t *testing.T) {
				held.Each(t, "sink/client.fast.add", held.Reconnection, func(t *testing.T, during func(func())) {
					h := newHeldBatch(t, 1, nil)
					h.send(before)
					during(func() { lose(h.c) })
					h.send(20)
					h.check(0)
				})
			})
		}
	}
}

// TestHeldSend: the connection is lost between what the last batch has left and the next write.
func TestHeldSend(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.fast.send", held.Reconnection, func(t *testing.T, during func(func())) {
				h := newHeldBatch(t, 1, nil)
				h.send(150)
				during(func() { lose(h.c) })
				h.send(20)
				h.check(0)
			})
		})
	}
}

// TestHeldPublish: a write with a message id is sent by itself, behind the writes of the fast batches. The connection is
// lost in between.
func TestHeldPublish(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.pipe.publish", held.Reconnection, func(t *testing.T, during func(func())) {
				h := newHeldBatch(t, 1, nil)
				h.send(20)
				during(func() { lose(h.c) })
				h.send(1, client.MessageID("named"))
				h.send(20)
				h.check(0)
			})
		})
	}
}

// TestHeldDrain: the connection is lost while the batches of three shards end, because a write with a message id is
// next.
func TestHeldDrain(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.fast.drain", held.Reconnection, func(t *testing.T, during func(func())) {
				h := newHeldBatch(t, 3, nil)
				h.send(50)
				during(func() { lose(h.c) })
				h.send(1, client.MessageID("named"))
				h.send(50)
				h.check(0)
			})
		})
	}
}

// TestHeldAgain: a fast batch has ended, because the log has refused a write, and what follows that is sent again. The
// connection is lost meanwhile. No write overtakes those that are sent again.
func TestHeldAgain(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.fast.again", held.Reconnection, func(t *testing.T, during func(func())) {
				h := newHeldBatch(t, 1, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
				h.send(5)
				during(func() { lose(h.c) })
				h.c.Proxy.Hold(proxy.ToClient) // the answer comes once all that follows is sent
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					h.write(Order{Item: strings.Repeat("x", 2000)})
					h.send(20)
				}()
				select {
				case <-sent:
				case <-time.After(time.Second): // a batch that is idle ends: then the next write waits for an answer
				}
				h.c.Proxy.Release()
				<-sent
				h.send(20)
				h.check(1)
			})
		})
	}
}

// TestHeldNewBatch: the connection is lost between the look at the log and the subscription to the answers.
func TestHeldNewBatch(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.newPipe", held.Reconnection, func(t *testing.T, during func(func())) {
				h := newHeldBatch(t, 1, nil)
				h.check(0)
				during(func() { lose(h.c) })
				h.begin()
				h.send(20)
				h.check(0)
			})
		})
	}
}

// late lets something happen for an operation that has fewer gaps.
func late(happen func()) *time.Timer { return time.AfterFunc(3*time.Second, happen) }

// TestHeldLogAppears: lapse makes its streams while a batch waits for a log. The batch finds out into how many shards it
// is divided, and its writes reach the logs of their shards.
func TestHeldLogAppears(t *testing.T) {
	for _, operation := range []string{"lookAtLog", "newFast"} {
		for _, shards := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s of %d", operation, shards), func(t *testing.T) {
				held.Each(t, "sink/client."+operation, held.Write, func(t *testing.T, during func(func())) {
					url := startMapped(t, shards, natstest.Options{})
					h := &heldBatch{t: t, shards: shards, c: client.NewProxied(t, url, limit)}
					appears := sync.OnceFunc(func() { h.b = newLogs(t, url, shards, nil) })
					during(appears)
					defer late(appears).Stop()
					h.begin()
					appears()
					h.send(20)
					h.check(0)
				})
			})
		}
	}
}

// TestHeldPublishOne: the connection is lost between the subscription to the answers and the write. The log has the
// write once.
func TestHeldPublishOne(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.publishOne", held.Reconnection, func(t *testing.T, during func(func())) {
				b := newBench(t, true)
				c := client.NewProxied(t, b.url, limit)
				during(func() { lose(c) })
				b.publishOne(t, c.Client)
			})
		})
	}
}

// publishOne publishes a write. The log has to have it once, where the acknowledgement says.
func (b *bench) publishOne(t *testing.T, c *client.Client) {
	t.Helper()
	r, err := c.Publish(t.Context(), client.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "orders", "42"),
		Body: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	if all := b.messages(t, wire.DefaultPrefix.LogStream()); len(all) != 1 || all[0].Sequence != r.Seq {
		t.Errorf("the log has %d messages, the acknowledgement is of %d", len(all), r.Seq)
	}
}

// TestHeldAbsentLog: lapse makes its log between two tries of a write that nobody took, or between two questions why
// nobody did. The log has the write once.
func TestHeldAbsentLog(t *testing.T) {
	for _, operation := range []string{"publishOne", "connection.AbsentLog"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Write, func(t *testing.T, during func(func())) {
				b := newBench(t, false)
				appears := sync.OnceFunc(func() {
					if _, err := b.js.CreateStream(context.WithoutCancel(t.Context()), jetstream.StreamConfig{
						Name: wire.DefaultPrefix.LogStream(), Subjects: wire.DefaultPrefix.Log(0, 1).Subjects()}); err != nil {
						t.Error(err)
					}
				})
				during(appears)
				defer late(appears).Stop()
				b.publishOne(t, b.client(t, limit))
			})
		})
	}
}

// TestHeldSendAlone: a message waits for a connection, which is lost once more before the message is sent. It is sent
// on the next one, once.
func TestHeldSendAlone(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.connection.Send", held.Reconnection, func(t *testing.T, during func(func())) {
				b := newBench(t, true)
				c := client.NewProxied(t, b.url, limit)
				c.Proxy.Down()
				c.Lose()
				during(func() { lose(c) })
				go c.Proxy.Up()
				b.publishOne(t, c.Client)
			})
		})
	}
}

// TestHeldRequest: lapse begins to answer reads between a read that nobody took and the question why nobody did, or the
// next try. The read is answered.
func TestHeldRequest(t *testing.T) {
	held.Each(t, "sink/client.connection.requestThere", held.Restart, func(t *testing.T, during func(func())) {
		b := newBench(t, false)
		during(func() {
			b.reads(t, "lapse.read.count.orders", func(m *nats.Msg) { _ = m.Respond([]byte(`{"live":7}`)) })
		})
		n, err := b.client(t, limit).Count(t.Context(), "orders")
		if err != nil || n.Live != 7 {
			t.Errorf("%+v, %v", n, err)
		}
	})
}
