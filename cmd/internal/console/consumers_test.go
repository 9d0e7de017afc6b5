package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/forward"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestConsumers: the page shows durable consumers with their backlog, and dead letters, which a forwarder that runs
// posts again when a person asks for it. Without a forwarder the page says what to do.
func TestConsumers(t *testing.T) {
	r := start(t)
	b := r.browse(t)
	const path = "/console/consumers"
	b.get(path).want(200, "There are none yet.", "An event becomes one when")
	var takes atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !takes.Load() {
			w.WriteHeader(http.StatusRequestEntityTooLarge) // which makes a dead letter at once
		}
	}))
	defer receiver.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets, err := forward.ReadSecrets(secret)
	if err != nil {
		t.Fatal(err)
	}
	r.configure("orders", `{"defaultTtl":-1}`)
	for i := range 3 {
		r.put("orders", fmt.Sprint(i), `{"ttl":1,"n":7}`)
	}
	begin := time.Unix(0, 0)
	opts := forward.Options{URL: receiver.URL, Secrets: secrets,
		Messages: client.OrderedOptions{Durable: "forward-orders", Collection: "orders", Since: &begin}}
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- forward.Run(ctx, r.Client, wire.DefaultPrefix, opts) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stop := run()
	var p *page
	shows := func(what string, parts ...string) {
		t.Helper()
		harness.Until(t, harness.Limit, what, func(context.Context) error {
			p = b.get(path).want(200)
			for _, part := range parts {
				if !strings.Contains(p.words, part) {
					return fmt.Errorf("%s is not in %s", part, p.words)
				}
			}
			return nil
		})
	}
	shows("the dead letters are there", "forward-orders", "forwarder", "expired.orders", "connected",
		"the receiver answers 413", "There are 3.", `"n":7`)
	stop()
	p.send("resend-forward-orders").want(409, "No lapse forward runs under the name forward-orders", "Start lapse forward")
	p.send("resend-forward-orders", "name", "a.b").want(400)
	p.send("resend-forward-orders", "account", "ELSEWHERE").want(400)
	takes.Store(true)
	stop = run()
	defer stop()
	harness.Until(t, harness.Limit, "the forwarder answers", func(context.Context) error {
		if again := p.send("resend-forward-orders"); again.StatusCode != 200 ||
			!strings.Contains(again.words, "posts its dead letters again now") {
			return fmt.Errorf("%s", again.words)
		}
		return nil
	})
	shows("they are gone", "An event becomes one when")
}
