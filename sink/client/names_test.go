package client_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestNamesOfAnotherResponder: anybody who may answer reads could send names that are commands of a shell. The client
// refuses an answer with a name that no collection can have.
func TestNamesOfAnotherResponder(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	nc := js.Conn()
	defer nc.Close()
	if _, err := nc.Subscribe(wire.DefaultPrefix.ReadCollections(), func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"collections":[{"name":"orders"},{"name":"$(touch x)"}]}`))
	}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(client.Options{Server: nc.ConnectedUrl()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if reply, err := c.Collections(t.Context(), wire.CollectionsRequest{}); !errors.Is(err, wire.ErrInvalidName) ||
		len(reply.Collections) > 0 {
		t.Errorf("%v, %v", reply, err)
	}
}
