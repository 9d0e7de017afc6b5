package processor

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what an operator watches. Times are in seconds.
type metrics struct {
	applied  prometheus.Counter
	rejected prometheus.Counter
	expired  prometheus.Counter
	emitted  prometheus.Counter
	fenced   prometheus.Counter
	rebuilds prometheus.Counter
	lateness prometheus.Histogram
	commits  prometheus.Histogram
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lapse", Name: name, Help: help})
	}
	return &metrics{
		applied:  counter("messages_applied_total", "Writes, configurations and drops that took effect."),
		rejected: counter("messages_rejected_total", "Messages of the log that took no effect, for which a rejection was published."),
		expired:  counter("documents_expired_total", "Documents that were reaped, or met by a write, after their deadline."),
		emitted:  counter("events_emitted_total", "Expiry events and rejections that were stored in the stream of events."),
		fenced:   counter("steps_fenced_total", "Steps that were refused because the partition had moved on without this process."),
		rebuilds: counter("partitions_damaged_total", "Partitions that were found damaged and are rebuilt from the log."),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "lapse", Name: "event_lateness_seconds",
			Help:    "From the instant at which a document was expired to its event being stored.",
			Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1, 5, 30, 300},
		}),
		commits: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "lapse", Name: "commit_duration_seconds",
			Help:    "Time of one commit of a partition to Redis.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
		}),
	}
}

// register registers the metrics, and those that are read from the processor when
// somebody asks.
func (m *metrics) register(r prometheus.Registerer, p *Processor) error {
	for _, c := range []prometheus.Collector{m.applied, m.rejected, m.expired, m.emitted, m.fenced, m.rebuilds, m.lateness, m.commits, gauges{p}} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// gauges tells how far each partition is.
type gauges struct{ p *Processor }

var (
	lagMessages = prometheus.NewDesc("lapse_partition_lag_messages", "Messages of the log behind the partition's offset; those for other partitions count too while they are not read.", []string{"partition"}, nil)
	lagSeconds  = prometheus.NewDesc("lapse_partition_lag_seconds", "Age of the oldest message that was read for the partition and is not applied.", []string{"partition"}, nil)
	backlog     = prometheus.NewDesc("lapse_partition_reap_backlog_seconds", "For how long the document that is due longest has been due.", []string{"partition"}, nil)
	stuck       = prometheus.NewDesc("lapse_partition_failing", "1 while the partition's steps fail.", []string{"partition"}, nil)
	givesWay    = prometheus.NewDesc("lapse_reaping_gives_way", "1 while documents are read, so that much of what is due is reaped more slowly.", nil, nil)
	rebuilding  = prometheus.NewDesc("lapse_partition_rebuilding", "1 while the partition is being rebuilt.", []string{"partition"}, nil)
)

// Describe implements [prometheus.Collector].
func (g gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagMessages, lagSeconds, backlog, stuck, rebuilding, givesWay} {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (g gauges) Collect(c chan<- prometheus.Metric) {
	now := time.Now()
	since := func(ms int64) float64 {
		if ms <= 0 {
			return 0
		}
		return max(0, now.Sub(time.UnixMilli(ms)).Seconds())
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	c <- prometheus.MustNewConstMetric(givesWay, prometheus.GaugeValue, truth(g.p.turns.giveWay.Load()))
	for _, p := range g.p.partitions {
		id := strconv.Itoa(p.id)
		n, oldest := p.inbox.length()
		behind := float64(n)
		if reader := g.p.consumer.Load(); n == 0 && reader != nil {
			behind = float64(reader.pending.Load())
		}
		c <- prometheus.MustNewConstMetric(lagMessages, prometheus.GaugeValue, behind, id)
		c <- prometheus.MustNewConstMetric(lagSeconds, prometheus.GaugeValue, since(oldest), id)
		c <- prometheus.MustNewConstMetric(backlog, prometheus.GaugeValue, since(p.due.Load()), id)
		c <- prometheus.MustNewConstMetric(stuck, prometheus.GaugeValue, truth(p.trouble.Load() != nil), id)
		c <- prometheus.MustNewConstMetric(rebuilding, prometheus.GaugeValue, truth(p.lacking.Load() > 0), id)
	}
}
