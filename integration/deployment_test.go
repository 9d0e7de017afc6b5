package integration

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/deployed"
)

// The whole of deploy/ as a new user starts it: three nats-servers and Redis, with TLS,
// certificates and roles, and two lapse. A document that the writer writes expires, and the
// reader sees that. One lapse is killed, and events go on.
//
// It goes red if the configurations, the permissions and what lapse needs do not fit
// together, if a role may not do its work, or if the second lapse does not take over.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d := deployed.Start(t)
	one, other := d.Prepare(), d.Prepare()
	one.Start()
	other.Start()

	run := func(want int, user string, args ...string) string {
		t.Helper()
		out, errOut, code := d.Run(user, args...)
		if code != want {
			t.Fatalf("lapse %v as %s: exit code %d, want %d\n%s%s", args, user, code, want, out, errOut)
		}
		return out + errOut
	}
	has := func(out, want string) {
		t.Helper()
		if !strings.Contains(out, want) {
			t.Errorf("output %q, want %q in it", out, want)
		}
	}
	has(run(0, "operator", "config", "orders", "--default-ttl", "3600"), "configured orders")
	has(run(0, "orders-writer", "put", "orders", "stays", `{"item":"tea"}`), "created orders/stays")
	has(run(0, "reader", "get", "orders", "stays"), `{"item":"tea"}`)
	has(run(0, "orders-writer", "put", "orders", "1", `{"item":"tea","ttl":1}`), "created orders/1")
	has(run(0, "reader", "watch", "orders", "1", "--since", "1h", "--count", "1"), `expired orders/1 etag=`)
	has(run(3, "reader", "get", "orders", "1"), "404")

	has(run(1, "orders-writer", "put", "users", "1", `{}`), "the NATS server does not permit this user to publish to lapse.write.upsert.users.1")
	has(run(1, "orders-writer", "get", "orders", "stays"), "the NATS server does not permit this user to publish to lapse.read.get.orders.stays")
	has(run(1, "orders-writer", "watch", "orders"), "does not permit this user to")
	has(run(1, "reader", "put", "orders", "1", `{}`), "the NATS server does not permit this user to publish to lapse.write.upsert.orders.1")
	has(run(1, "reader", "drop", "orders"), "publish to lapse.drop.orders")

	one.Kill()
	has(run(0, "orders-writer", "put", "orders", "2", `{"item":"tea","ttl":1}`), "created orders/2")
	has(run(0, "reader", "watch", "orders", "2", "--since", "1h", "--count", "1"), `expired orders/2 etag=`)
	other.Ready()
	for _, n := range d.NATS {
		if log := n.Log(); strings.Contains(log, "user:lapse\" - Publish Violation") || strings.Contains(log, "user:lapse\" - Subscription Violation") {
			t.Errorf("a nats-server has denied lapse something:\n%s", log)
		}
	}
}

// nats-server accepts the configuration in deploy/nats with the secrets of deploy/secrets.
// It goes red if a line of it is not valid, or a variable has no value.
func TestDeployment_NATSConfigurationIsValid(t *testing.T) {
	t.Parallel()
	d := deployed.New(t)
	if out, code := d.CheckNATS("nats-1"); code != 0 || !strings.Contains(out, "is valid") {
		t.Errorf("nats-server -t: exit code %d\n%s", code, out)
	}
}
