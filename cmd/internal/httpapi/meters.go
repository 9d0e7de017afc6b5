package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/sink/service"
)

// meters are the metrics of the API. Their labels have few values, whatever clients send.
type meters struct {
	requests *prometheus.CounterVec   // by route, method and status
	reads    *prometheus.CounterVec   // by verb and status
	duration *prometheus.HistogramVec // by route and method
	under    *prometheus.GaugeVec     // by kind
	ended    *prometheus.CounterVec   // by reason
	lines    *prometheus.CounterVec   // by status
}

// newMeters makes the meters, and registers them if there is somewhere to.
func newMeters(r prometheus.Registerer) *meters {
	add := promauto.With(r)
	m := &meters{
		requests: add.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lapse", Name: "http_requests_total",
			Help: "Requests to the HTTP API that this process has answered, by route, method and status; " +
				"an event stream counts when it ends.",
		}, []string{"route", "method", "code"}),
		reads: service.ReadsTotal("http"),
		duration: add.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "lapse", Name: "http_request_duration_seconds",
			Help:    "Time of one request to the HTTP API; without event streams and imports.",
			Buckets: []float64{.00025, .0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
		}, []string{"route", "method"}),
		under: add.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lapse", Name: "http_streams",
			Help: "Event streams and imports over HTTP that are under way.",
		}, []string{"kind"}),
		ended: add.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lapse", Name: "http_streams_ended_total",
			Help: "Event streams over HTTP that have ended, by reason: " +
				"the client left, was too slow, the stream of events failed, or the process stopped.",
		}, []string{"reason"}),
		lines: add.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lapse", Name: "http_import_lines_total",
			Help: "Lines of imports over HTTP, by the status of their outcome.",
		}, []string{"code"}),
	}
	for _, reason := range live.Reasons { // so that the first one is an increase
		m.ended.WithLabelValues(string(reason))
	}
	for _, code := range []string{"200", "201", "400", "404", "409", "412", "413", "503"} {
		m.lines.WithLabelValues(code)
	}
	m.under.WithLabelValues("events")
	m.under.WithLabelValues("imports")
	return m
}

// verbs are what the metrics call the reads of a path, as over NATS.
var verbs = map[string]string{
	"/v1/collections": "collections", collectionPath: "config", collectionPath + "/count": "count",
	collectionPath + "/forecast": "forecast", documentsPath: "list", queryPath: "query",
	documentPath: "get",
}

// of observes the requests of a route.
func (m *meters) of(r route) func(status int, took time.Duration) {
	labels := prometheus.Labels{"route": r.path, "method": r.method}
	count := counters(m.requests.MustCurryWith(labels))
	if r.kind == follows || r.kind == imports {
		return func(status int, _ time.Duration) { count(status) }
	}
	duration := m.duration.With(labels)
	if r.kind != reads {
		return func(status int, took time.Duration) {
			count(status)
			duration.Observe(took.Seconds())
		}
	}
	read := counters(m.reads.MustCurryWith(prometheus.Labels{"read": verbs[r.path]}))
	return func(status int, took time.Duration) {
		count(status)
		if status == http.StatusNotModified { // the client has what the read has found
			status = http.StatusOK
		}
		read(status)
		duration.Observe(took.Seconds())
	}
}

// counters counts by status. A status of 200 is there from the beginning, and quick.
func counters(vec *prometheus.CounterVec) func(status int) {
	ok := vec.WithLabelValues(statusText(http.StatusOK))
	return func(status int) {
		if status == http.StatusOK {
			ok.Inc()
			return
		}
		vec.WithLabelValues(statusText(status)).Inc()
	}
}

func statusText(status int) string { return strconv.Itoa(status) }
