package service

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// meters are the metrics of the requests. PING, INFO and STATS do not count.
type meters struct {
	requests *prometheus.CounterVec   // by verb and status
	duration *prometheus.HistogramVec // by verb
}

func newMeters() *meters {
	m := &meters{
		requests: ReadsTotal("nats"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "lapse", Name: "read_duration_seconds",
			Help:    "Time of one read, from the moment at which the process begins to answer it.",
			Buckets: []float64{.00025, .0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 2},
		}, []string{"read"}),
	}
	for _, e := range endpoints {
		m.duration.WithLabelValues(e.verb)
	}
	return m
}

// ReadsTotal makes the counter of the reads that come over nats or over http.
func ReadsTotal(via string) *prometheus.CounterVec {
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lapse", Name: "reads_total", ConstLabels: prometheus.Labels{"via": via},
		Help: "Reads that this process has answered, by verb and code: 200, or the code of the error.",
	}, []string{"read", "code"})
	for _, e := range endpoints { // so that the first one is an increase
		for _, code := range []int{wire.StatusOK, wire.StatusBadRequest, wire.StatusNotFound, wire.StatusInternal,
			wire.StatusUnavailable} {
			reads.WithLabelValues(e.verb, strconv.Itoa(code))
		}
	}
	return reads
}

// SlidesTotal makes the counter of the touches that a [Sliding] appends for reads over nats or over http.
func SlidesTotal(via string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "lapse", Name: "slides_total", ConstLabels: prometheus.Labels{"via": via},
		Help: "Touches that this process has appended for reads of documents in collections with slideOnRead.",
	})
}

func (m *meters) register(r prometheus.Registerer) error {
	if err := r.Register(m.requests); err != nil {
		return err
	}
	return r.Register(m.duration)
}

func (m *meters) observe(verb string, code int, took time.Duration) {
	m.requests.WithLabelValues(verb, strconv.Itoa(code)).Inc()
	m.duration.WithLabelValues(verb).Observe(took.Seconds())
}

// record records the answer to a request.
func (s *Service) record(e endpoint, req *nats.Msg, code int, began time.Time) {
	span := trace.Span{Kind: trace.Read, Parent: traceparent(req.Header), Subject: "read." + e.verb, Status: code,
		Began: began, Ended: time.Now()}
	if e.arguments != "" {
		span.Subject += "." + e.arguments
	}
	if args, err := s.arguments(req.Subject, e); err == nil && len(args) > 0 {
		span.Collection = args[0]
	}
	s.opts.Trace(span)
}

// traceparent is the one of a request, if that is valid. Clients write the name of the header in
// different cases.
func traceparent(h nats.Header) string {
	for name, values := range h {
		if strings.EqualFold(name, wire.HeaderTrace) && len(values) == 1 && wire.ValidTraceparent(values[0]) {
			return values[0]
		}
	}
	return ""
}
