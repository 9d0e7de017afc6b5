package service_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// The metrics count each read by its verb and the code of its answer, and how long it took.
//
// It fails if a failed read counts as a good one, which no alert could then tell.
func TestMetrics(t *testing.T) {
	metrics := prometheus.NewRegistry()
	_, nc := start(t, fake{
		get: func(_ context.Context, _, id string) (sink.Document, error) {
			switch id {
			case "absent":
				return sink.Document{}, sink.ErrNotFound
			case "rebuilt":
				return sink.Document{}, fmt.Errorf("get: %w", sink.ErrUnavailable)
			}
			return sink.Document{ID: id, Body: []byte(`{}`)}, nil
		},
	}, service.Options{Metrics: metrics})
	for _, id := range []string{"a", "b", "absent", "rebuilt"} {
		request(t, nc, wire.DefaultPrefix.ReadGet("c", id), "")
	}
	request(t, nc, "lapse.read.list.c", "not JSON")
	var got string
	want := []string{
		`lapse_reads_total{code="200",read="get",via="nats"} 2`, `lapse_reads_total{code="404",read="get",via="nats"} 1`,
		`lapse_reads_total{code="503",read="get",via="nats"} 1`,
		`lapse_reads_total{code="400",read="list",via="nats"} 1`, `lapse_reads_total{code="500",read="list",via="nats"} 0`,
		`lapse_read_duration_seconds_count{read="get"} 4`,
	}
	redistest.WaitFor(t, fmt.Sprintf("the metrics show %q", want), func() bool {
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		got = answer.Body.String()
		for _, line := range want {
			if !strings.Contains(got, line+"\n") {
				return false
			}
		}
		return true
	})
}
