package browser

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// consumers: durables are shown with what waits for them, and dead letters; a button asks the forwarder to post these
// again, and says what to do if none runs.
func (r *rig) consumers(t *testing.T) {
	js, err := jetstream.New(r.client.Conn())
	if err != nil {
		t.Fatal(err)
	}
	const name = "forward-billed"
	p := wire.DefaultPrefix
	if _, err := js.CreateConsumer(t.Context(), p.EventsStream(), jetstream.ConsumerConfig{
		Durable: name, FilterSubject: string(p) + ".expired.billed.>", AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: p.DeadStream(),
		Subjects: []string{p.Dead("*", "*")}}); err != nil {
		t.Fatal(err)
	}
	expire(t, r.collection(t, "billed", client.Never), "1", "2")
	letter := &nats.Msg{Subject: p.Dead(name, "x"), Data: []byte(`{"id":"1"}`), Header: nats.Header{
		"Lapse-Dead-Reason": {"the receiver answers 500"}, "ce-source": {"/lapse/17/collections/billed"},
		"ce-id": {"billed/1/7"},
	}}
	if _, err := js.PublishMsg(t.Context(), letter); err != nil {
		t.Fatal(err)
	}
	b := r.tab(t)
	b.open("/")
	b.clickTo(`a[href="/console/consumers"]`)
	b.untilText(`tr[data-name="`+name+`"]`, "expired.billed")
	b.untilText("#letters", "the receiver answers 500")
	b.until("two events wait", `document.querySelector('tr[data-name="`+name+`"]').cells[4].innerText === "2"`)
	b.inspect("consumers")
	b.expect("status of 409")
	b.clickTo("#resend-" + name)
	b.untilText("main", "No lapse forward runs under the name "+name)
	b.untilText("main", "--resend")
	b.glance("consumers-no-forwarder")
}
