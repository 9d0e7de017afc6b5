package retention

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink/wire"
)

// The places that keep bytes of documents.
const (
	inLog       = "log"
	inSnapshots = "snapshots"
	inEvents    = "events"
	inRedis     = "redis"
)

// unknownAfter is how long the keeper may fail before it knows anything.
const unknownAfter = time.Minute

// cleanSince are the instants before which nothing is left, by place.
func (k *Keeper) cleanSince(info *jetstream.StreamInfo) map[string]int64 {
	created := info.Created.UnixMilli()
	clean := map[string]int64{inLog: created, inSnapshots: created}
	if begun := begunBefore(k.generations); begun > 0 {
		clean[inLog] = k.kept.Log.upTo(info.State.FirstSeq, created)
		clean[inSnapshots] = k.kept.Objects.behind(begun, k.oldest, created)
	}
	if k.Names.Shard == 0 && !k.denied {
		clean[inRedis] = max(k.kept.Redis, created)
	}
	for place, since := range clean {
		clean[place] = max(since, k.kept.Rested[place])
	}
	return clean
}

// clean reports whether nothing is left that should be gone, but for events.
func (k *Keeper) clean(info *jetstream.StreamInfo) bool {
	for place, since := range k.cleanSince(info) {
		if since <= k.stirredIn(place) {
			return false
		}
	}
	return true
}

// Known is what the keeper knows now; nil before it knows anything.
func (k *Keeper) Known(now time.Time) *wire.Retention {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known(now)
}

// known is Known. The caller holds mu.
func (k *Keeper) known(now time.Time) *wire.Retention {
	if k.seen == nil {
		return nil
	}
	r := &wire.Retention{
		Snapshots: len(k.generations), Within: k.within.Seconds(),
		Oldest: make(map[string]float64), CleanSince: make(map[string]wire.Time),
	}
	since := func(at int64) float64 {
		return now.Sub(time.UnixMilli(at)).Round(time.Millisecond).Seconds()
	}
	for place, at := range k.cleanSince(k.seen) {
		r.Oldest[place], r.CleanSince[place] = 0, wire.Time(k.goneBefore(place, at))
		if at <= k.stirredIn(place) { // else nothing has died since
			r.Oldest[place] = max(0, since(at))
		}
	}
	if k.Names.Shard == 0 && k.eventsAge > 0 {
		at := k.eventsSince(now)
		r.Oldest[inEvents], r.CleanSince[inEvents] = since(at), wire.Time(at)
	}
	for i, g := range k.generations {
		if r.Bytes += g.Bytes; i == 0 {
			r.Documents, r.Taken, r.Offset = g.Documents, wire.Time(g.Taken), g.Offset
		}
	}
	return r
}

// eventsSince is the instant before which no event is left.
func (k *Keeper) eventsSince(now time.Time) int64 {
	return k.kept.Events.before(now.Add(-k.eventsAge).UnixMilli(), k.seen.Created.UnixMilli())
}

// Problem is why the promise is broken; nil if it is not. A promise that was made only now is not broken
// by what is older.
func (k *Keeper) Problem(now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil { // it has never succeeded
		if k.failure == nil || now.Sub(k.failing) < min(k.within, unknownAfter) {
			return nil
		}
		return fmt.Errorf("lapse does not know what is kept of documents that are gone, and removes nothing: %w", k.failure)
	}
	r := k.known(now)
	var all []error
	for _, place := range []string{inLog, inSnapshots, inEvents, inRedis} {
		oldest := time.Duration(r.Oldest[place] * float64(time.Second))
		if oldest > k.within && now.Sub(time.UnixMilli(k.kept.Since)) > k.within {
			all = append(all, fmt.Errorf("%s may have bytes of documents that are gone for %s, and --forget-within promises %s",
				places[place], oldest.Round(time.Second), k.within))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", errors.Join(all...), cmp.Or(k.failure, errBehind))
}

// errBehind is the reason of a broken promise if no attempt has failed.
var errBehind = errors.New("snapshots, or the rewriting of files, take too long, or --log-max-bytes leaves the log " +
	"no room (64 MiB) to end its files")

// places is how a message names the places.
var places = map[string]string{inLog: "the log", inSnapshots: "the snapshots", inEvents: "the events",
	inRedis: "Redis's files"}

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
	oldestByte = prometheus.NewDesc("lapse_oldest_byte_seconds", "For how long at most a place (log, snapshots, "+
		"events, redis) has kept bytes of a document that expired, or was deleted or overwritten. See --forget-within.",
		[]string{"place"}, nil)
	forgetWithin  = prometheus.NewDesc("lapse_forget_within_seconds", "The promise: --forget-within.", nil, nil)
	snapshots     = prometheus.NewDesc("lapse_snapshots", "Snapshots that count; two of each shard are wanted.", nil, nil)
	snapshotBytes = prometheus.NewDesc("lapse_snapshots_bytes", "Size of the snapshots that count.", nil, nil)
	snapshotAge   = prometheus.NewDesc("lapse_snapshot_age_seconds", "Age of the newest snapshot. Absent while there is "+
		"none.", nil, nil)

	// Descs are what Collect sends.
	Descs = []*prometheus.Desc{oldestByte, forgetWithin, snapshots, snapshotBytes, snapshotAge}
)

// Collect sends what the keeper knows now.
func (k *Keeper) Collect(c chan<- prometheus.Metric, now time.Time) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(forgetWithin, k.within.Seconds())
	r := k.Known(now)
	if r == nil {
		return
	}
	for place, oldest := range r.Oldest {
		gauge(oldestByte, oldest, place)
	}
	gauge(snapshots, float64(r.Snapshots))
	gauge(snapshotBytes, float64(r.Bytes))
	if r.Taken != 0 {
		gauge(snapshotAge, max(0, now.Sub(time.UnixMilli(int64(r.Taken)))).Round(time.Millisecond).Seconds())
	}
}
