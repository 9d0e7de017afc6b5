package web

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestHealth(t *testing.T) {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector())
	ready := health.Problems{{Reason: errors.New("shard 3 lags by 12 messages")}}
	srv := httptest.NewServer(handler(&access.Guard{}, func() (string, health.Problems) { return "ready", ready },
		metrics))
	defer srv.Close()
	get := func(path string, status int, part string) {
		t.Helper()
		resp, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: a browser may guess what it is: %v", path, resp.Header)
		}
		if resp.StatusCode != status || !strings.Contains(body.String(), part) {
			t.Errorf("%s: %s\n%s", path, resp.Status, body.String())
		}
	}
	get("/healthz", http.StatusOK, "ok")
	get("/readyz", http.StatusServiceUnavailable, "shard 3 lags by 12 messages")
	get("/readyz", http.StatusServiceUnavailable, "What to do:\nhttps://github.com/")
	ready = nil
	get("/readyz", http.StatusOK, "ready")
	get("/metrics", http.StatusOK, "go_goroutines")
	get("/else", http.StatusNotFound, "")
	// A page of another site can reach a loopback address by a name of its own.
	for path, want := range map[string]int{"/readyz": http.StatusMisdirectedRequest,
		"/metrics": http.StatusMisdirectedRequest, "/healthz": http.StatusOK} {
		req, _ := http.NewRequest(http.MethodGet, srv.URL+path, nil)
		req.Host = "evil.example"
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("%s of another host: %s", path, resp.Status)
		}
	}
}

// TestStart: a server has a limit for each thing on which a client could let it wait, and Start returns what keeps it
// from serving. A server that ends by itself sends the reason.
func TestStart(t *testing.T) {
	files, err := Options{Listen: "127.0.0.1:0"}.Load()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(client.Options{Server: natstest.Start(t, natstest.Options{}), Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	reader, err := sink.NewReader(redistest.StartMini(t).Client, sink.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Files: files, Prefix: wire.DefaultPrefix, Client: c, Reader: reader,
		Dear: service.NewDear(reader, func() bool { return false }), Metrics: prometheus.NewRegistry(),
		Ready:  func() (string, health.Problems) { return "ready", nil },
		Logger: slog.New(slog.DiscardHandler), Connections: 10}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	s, err := Start(l, config, failed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for what, got := range map[string]time.Duration{"a header": s.http.ReadHeaderTimeout, "a request": s.http.ReadTimeout,
		"an answer": s.http.WriteTimeout, "an idle connection": s.http.IdleTimeout} {
		if got < time.Second {
			t.Errorf("the limit for %s is %s", what, got)
		}
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/openapi.json": http.StatusOK,
		"/v1/none": http.StatusNotFound, "/": http.StatusOK} {
		// A busy machine may not send a header within the limit for it.
		if err := poll.Until(t.Context(), limit, func(context.Context) error {
			resp, err := http.Get("http://" + l.Addr().String() + path)
			if err != nil {
				return err
			}
			if _ = resp.Body.Close(); resp.StatusCode != want {
				return poll.Hopeless(errors.New(resp.Status))
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if again, err := Start(l, config, failed); err == nil {
		again.Stop()
		t.Error("a second server has the metrics of the first")
	}
	_ = l.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "HTTP server: ") {
		t.Errorf("without its listener the server ends with %v", err)
	}
}
