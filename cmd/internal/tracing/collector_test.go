package tracing_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/seed18712806/lapse/cmd/internal/tracing"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute // on every wait

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector receives spans by OTLP over HTTP.
type collector struct {
	*httptest.Server
	refuses atomic.Bool

	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]string
}

// startCollector starts a collector, and has the environment name it.
func startCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request v1.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if c.refuses.Load() {
			http.Error(w, "no room", http.StatusInsufficientStorage)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range request.ResourceSpans {
			c.resource = attributes(of.Resource.Attributes)
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	return c
}

// received are the spans that have come, by their names.
func (c *collector) received() map[string][]*otlp.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string][]*otlp.Span)
	for _, s := range c.spans {
		all[s.Name] = append(all[s.Name], s)
	}
	return all
}

// one is the only span with a name that has come.
func (c *collector) one(t *testing.T, name string) *otlp.Span {
	t.Helper()
	all := c.received()
	if len(all[name]) != 1 {
		var names []string
		for name, spans := range all {
			names = append(names, fmt.Sprintf("%d %s", len(spans), name))
		}
		t.Fatalf("%d spans are named %q, want one; there are %q", len(all[name]), name, names)
	}
	return all[name][0]
}

func attributes(list []*common.KeyValue) map[string]string {
	all := make(map[string]string)
	for _, a := range list {
		if text, ok := a.Value.Value.(*common.AnyValue_StringValue); ok {
			all[a.Key] = text.StringValue
		} else {
			all[a.Key] = fmt.Sprint(a.Value.GetIntValue())
		}
	}
	return all
}

// traceparent names a span as a traceparent does.
func traceparent(trace, span []byte) string {
	return "00-" + hex.EncodeToString(trace) + "-" + hex.EncodeToString(span) + "-01"
}

// logged is what was logged, a line each.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// start starts a tracer as the environment says; nil if it asks for none.
func start(t testing.TB) (tracer *tracing.Tracer, log *logged, metrics *prometheus.Registry) {
	t.Helper()
	log, metrics = &logged{}, prometheus.NewRegistry()
	tracer, err := tracing.Start(t.Context(),
		tracing.Options{Prefix: wire.DefaultPrefix, Version: "1.2.3", Logger: slog.New(slog.NewTextHandler(log, nil)),
			Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	return tracer, log, metrics
}

// results are how many spans a metric counts by what became of them.
func results(t *testing.T, metrics prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	return all
}
