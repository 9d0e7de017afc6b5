package processor

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/retention"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// ObjectsInMemory are Objects of one process: for tests and simulations.
type ObjectsInMemory struct{ snapshot.Memory }

// objects is where the snapshots are.
func (p *Processor) objects(s *streams.Streams) snapshot.Objects {
	if p.opts.Objects != nil {
		return p.opts.Objects
	}
	return s.Snapshots
}

// records keeps the records of the snapshots in the bucket of checkpoints.
type records struct{ *streams.Streams }

// Update implements [snapshot.Records].
func (r records) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return r.Checkpoints.Update(ctx, key, value, revision)
}

// Forgetting is what the processor knows of snapshots and of the bytes that should be gone. It is zero
// until the processor runs.
type Forgetting struct{ retention.Report }

// Forgetting tells how far the forgetting is.
func (p *Processor) Forgetting() (f Forgetting) {
	if s := p.current(); p.running.Load() && s.wired.Load() {
		f.Report = s.keeper.Report(time.Now())
	}
	return f
}

// AskSnapshot asks for a snapshot of each partition (since is 0), or how far those are that were asked for
// before (since is that of the answer then). ok is false if the processor does not run.
func (p *Processor) AskSnapshot(since int64) (a retention.Asked, ok bool) {
	if s := p.current(); p.running.Load() && s.wired.Load() {
		return s.keeper.Ask(since), true
	}
	return a, false
}

var (
	oldestByte    = prometheus.NewDesc("lapse_oldest_byte_seconds", "For how long at most a place (log, snapshots, events, redis) has kept bytes of a document that has expired, or was deleted or overwritten. --forget-within is the promise.", []string{"place"}, nil)
	forgetWithin  = prometheus.NewDesc("lapse_forget_within_seconds", "The promise: --forget-within.", nil, nil)
	snapshots     = prometheus.NewDesc("lapse_snapshots", "Snapshots that count; two of each partition are wanted.", nil, nil)
	snapshotBytes = prometheus.NewDesc("lapse_snapshots_bytes", "Size of the snapshots that count.", nil, nil)
	snapshotAge   = prometheus.NewDesc("lapse_snapshot_age_seconds", "Age of the newest snapshot of the partition whose newest is oldest. Absent while a partition has none.", nil, nil)

	forgettingDescs = []*prometheus.Desc{oldestByte, forgetWithin, snapshots, snapshotBytes, snapshotAge}
)

func collectForgetting(c chan<- prometheus.Metric, s *session, now time.Time) {
	if !s.wired.Load() {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(forgetWithin, s.processor.opts.ForgetWithin.Seconds())
	r := s.keeper.Report(now)
	for place, oldest := range r.Oldest {
		gauge(oldestByte, oldest.Round(time.Millisecond).Seconds(), place)
	}
	if r.Partitions > 0 {
		gauge(snapshots, float64(r.Snapshots))
		gauge(snapshotBytes, float64(r.Bytes))
	}
	if !r.Taken.IsZero() {
		gauge(snapshotAge, max(0, now.Sub(r.Taken)).Round(time.Millisecond).Seconds())
	}
}
