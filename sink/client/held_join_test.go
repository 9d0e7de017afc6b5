//go:build held

package client

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldJoin: a write waits until what the last batch has left is sent again, and the connection is lost meanwhile, so
// that the batch that it was to join is no more. The log has both in their order, or the first has an unknown outcome.
func TestHeldJoin(t *testing.T) {
	held.Each(t, "sink/client.fast.add", held.Reconnection, func(t *testing.T, during func(func())) {
		js := natstest.Connect(t, natstest.Options{})
		stream := natstest.CreateStream(t, js, jetstream.StreamConfig{Name: wire.DefaultPrefix.LogStream(),
			Subjects: wire.DefaultPrefix.Log(0, 1).Subjects(), AllowBatchPublish: true})
		c := NewProxied(t, js.Conn().ConnectedUrl(), heldLimit)
		p, err := newPipe(t.Context(), c.l, pipeOptions{Fast: true, AckOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		lane := p.fast.lanes[0]
		var ended [2]error
		var both []sent
		for n := range uint64(2) {
			if err := p.room.messages.Acquire(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			p.flights[n] = &flight{done: func(_ answer, err error) { ended[n] = err }}
			both = append(both, sent{n, nats.NewMsg(wire.DefaultPrefix.Write(wire.Touch, "orders", string(rune('0'+n))))})
		}
		p.next = 2
		lane.left = both[:1]
		during(c.Reconnect)
		p.fast.sending.Lock()
		done, err := p.fast.add(t.Context(), lane, both[1])
		p.fast.sending.Unlock()
		if !done || err != nil {
			t.Fatalf("the write is not sent: %t, %v", done, err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		info, err := stream.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var stored []string
		for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
			msg, err := stream.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, msg.Subject)
		}
		if ended[1] != nil || len(stored) == 0 || stored[len(stored)-1] != both[1].msg.Subject {
			t.Errorf("the second write: %v, the log has %v", ended[1], stored)
		}
		switch err := ended[0]; {
		case err == nil && (len(stored) != 2 || stored[0] != both[0].msg.Subject), len(stored) > 2:
			t.Errorf("the first write is acknowledged, and the log has %v", stored)
		case err != nil && !errors.Is(err, ErrUnknownOutcome):
			t.Errorf("the first write: %v", err)
		}
	})
}
