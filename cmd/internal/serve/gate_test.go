package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/client"
)

// TestGate: the gate opens when the process is ready, and at the latest after gateLongest; the process is not ready
// before. If the process is told to stop, the gate opens and the embedded server does not listen.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		name        string
		ready, stop time.Duration // 0 is never
		want        time.Duration
		listens     bool
	}{
		{"ready", time.Second, 0, time.Second, true},
		{"never ready", 0, 0, gateLongest, true},
		{"stopped", 0, time.Second, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, listened := time.Now(), false
				of := func() (role string, problems health.Problems) {
					if c.ready == 0 || time.Since(began) < c.ready {
						problems.Add(health.Problem{Reason: errors.New("no owner")})
					}
					return "", problems
				}
				if c.stop > 0 {
					time.AfterFunc(c.stop, cancel)
				}
				g := newGate()
				ready := func() (string, health.Problems) { return "", nil }
				if _, problems := g.ready(ready)(); problems == nil {
					t.Error("the process is ready before the gate is open")
				}
				if err := g.run(ctx, of, func() error { listened = true; return nil }); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took < c.want || took > c.want+time.Second || listened != c.listens {
					t.Errorf("it opened after %s, and listened: %v", took, listened)
				}
				if _, problems := g.ready(ready)(); problems != nil {
					t.Errorf("the process is not ready when the gate is open: %v", problems)
				}
			})
		})
	}
}

// TestFirstClients: a client and a request over HTTP that come while the process starts wait, and get an answer.
//
// It fails if the embedded server listens before, or if the first of them gets 503.
func TestFirstClients(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := options(t)
	opts.NATSListen = harness.Address(harness.FreePort(t))
	opts.permissions, opts.malformed = newPermissions(), newMalformed()
	p := &process{opts: opts}
	if err := p.open(ctx); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", opts.NATSListen); err == nil {
		_ = conn.Close()
		t.Error("the embedded server listens before lapse can answer")
	}
	status, written := make(chan int, 1), make(chan error, 1)
	go func() {
		resp, err := http.Get(p.at.HTTP + "/v1/collections")
		if err != nil {
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	go func() {
		c, err := client.Connect(client.Options{Server: p.at.NATS, Timeout: harness.Limit})
		if err == nil {
			defer c.Close()
			_, err = c.Write(ctx, client.Message{Subject: opts.Processor.Prefix.Config("orders"),
				Body: []byte(`{"defaultTtl":60}`)})
		}
		written <- err
	}()
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(p.serve(ctx, time.Now()), p.close()) }()
	if got := <-status; got != http.StatusOK {
		t.Errorf("the first request over HTTP: %d", got)
	}
	if err := <-written; err != nil {
		t.Errorf("the first write: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
