package retention

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count what the keeper of a processor does.
type Metrics struct {
	taken, failures, bytes prometheus.Counter
	seconds                prometheus.Histogram
}

// NewMetrics makes the metrics, all zero.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lapse", Name: name, Help: help})
	}
	return &Metrics{
		taken:    counter("snapshots_taken_total", "Snapshots that were stored and read back."),
		failures: counter("snapshots_failed_total", "Snapshots that were given up; they are tried again."),
		bytes:    counter("snapshot_bytes_total", "Size of the snapshots that were stored."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "lapse", Name: "snapshot_duration_seconds",
			Help:    "Time from the order of a snapshot to its being stored and read back.",
			Buckets: []float64{.01, .1, 1, 10, 60, 600, 3600},
		}),
	}
}

// Collectors are the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.taken, m.failures, m.bytes, m.seconds}
}

var (
	oldestByte    = prometheus.NewDesc("lapse_oldest_byte_seconds", "For how long at most a place (log, snapshots, events, redis) has kept bytes of a document that expired, or was deleted or overwritten. See --forget-within.", []string{"place"}, nil)
	forgetWithin  = prometheus.NewDesc("lapse_forget_within_seconds", "The promise: --forget-within.", nil, nil)
	snapshots     = prometheus.NewDesc("lapse_snapshots", "Snapshots that count; two of each shard are wanted.", nil, nil)
	snapshotBytes = prometheus.NewDesc("lapse_snapshots_bytes", "Size of the snapshots that count.", nil, nil)
	snapshotAge   = prometheus.NewDesc("lapse_snapshot_age_seconds", "Age of the newest snapshot. Absent while there is none.", nil, nil)

	// Descs are what Collect sends.
	Descs = []*prometheus.Desc{oldestByte, forgetWithin, snapshots, snapshotBytes, snapshotAge}
)

// Collect sends what the keeper knows now.
func (k *Keeper) Collect(c chan<- prometheus.Metric, now time.Time) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(forgetWithin, k.within.Seconds())
	r := k.Report(now)
	for place, oldest := range r.Oldest {
		gauge(oldestByte, oldest.Round(time.Millisecond).Seconds(), place)
	}
	if r.Oldest != nil {
		gauge(snapshots, float64(r.Snapshots))
		gauge(snapshotBytes, float64(r.Bytes))
	}
	if !r.Taken.IsZero() {
		gauge(snapshotAge, max(0, now.Sub(r.Taken)).Round(time.Millisecond).Seconds())
	}
}
