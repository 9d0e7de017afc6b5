package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/httpapi"
)

// connection is a recorder that takes what lapse asks of a connection.
type connection struct{ *httptest.ResponseRecorder }

func (connection) SetReadDeadline(time.Time) error  { return nil }
func (connection) SetWriteDeadline(time.Time) error { return nil }
func (connection) EnableFullDuplex() error          { return nil }

// FuzzHandler: whatever comes, lapse answers as described, and a failure is a problem.
func FuzzHandler(f *testing.F) {
	f.Add("PUT", "/v1/collections/orders/documents/1", `{"a":1}`, "If-Match", `"1"`)
	f.Add("GET", "/v1/collections/orders/documents/a%2Fb?x=1", "", "If-None-Match", "*")
	f.Add("PATCH", "/v1/collections/orders", `{"defaultTtl":1}`, "Content-Type", "application/merge-patch+json")
	f.Add("POST", "/v1/collections/orders/documents?op=create", "{\"id\":\"1\"}\n{", "Content-Type",
		"application/x-ndjson")
	f.Add("GET", "/v1/collections?limit=1&continuation=x", "", "Idempotency-Key", "k")
	f.Add("GET", "/v1/collections/orders/forecast?within=1h&buckets=3&defaultTtl=-1", "", "Prefer", "respond-async")
	f.Add("GET", "/v1/events?since=1h&collection=orders", "", "Last-Event-ID", "1")
	f.Add("GET", "/v1/changes?collection=orders&id=1", "", "Last-Event-ID", "1")
	f.Add("DELETE", "/v1/collections/orders/documents/..", "", "Idempotency-Key", "k")
	f.Add("DELETE", "/v1/collections/./orders//documents/%2E%2E/touch", "", "If-Match", "*")
	f.Add("DELETE", "/v1/collections/orders", "", "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	r := start(f)
	handler := newAPI(f, r, httpapi.Limits{}, 0)
	f.Fuzz(func(t *testing.T, method, target, body, name, value string) {
		req, err := http.NewRequest(method, "http://127.0.0.1", strings.NewReader(body))
		if err != nil {
			return
		}
		// As net/http reads it of a request: it changes no path.
		if req.URL, err = url.ParseRequestURI(target); err != nil || !strings.HasPrefix(target, "/v1/") {
			return
		}
		if name != "" {
			req.Header.Set(name, value)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if strings.HasSuffix(req.URL.Path, "/events") || strings.HasSuffix(req.URL.Path, "/rejections") ||
			strings.HasSuffix(req.URL.Path, "/changes") {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond) // they have no end
		}
		defer cancel()
		w := connection{httptest.NewRecorder()}
		handler.ServeHTTP(w, req.WithContext(ctx))
		if ctx.Err() != nil {
			return // the client has left
		}
		problems := w.Header().Get("Content-Type") == "application/problem+json"
		switch {
		case w.Code >= 500 && w.Code != 503:
			t.Errorf("%d %s", w.Code, w.Body)
		case w.Code >= 300 && w.Code < 400 && w.Code != http.StatusNotModified:
			t.Errorf("%d: it redirects to %s", w.Code, w.Header().Get("Location"))
		case w.Code >= 400 && !problems, w.Code < 400 && problems:
			t.Errorf("%d with %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
		}
	})
}
