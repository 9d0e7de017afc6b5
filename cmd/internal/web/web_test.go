package web

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/processor/health"
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
