package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	sampleEvery = 5 * time.Second
	// keepSamples is how far back the samples reach; quantiles are of the events since then.
	keepSamples = 5 * time.Minute
	// ratesOver is over how long rates are.
	ratesOver = time.Minute
)

// Figures are what an operator looks at first.
type Figures struct {
	Over     time.Duration // of the rates; 0 if nothing is known yet
	LateOver time.Duration // of the quantiles
	Events   float64       // expiry events a second
	Applied  float64       // writes, configurations and drops a second that took effect
	Rejected float64       // messages a second that were rejected
	// P50 and P99 are the lateness of events in seconds; nil if there were none.
	P50, P99 *float64
	Gauges
}

// Gauges are how things are now.
type Gauges struct {
	Overdue    float64  // seconds for which the document that is due longest has been due
	Lag        float64  // messages of the log behind what is applied, of the shard that is furthest behind
	Failing    int      // shards whose steps fail
	Rebuilding int      // shards
	Owns       []string // the shards of this process; one shard has the name 0
	Members    int      // processes that serve the prefix
	ClockNATS  float64  // seconds by which the clock of NATS leads this process's
	ClockRedis float64
	GivesWay   bool // what a configuration has made due is reaped as far as requests leave room
}

// sample is the metrics at an instant.
type sample struct {
	at                        time.Time
	events, applied, rejected float64
	live                      *float64 // documents; nil if this process does not count them
	late                      []bucket
	gauges                    Gauges
}

// bucket counts the events that were at most so late.
type bucket struct{ upTo, count float64 }

// recorder keeps samples. Several goroutines may use it.
type recorder struct {
	metrics     prometheus.Gatherer
	collections func(ctx context.Context, most int) (wire.CollectionsReply, error)

	mu      sync.Mutex
	samples []sample         // in order, at most keepSamples old
	points  []point          // in order, at most keepPoints old
	last    sample           // of the last point
	counts  map[string]int64 // live documents of collections
	counted time.Time        // when
}

// Run takes samples until ctx is done.
func (r *recorder) Run(ctx context.Context) {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { r.count(ctx) })
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		r.record(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *recorder) record(now time.Time) {
	s := r.sample(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remember(s)
	r.samples = append(r.samples, s)
	old := 0
	for old < len(r.samples)-1 && now.Sub(r.samples[old].at) > keepSamples {
		old++
	}
	r.samples = slices.Delete(r.samples, 0, old)
}

// Now returns the figures of this moment.
func (r *recorder) Now() Figures {
	now := r.sample(time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	return compare(r.samples, now)
}

// compare makes figures from the last sample and those before it.
func compare(before []sample, now sample) Figures {
	f := Figures{Gauges: now.gauges}
	if len(before) == 0 {
		return f
	}
	at := 0
	for at < len(before)-1 && now.at.Sub(before[at].at) > ratesOver {
		at++
	}
	from := before[at]
	if f.Over = now.at.Sub(from.at); f.Over > 0 {
		seconds := f.Over.Seconds()
		f.Events = (now.events - from.events) / seconds
		f.Applied = (now.applied - from.applied) / seconds
		f.Rejected = (now.rejected - from.rejected) / seconds
	}
	f.LateOver = now.at.Sub(before[0].at)
	late := difference(now.late, before[0].late)
	f.P50, f.P99 = quantile(late, 0.5), quantile(late, 0.99)
	return f
}

// difference is what a histogram has counted since another. A histogram of another shape, such
// as none, counts as empty.
func difference(now, before []bucket) []bucket {
	if len(before) != len(now) {
		return now
	}
	all := slices.Clone(now)
	for i := range all {
		all[i].count -= before[i].count
	}
	return all
}

// quantile estimates a quantile as Prometheus does: evenly spread inside of a bucket. It is nil
// if nothing was counted.
func quantile(h []bucket, q float64) *float64 {
	if len(h) == 0 || h[len(h)-1].count <= 0 {
		return nil
	}
	rank := q * h[len(h)-1].count
	i := slices.IndexFunc(h, func(b bucket) bool { return b.count >= rank })
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = h[i-1].upTo, h[i-1].count
	}
	value := low
	if i < len(h)-1 { // the last bucket has no end
		value += (h[i].upTo - low) * (rank - below) / (h[i].count - below)
	}
	return &value
}

// sample reads the metrics. What is missing counts as 0.
func (r *recorder) sample(at time.Time) sample {
	s := sample{at: at}
	families, _ := r.metrics.Gather() // with an error it has what could be read
	for _, family := range families {
		for _, m := range family.GetMetric() {
			s.add(family.GetName(), m)
		}
	}
	slices.Sort(s.gauges.Owns)
	return s
}

// add adds a metric. Those of several shards are added up, or the greatest counts.
func (s *sample) add(name string, m *dto.Metric) {
	g, value := &s.gauges, m.GetGauge().GetValue()
	switch name {
	case "lapse_event_lateness_seconds":
		s.addLateness(m.GetHistogram())
	case "lapse_messages_applied_total":
		s.applied += m.GetCounter().GetValue()
	case "lapse_documents":
		if label(m, "state") == "live" {
			live := value
			if s.live != nil {
				live += *s.live
			}
			s.live = &live
		}
	case "lapse_messages_rejected_total":
		s.rejected += m.GetCounter().GetValue()
	case "lapse_shard_reap_backlog_seconds":
		g.Overdue = max(g.Overdue, value)
	case "lapse_shard_lag_messages":
		g.Lag = max(g.Lag, value)
	case "lapse_shard_failing":
		g.Failing += int(value)
	case "lapse_shard_rebuilding":
		g.Rebuilding += int(value)
	case "lapse_members":
		g.Members = int(value)
	case "lapse_reaping_gives_way":
		g.GivesWay = g.GivesWay || value > 0
	case "lapse_shard_owner":
		if value > 0 {
			g.Owns = append(g.Owns, label(m, "shard"))
		}
	case "lapse_clock_lead_seconds":
		lead := &g.ClockNATS
		if label(m, "clock") == "redis" {
			lead = &g.ClockRedis
		}
		if max(value, -value) > max(*lead, -*lead) {
			*lead = value
		}
	}
}

func (s *sample) addLateness(h *dto.Histogram) {
	s.events += float64(h.GetSampleCount())
	for i, b := range h.GetBucket() {
		if i == len(s.late) {
			s.late = append(s.late, bucket{upTo: b.GetUpperBound()})
		}
		s.late[i].count += float64(b.GetCumulativeCount())
	}
	last := len(h.GetBucket())
	if last == len(s.late) {
		s.late = append(s.late, bucket{})
	}
	s.late[last].count += float64(h.GetSampleCount())
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
