package tracing_test

import (
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/trace"
)

const (
	sampled   = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

var (
	write = trace.Span{Kind: trace.Write, Parent: sampled, Subject: "write.upsert.<collection>.<id>",
		Collection: "orders", Seq: 7, Began: time.Now(), Ended: time.Now()}
	event = trace.Span{Kind: trace.Event, Parent: sampled, Subject: "expired.<collection>.<id>", Collection: "orders",
		Seq: 7, Began: time.Now(), Ended: time.Now()}
	read = trace.Span{Kind: trace.Read, Subject: "read.list.<collection>", Collection: "orders", Status: 503,
		Began: time.Now(), Ended: time.Now()}
)

const (
	writeName = "process lapse.write.upsert.<collection>.<id>"
	eventName = "send lapse.expired.<collection>.<id>"
	readName  = "process lapse.read.list.<collection>"
)

func met(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := poll.Met(limit, what, is); err != nil {
		t.Fatal(err)
	}
}

// Spans say what the conventions for messaging ask for. A write is a child of its traceparent; an event
// begins a trace with a link to it; a read without a traceparent begins one too.
func TestSpans(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	tracer, _, metrics := start(t)
	for _, s := range []trace.Span{write, event, read} {
		tracer.Record(s)
	}
	tracer.Close()
	w, e, r := c.one(t, writeName), c.one(t, eventName), c.one(t, readName)
	if got := traceparent(w.TraceId, w.ParentSpanId); got != sampled || w.Kind != otlp.Span_SPAN_KIND_CONSUMER {
		t.Errorf("the write is a %s below %s, want a consumer below %s", w.Kind, got, sampled)
	}
	if w.StartTimeUnixNano != uint64(write.Began.UnixNano()) || w.EndTimeUnixNano != uint64(write.Ended.UnixNano()) {
		t.Errorf("the write lasted from %d to %d", w.StartTimeUnixNano, w.EndTimeUnixNano)
	}
	if len(e.Links) != 1 || traceparent(e.Links[0].TraceId, e.Links[0].SpanId) != sampled || len(e.ParentSpanId) > 0 ||
		e.Kind != otlp.Span_SPAN_KIND_PRODUCER || string(e.TraceId) == string(w.TraceId) {
		t.Errorf("the event has links %v, and the parent %x: want a root with one link to the span of the write", e.Links,
			e.ParentSpanId)
	}
	if len(r.ParentSpanId) > 0 || r.Kind != otlp.Span_SPAN_KIND_SERVER || r.Status.Code != otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("the read is %v", r)
	}
	want := map[string]string{
		"messaging.system": "nats", "messaging.operation.type": "process", "messaging.operation.name": "process",
		"lapse.collection": "orders", "lapse.sequence": "7",
		"messaging.destination.name":     "lapse.write.upsert.orders",
		"messaging.destination.template": "lapse.write.upsert.<collection>.<id>",
	}
	if diff := cmp.Diff(want, attributes(w.Attributes)); diff != "" {
		t.Errorf("the write (-want +got):\n%s", diff)
	}
	want["messaging.operation.type"], want["messaging.operation.name"] = "send", "send"
	want["messaging.destination.name"], want["messaging.destination.template"] = "lapse.expired.orders",
		"lapse.expired.<collection>.<id>"
	if diff := cmp.Diff(want, attributes(e.Attributes)); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
	if got := c.resource; got["service.name"] != "lapse" || got["service.version"] != "1.2.3" ||
		got["deployment.environment.name"] != "test" {
		t.Errorf("the resource is %v", got)
	}
	if got := results(t, metrics); got["exported"] != 3 || got["failed"]+got["dropped"] != 0 {
		t.Errorf("the metric says %v", got)
	}
}

// The sampler of the environment decides. By default it does as the client did; and an event is taken
// where its write was, also of a share of all traces.
func TestSampler(t *testing.T) {
	for sampler, want := range map[string]int{"": 1, "always_off": 0, "parentbased_always_off": 1, "always_on": 2} {
		c := startCollector(t)
		t.Setenv("OTEL_TRACES_SAMPLER", sampler)
		t.Setenv("OTEL_SERVICE_NAME", "other")
		tracer, _, _ := start(t)
		for _, s := range []trace.Span{write, write, event} {
			tracer.Record(s)
			s.Parent = unsampled
			tracer.Record(s)
		}
		tracer.Close()
		if n := len(c.received()[writeName]); n != 2*want {
			t.Errorf("%q: %d spans of 2 sampled and 2 other writes, want %d", sampler, n, 2*want)
		}
		if n := len(c.received()[eventName]); n != want {
			t.Errorf("%q: %d spans of a sampled and another event, want %d", sampler, n, want)
		}
		if want > 0 && c.resource["service.name"] != "other" {
			t.Errorf("the resource is %v", c.resource)
		}
	}
	c := startCollector(t)
	t.Setenv("OTEL_TRACES_SAMPLER", "traceidratio")
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
	tracer, _, _ := start(t)
	for range 200 {
		w, e := write, event
		w.Parent = fmt.Sprintf("00-%016x%016x-00f067aa0ba902b7-01", rand.Uint64(), rand.Uint64())
		e.Parent = w.Parent
		tracer.Record(w)
		tracer.Record(e)
	}
	tracer.Close()
	both := make(map[string]int)
	for _, w := range c.received()[writeName] {
		both[hex.EncodeToString(w.TraceId)]++
	}
	for _, e := range c.received()[eventName] {
		both[hex.EncodeToString(e.Links[0].TraceId)]++
	}
	if n := len(both); n < 20 || n > 180 {
		t.Errorf("it took %d of 200, want about 100", n)
	}
	for id, n := range both {
		if n != 2 {
			t.Errorf("of write %s and its event it took %d", id, n)
		}
	}
}

