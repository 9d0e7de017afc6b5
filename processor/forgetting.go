package processor

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
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

// Retention is what the processor knows of snapshots, and of bytes that should be gone; nil until it runs
// and knows.
func (p *Processor) Retention() *wire.Retention {
	s := p.current()
	if !p.running.Load() || !s.wired.Load() {
		return nil
	}
	r := s.keeper.Report(time.Now())
	if r.Partitions == 0 {
		return nil
	}
	known := &wire.Retention{
		Partitions: r.Partitions, Snapshots: r.Snapshots, Offset: r.Offset, Documents: r.Documents, Bytes: r.Bytes,
		Oldest: make(map[string]float64), Within: p.opts.ForgetWithin.Seconds(),
	}
	if !r.Taken.IsZero() {
		known.Taken = wire.Time(r.Taken.UnixMilli())
	}
	for place, oldest := range r.Oldest {
		known.Oldest[place] = oldest.Round(time.Millisecond).Seconds()
	}
	return known
}

// takeOrders answers orders of snapshots until ctx is done.
func (s *session) takeOrders(ctx context.Context) {
	p := s.processor
	sub, err := p.nc.Subscribe(p.opts.Prefix.Snapshot(p.opts.Shard), func(m *nats.Msg) {
		var order wire.SnapshotOrder
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &order) != nil {
			return // nobody of lapse has sent it
		}
		if reply, err := json.Marshal(s.keeper.Ask(order.Since)); err == nil && m.Reply != "" {
			_ = m.Respond(reply)
		}
	})
	if err != nil {
		p.opts.Logger.Warn("orders of snapshots are not taken", slog.Any("error", err))
		return
	}
	<-ctx.Done()
	_ = sub.Unsubscribe()
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
