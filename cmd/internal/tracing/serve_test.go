package tracing_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/serve/servetest"
	"github.com/seed18712806/lapse/sink/wire"
)

// lapse is a process that serves with everything embedded.
type lapse struct {
	*servetest.Lapse
	t    *testing.T
	nats *nats.Conn
}

// serveLapse runs lapse until the test ends.
func serveLapse(t *testing.T) *lapse {
	t.Helper()
	l := &lapse{t: t, Lapse: servetest.Start(t, func(o *serve.Options) {
		o.Version, o.Logger = "1.2.3", slog.New(slog.NewTextHandler(t.Output(), nil))
	})}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var err error
	if l.nats, err = nats.Connect(l.NATS); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.nats.Close)
	return l
}

func (l *lapse) request(method, path, traceparent, body string) {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, l.HTTP+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.Contains(body, "\n") {
		r.Header.Set("Content-Type", "application/x-ndjson")
	}
	if traceparent != "" {
		r.Header.Set("traceparent", traceparent)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		l.t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if _ = answer.Body.Close(); err != nil || answer.StatusCode >= 300 {
		l.t.Fatalf("%s %s: %s %s %v", method, path, answer.Status, text, err)
	}
}

// A write over HTTP is one trace: the request below the span of the client, and the decision below the
// request. The event carries the span of the request, and its publication has a link to it. Reads over
// HTTP and NATS are spans of the server. No span has the id of the document.
func TestTraces(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "60000") // so that the end has something to export
	l := serveLapse(t)
	events, err := l.nats.SubscribeSync("lapse.expired.orders.*")
	if err != nil {
		t.Fatal(err)
	}
	const document = "/v1/collections/orders/documents/secret"
	l.request("PUT", "/v1/collections/orders", "", `{"defaultTtl":-1}`)
	l.request("PUT", document, sampled, `{"ttl":2}`)
	l.request("GET", document, sampled, "")
	read := &nats.Msg{Subject: wire.DefaultPrefix.ReadGet("orders", "secret"),
		Header: nats.Header{"traceparent": {sampled}}}
	if _, err := l.nats.RequestMsg(read, limit); err != nil {
		t.Fatal(err)
	}
	l.request("PUT", document+"2", unsampled, `{}`)
	l.request("POST", "/v1/collections/orders/documents", "", "{\"id\":\"secret3\"}\n{\"id\":\"secret4\"}\n")
	event, err := events.NextMsg(limit)
	if err != nil {
		t.Fatal(err)
	}
	l.Stop() // it exports its last spans then

	const route = "/v1/collections/{collection}/documents/{id}"
	put, get, over := c.one(t, "PUT "+route), c.one(t, "GET "+route), c.one(t, "process lapse.read.get.<collection>.<id>")
	write, send := c.one(t, writeName), c.one(t, eventName)
	for _, s := range []*otlp.Span{put, get, over} {
		if got := traceparent(s.TraceId, s.ParentSpanId); got != sampled || s.Kind != otlp.Span_SPAN_KIND_SERVER {
			t.Errorf("%s is a %s below %s, want a server below %s", s.Name, s.Kind, got, sampled)
		}
	}
	ofPut := traceparent(put.TraceId, put.SpanId)
	if got := traceparent(write.TraceId, write.ParentSpanId); got != ofPut {
		t.Errorf("the decision is below %s, want the request %s", got, ofPut)
	}
	if got := event.Header.Get("traceparent"); got != ofPut {
		t.Errorf("the event carries %s, want %s", got, ofPut)
	}
	if len(send.Links) != 1 || traceparent(send.Links[0].TraceId, send.Links[0].SpanId) != ofPut ||
		len(send.ParentSpanId) > 0 {
		t.Errorf("the publication has links %v and the parent %x, want a root with a link to %s", send.Links,
			send.ParentSpanId, ofPut)
	}
	if put.StartTimeUnixNano > write.StartTimeUnixNano || put.EndTimeUnixNano < write.StartTimeUnixNano ||
		send.StartTimeUnixNano < write.EndTimeUnixNano {
		t.Error("the request, the decision and the event are not in their order")
	}
	want := map[string]string{
		"http.request.method": "PUT", "http.route": route, "url.scheme": "http",
		"url.path":                  "/v1/collections/orders/documents/{id}",
		"http.response.status_code": "201", "lapse.collection": "orders",
	}
	if diff := cmp.Diff(want, attributes(put.Attributes)); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	// and no span for each line
	if root := c.one(t, "POST /v1/collections/{collection}/documents"); len(root.ParentSpanId) > 0 {
		t.Errorf("the import is below %x", root.ParentSpanId)
	}
	for _, spans := range c.received() {
		for _, s := range spans {
			if strings.Contains(s.String(), "secret") {
				t.Errorf("a span has the id of a document: %v", s)
			}
		}
	}
}

// Without tracing, the traceparent of a request over HTTP is that of the write.
func TestUntraced(t *testing.T) {
	l := serveLapse(t)
	log, err := l.nats.SubscribeSync("lapse.write.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.nats.Flush(); err != nil {
		t.Fatal(err)
	}
	l.request("PUT", "/v1/collections/orders/documents/a", sampled, `{}`)
	m, err := log.NextMsg(limit)
	if err != nil || m.Header.Get("traceparent") != sampled {
		t.Errorf("the write carries %q, want %q (%v)", m.Header.Get("traceparent"), sampled, err)
	}
}
