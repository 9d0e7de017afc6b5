package console

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// TestFigures: rates are of the last minute, quantiles of the last five, shards are added up, and
// the greatest of the gauges counts.
func TestFigures(t *testing.T) {
	registry := prometheus.NewRegistry()
	var late []prometheus.Histogram
	var applied []prometheus.Counter
	gauges := map[string]*prometheus.GaugeVec{}
	gauge := func(name string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name}, labels)
		gauges[name] = g
		return g
	}
	for _, shard := range []string{"0", "1"} {
		r := prometheus.WrapRegistererWith(prometheus.Labels{"shard": shard}, registry)
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lapse_event_lateness_seconds",
			Buckets: []float64{0.001, 0.01, 1}})
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "lapse_messages_applied_total"})
		r.MustRegister(h, c)
		late, applied = append(late, h), append(applied, c)
	}
	registry.MustRegister(gauge("lapse_shard_reap_backlog_seconds", "shard"),
		gauge("lapse_shard_lag_messages", "shard"), gauge("lapse_shard_failing", "shard"),
		gauge("lapse_shard_owner", "shard"), gauge("lapse_members"), gauge("lapse_clock_lead_seconds", "clock", "of"),
		gauge("lapse_reaping_gives_way"))
	for i, p := range []string{"0", "1", "2"} {
		gauges["lapse_shard_reap_backlog_seconds"].WithLabelValues(p).Set(float64(i))
		gauges["lapse_shard_lag_messages"].WithLabelValues(p).Set(float64(10 * i))
		gauges["lapse_shard_failing"].WithLabelValues(p).Set(float64(min(i, 1)))
	}
	gauges["lapse_shard_owner"].WithLabelValues("1").Set(1)
	gauges["lapse_shard_owner"].WithLabelValues("0").Set(0)
	gauges["lapse_members"].WithLabelValues().Set(3)
	gauges["lapse_reaping_gives_way"].WithLabelValues().Set(1)
	gauges["lapse_clock_lead_seconds"].WithLabelValues("nats", "a").Set(0.2)
	gauges["lapse_clock_lead_seconds"].WithLabelValues("nats", "b").Set(-0.5)
	gauges["lapse_clock_lead_seconds"].WithLabelValues("redis", "a").Set(0.1)

	begin := time.Now()
	r := &recorder{metrics: registry}
	if got := compare(nil, r.sample(begin)); got.Over != 0 || got.P50 != nil {
		t.Errorf("at the beginning: %+v", got)
	}
	for range 1000 { // before the first sample: they do not count
		late[0].Observe(0.5)
		applied[0].Inc()
	}
	at := begin
	for range 62 { // 310 seconds
		r.record(at)
		at = at.Add(sampleEvery)
		late[0].Observe(0.0005)
		late[1].Observe(0.005)
		applied[1].Add(5)
	}
	if n, over := len(r.samples), at.Sub(r.samples[0].at); n != 61 || over != keepSamples+sampleEvery {
		t.Errorf("it keeps %d samples of %s", n, over)
	}
	got := compare(r.samples, r.sample(at))
	want := Figures{Over: time.Minute, LateOver: keepSamples + sampleEvery, Events: 0.4, Applied: 1, Gauges: Gauges{
		Overdue: 2, Lag: 20, Failing: 2, Owns: []string{"1"}, Members: 3, ClockNATS: -0.5, ClockRedis: 0.1, GivesWay: true,
	}}
	p50, p99 := got.P50, got.P99
	got.P50, got.P99 = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p50 == nil || *p50 != 0.001 || p99 == nil || *p99 < 0.009 || *p99 > 0.01 {
		t.Errorf("the quantiles are %v and %v", *p50, *p99)
	}
	for range 1000 {
		late[0].Observe(99) // beyond the last bucket
	}
	if got := compare(r.samples, r.sample(at)).P99; got == nil || *got != 1 {
		t.Errorf("p99 is %v", got)
	}
}
