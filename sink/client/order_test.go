package client_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestOrderWithoutAnAnswer: the owner of a shard takes an order, and loses its connection before it answers. The client
// gives the order once more.
//
// It goes red if the client waits for the first answer alone, and tells a person that the owner does not answer.
func TestOrderWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b, orders := newBench(t, true), atomic.Int32{}
	done, err := json.Marshal(wire.SnapshotReply{Since: 1, Done: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.nc.Subscribe(wire.DefaultPrefix.Snapshot(0), func(m *nats.Msg) {
		if orders.Add(1) > 1 {
			_ = m.Respond(done)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	p, err := b.client(t, limit).Snapshot(t.Context(), func(client.SnapshotProgress) {})
	if err != nil || p.Done != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}
