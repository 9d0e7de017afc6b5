package forward

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/client"
)

type metrics struct {
	attempts  *prometheus.CounterVec
	seconds   prometheus.Histogram
	delivered prometheus.Counter
	dead      prometheus.Counter
	held      prometheus.Gauge
	behind    *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		attempts:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lapse_forward_attempts_total", Help: "Requests to the receiver, by the status of its answer, or unreachable."}, []string{"result"}),
		seconds:   prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapse_forward_attempt_seconds", Help: "How long requests took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
		delivered: prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_forward_delivered_total", Help: "Messages that the receiver has taken."}),
		dead:      prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_forward_dead_total", Help: "Messages that were given up and are dead letters."}),
		held:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "lapse_forward_held", Help: "Messages that this process tries to deliver."}),
		behind:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lapse_forward_behind", Help: "Messages that a consumer had not delivered at its last delivery here."}, []string{"consumer"}),
	}
	if registry != nil {
		registry.MustRegister(m.attempts, m.seconds, m.delivered, m.dead, m.held, m.behind)
	}
	return m
}

// begins counts a message that has come.
func (m *metrics) begins(msg *client.Ordered) {
	m.held.Inc()
	m.behind.WithLabelValues(strconv.Itoa(msg.Stripe)).Set(float64(msg.Behind))
}
