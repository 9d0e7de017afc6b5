package processor

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/retention"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

// metrics are what an operator watches. Times are in seconds.
type metrics struct {
	shard.Metrics
	retention *retention.Metrics
	all       []prometheus.Collector
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "lapse", Name: name, Help: help})
	}
	m := &metrics{}
	emitted := counter("events_emitted_total", "Expiry events, warnings and rejections that were stored in the stream "+
		"of events.")
	applied := counter("messages_applied_total", "Writes, configurations and drops that took effect.")
	rejected := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lapse", Name: "messages_rejected_total",
		Help: "Messages of the log that took no effect, for which a rejection with this code was published.",
	}, []string{"code"})
	for _, code := range []int{wire.StatusBadRequest, wire.StatusNotFound, wire.StatusConflict,
		wire.StatusPreconditionFailed, wire.StatusTooLarge} {
		rejected.WithLabelValues(strconv.Itoa(code)) // so that the first one is an increase
	}
	expired := counter("documents_expired_total", "Documents that were reaped, or met by a write, after their deadline.")
	warned := counter("warnings_published_total", "Warnings of documents that will expire: each version once for each "+
		"of the seconds of warnBefore.")
	fenced := counter("steps_fenced_total", "Steps that were refused because the shard had moved on without this process.")
	rebuilds := counter("shards_damaged_total", "Shards that were found damaged and are rebuilt from the log.")
	lateness := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "lapse", Name: "event_lateness_seconds",
		Help: "From the instant at which a document was expired to its event being stored.",
		Buckets: []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1, 2, 5, 10, 30, 60,
			300},
	})
	commits := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "lapse", Name: "commit_duration_seconds",
		Help:    "Time of one commit to Redis.",
		Buckets: []float64{.0001, .00025, .0005, .001, .002, .005, .01, .02, .05, .1, .5, 1, 5},
	})
	m.retention = retention.NewMetrics()
	m.Metrics = shard.Metrics{
		Applied: applied, Rejected: rejected, Expired: expired, Warned: warned, Emitted: emitted,
		Fenced: fenced, Rebuilds: rebuilds,
		Lateness: lateness, Commits: commits,
	}
	m.all = []prometheus.Collector{applied, rejected, expired, warned, emitted, fenced, rebuilds, lateness, commits}
	m.all = append(m.all, m.retention.Collectors()...)
	return m
}

// register registers the metrics, and those that are read from the processor at each
// scrape.
func (m *metrics) register(r prometheus.Registerer, p *Processor) error {
	for _, c := range append(m.all, gauges{p}, p.opts.Health) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// gauges are how far the shard is, and how much the servers hold. They are 0 or absent
// while the processor does not run, so that a former owner does not report old values. None
// has the label shard: where there are several shards, the registry of Options gives it to all metrics.
type gauges struct{ p *Processor }

var (
	lagMessages = prometheus.NewDesc("lapse_shard_lag_messages", "Messages of the log behind what the shard has "+
		"applied.", nil, nil)
	lagSeconds = prometheus.NewDesc("lapse_shard_lag_seconds", "Age of the oldest message that was read and is "+
		"not applied.", nil, nil)
	backlog = prometheus.NewDesc("lapse_shard_reap_backlog_seconds", "For how long the document that is due "+
		"longest has been due.", nil, nil)
	pausedCollections = prometheus.NewDesc("lapse_collections_paused", "Collections that are paused: what expires in "+
		"them waits. Only the owner counts them.", nil, nil)
	indexesMaking = prometheus.NewDesc("lapse_indexes_making", "Property indexes that are being made. Only the "+
		"owner counts them.", nil, nil)
	stuck        = prometheus.NewDesc("lapse_shard_failing", "1 while the shard's steps fail.", nil, nil)
	messagesRead = prometheus.NewDesc("lapse_messages_read_total", "Messages of the log that were read since "+
		"this process took the shard over.", nil, nil)
	givesWay = prometheus.NewDesc("lapse_reaping_gives_way", "1 while many documents are reaped that a "+
		"configuration has made due, as far as reads and writes leave room.", nil, nil)
	clockLead = prometheus.NewDesc("lapse_clock_lead_seconds", "How far another clock is ahead of this "+
		"process's: nats as the leader of the log tells it, redis by TIME.", []string{"clock"}, nil)
	rebuilding = prometheus.NewDesc("lapse_shard_rebuilding", "1 while the shard is being rebuilt.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (g gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range append(append(sizeDescs, retention.Descs...), messagesRead, lagMessages, lagSeconds, backlog,
		pausedCollections, indexesMaking, stuck, rebuilding, givesWay, clockLead) {
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
	seconds := func(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e6 }
	session, runs := g.p.current(), g.p.running.Load()
	var nats, redis time.Duration
	if runs {
		nats, redis = g.p.guard.Leads()
		session.sizes.collect(c)
		if session.wired.Load() && session.keeper != nil { // nil in a region that follows another one
			session.keeper.Collect(c, now)
		}
	}
	c <- prometheus.MustNewConstMetric(clockLead, prometheus.GaugeValue, seconds(nats), "nats")
	c <- prometheus.MustNewConstMetric(clockLead, prometheus.GaugeValue, seconds(redis), "redis")
	c <- prometheus.MustNewConstMetric(messagesRead, prometheus.CounterValue, float64(session.queue.Backlog.ReadUpTo()))
	c <- prometheus.MustNewConstMetric(givesWay, prometheus.GaugeValue, truth(runs && session.pace.GivesWay()))
	gauge := func(d *prometheus.Desc, value float64) {
		if !runs {
			value = 0
		}
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	waiting, oldest := session.queue.Waiting()
	gauge(lagMessages, float64(uint64(waiting)+session.queue.Backlog.Pending()))
	gauge(lagSeconds, since(oldest))
	gauge(backlog, since(session.status.Due.Load()))
	gauge(pausedCollections, float64(session.status.Paused.Load()))
	gauge(indexesMaking, float64(session.status.Making.Load()))
	gauge(stuck, truth(session.status.Trouble.Load() != nil))
	gauge(rebuilding, truth(session.status.Rebuild.Load() > 0))
}
