package natstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/proxy"
)

// StartJoined starts two servers until the test ends, whose JetStream domains are a and b. The second is a leaf node
// of the first, through a proxy.
func StartJoined(t testing.TB) (a, b string, link *proxy.Proxy) {
	t.Helper()
	leaf := freeport.Address(freeport.Take(t))
	a = Start(t, Options{JetStream: "domain: a",
		Config: fmt.Sprintf("server_name: a\nleafnodes { listen: %q, no_advertise: true }\n", leaf)})
	link = proxy.New(t, leaf)
	b = Start(t, Options{JetStream: "domain: b",
		Config: fmt.Sprintf("server_name: b\nleafnodes { reconnect: \"1s\", remotes: [{ urls: [%q] }] }\n",
			"nats-leaf://"+link.Address())})
	nc, err := nats.Connect(b, Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, "a")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); ; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := js.AccountInfo(ctx)
		cancel()
		if err == nil {
			return a, b, link
		}
		if time.Now().After(end) {
			t.Fatalf("region b does not reach region a within %s: %v", limit, err)
		}
		time.Sleep(2 * time.Millisecond) // as the others here wait
	}
}