// Without a variable that asks for it there is no tracer; nor with one that asks for what lapse does not
// do, which is said in the log.
func TestOff(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		says        string
	}{
		"by default":  {},
		"disabled":    {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, ""},
		"no exporter": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, ""},
		"another": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "zipkin"},
			"use otlp, or none"},
		"gRPC": {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "use http/protobuf"},
		"without http:": {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "http://collector:4318"},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range c.environment {
				t.Setenv(key, value)
			}
			tracer, log, metrics := start(t)
			if tracer != nil {
				t.Error("there is a tracer")
				tracer.Close()
			}
			if want := min(len(c.says), 1); log.count("\n") != want || want > 0 && log.count(c.says) != 1 {
				t.Errorf("logged %q, want %q", log.text.String(), c.says)
			}
			if got := results(t, metrics); len(got) > 0 {
				t.Errorf("there is a metric: %v", got)
			}
		})
	}
}

// Lapse serves without tracing where the SDK refuses its variables, and with the rest of a resource that is not valid.
// The log tells both.
func TestVariables(t *testing.T) {
	c := startCollector(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,none")
	tracer, log, _ := start(t)
	tracer.Record(write)
	tracer.Close()
	if c.one(t, writeName); c.resource["service.name"] != "lapse" || log.count("missing value") == 0 {
		t.Errorf("the resource is %v; logged %q", c.resource, log.text.String())
	}
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	authorities := filepath.Join(t.TempDir(), "authorities")
	if err := os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", authorities) // for an endpoint without TLS
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "")
	if tracer, log, _ := start(t); tracer != nil || log.count("tracing is off") != 1 {
		t.Errorf("there is a tracer: %t; logged %q", tracer != nil, log.text.String())
	}
}

// A status of 500 or more is an error of lapse, and no other one is.
func TestStatus(t *testing.T) {
	c := startCollector(t)
	tracer, _, _ := start(t)
	for _, code := range []int{0, 200, 404, 499, 500, 503} {
		s := read
		s.Subject, s.Status = fmt.Sprintf("read.%d", code), code
		tracer.Record(s)
	}
	tracer.Close()
	for _, code := range []int{0, 200, 404, 499, 500, 503} {
		s, want := c.one(t, fmt.Sprintf("process lapse.read.%d", code)), map[string]string{}
		if code > 0 {
			want["lapse.status"] = strconv.Itoa(code)
		}
		if code >= 500 {
			want["error.type"] = strconv.Itoa(code)
		}
		got := attributes(s.Attributes)
		maps.DeleteFunc(got, func(name, _ string) bool { return name != "lapse.status" && name != "error.type" })
		if diff := cmp.Diff(want, got); diff != "" || (s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR) != (code >= 500) {
			t.Errorf("status %d is %v (-want +got):\n%s", code, s.Status, diff)
		}
	}
}

// A collector that refuses spans is said once, with the reason, and so is its return.
func TestCollectorRefuses(t *testing.T) {
	c := startCollector(t)
	c.refuses.Store(true)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	tracer, log, metrics := start(t)
	for n := 1; n <= 3; n++ {
		tracer.Record(write)
		met(t, fmt.Sprintf("%d spans have failed", n), func() bool { return results(t, metrics)["failed"] == n })
	}
	c.refuses.Store(false)
	tracer.Record(write)
	met(t, "a span is exported", func() bool { return results(t, metrics)["exported"] == 1 })
	tracer.Close()
	if log.count("spans cannot be exported") != 1 || log.count("no room") != 1 || log.count("exported again") != 1 {
		t.Errorf("logged:\n%s", log.text.String())
	}
}

// A collector that is not there, or that never answers, holds up nobody: spans that the queue has no
// room for are dropped and counted, and the end of the process waits for two seconds at most.
func TestCollectorIsAway(t *testing.T) {
	hangs := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	defer hanging.Close()
	defer close(hangs)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for name, endpoint := range map[string]string{"hangs": hanging.URL, "down": "http://" + l.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
			t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
			t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "600000") // nothing but the end interrupts an export
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "600000")
			tracer, log, metrics := start(t)
			const all = 10_000
			began := time.Now()
			for range all {
				tracer.Record(write)
			}
			took := time.Since(began)
			if took > 10*time.Second {
				t.Errorf("%d spans took %v", all, took)
			}
			dropped := results(t, metrics)["dropped"]
			if name == "hangs" && dropped != all-100 {
				t.Errorf("dropped %d of %d, want all but 100", dropped, all)
			}
			began = time.Now()
			tracer.Close()
			if took := time.Since(began); took > 20*time.Second { // on a busy machine
				t.Errorf("the end took %v", took)
			}
			met(t, "every span is counted", func() bool {
				got := results(t, metrics)
				return got["failed"]+got["dropped"] == all && got["exported"] == 0
			})
			if log.count("spans cannot be exported") != 1 || name == "down" && log.count("connection refused") != 1 ||
				strings.Contains(log.text.String(), "OpenTelemetry") {
				t.Errorf("logged:\n%s", log.text.String())
			}
		})
	}
}

// BenchmarkRecord shows what a span costs whoever records it.
func BenchmarkRecord(b *testing.B) {
	c := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer c.Close()
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	tracer, _, _ := start(b)
	defer tracer.Close()
	other := write
	other.Parent = unsampled
	for name, s := range map[string]trace.Span{"write": write, "unsampled write": other, "event": event, "read": read} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tracer.Record(s)
			}
		})
	}
}
