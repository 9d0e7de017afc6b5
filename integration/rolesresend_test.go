package integration

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRoles_Resend: with the permissions of deploy/nats/accounts.conf, lapse asks a forwarder in its own account to
// post
// dead letters again, and gets the answer.
//
// It fails if the account does not export the subject, or the forwarder may not answer.
func TestRoles_Resend(t *testing.T) {
	t.Parallel()
	server := harness.StartNATS(t, harness.NATSOptions{Denies: true})
	forwarder, lapse := as(t, server, "forwarder"), as(t, server, "lapse")
	asked := make(chan string, 1)
	if _, err := forwarder.QueueSubscribe(wire.DefaultPrefix.Resend("forward-orders"), "forward", func(msg *nats.Msg) {
		asked <- msg.Subject
		_ = msg.Respond(nil)
	}); err != nil {
		t.Fatal(err)
	}
	if err := forwarder.FlushTimeout(harness.Limit); err != nil {
		t.Fatal(err)
	}
	if _, err := lapse.Request(wire.DefaultPrefix.Resend("FORWARD.forward-orders"), nil, harness.Limit); err != nil {
		t.Fatalf("%v; the forwarder has seen: %v", err, forwarder.LastError())
	}
	if subject := <-asked; subject != "lapse.resend.forward-orders" {
		t.Errorf("the forwarder is asked on %s", subject)
	}
}
