//go:build held

package console_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldConsumers: a durable consumer is deleted, and an event is given up, between the question for the consumers and
// the one for their dead letters. The page shows each letter all the same, so that somebody sees it.
func TestHeldConsumers(t *testing.T) {
	held.Each(t, "cmd/internal/console.Options.readConsumers", held.Write, func(t *testing.T, during func(happen func())) {
		r := start(t)
		js, err := r.JetStream("")
		if err != nil {
			t.Fatal(err)
		}
		p := wire.DefaultPrefix
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.DeadStream(),
			Subjects: []string{p.Dead("*", "*")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateConsumer(t.Context(), p.EventsStream(), jetstream.ConsumerConfig{Durable: "forward-first",
			AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
		give := func(durable, body string) {
			if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: p.Dead(durable, "d1"), Data: []byte(body),
				Header: nats.Header{"ce-source": {"/lapse/17/collections/orders"}, "ce-id": {"orders/1/7"}}}); err != nil {
				t.Error(err)
			}
		}
		give("forward-first", `{"n":7}`)
		happened := false
		during(func() {
			if err := js.DeleteConsumer(t.Context(), p.EventsStream(), "forward-first"); err != nil {
				t.Error(err)
			}
			give("forward-second", `{"n":8}`)
			happened = true
		})
		page := r.browse(t).get("/console/consumers").want(200, "forward-first", `"n":7`)
		if happened {
			page.want(200, "forward-second", `"n":8`, "There are 2.")
		}
	})
}
