package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// publisher publishes n messages, and returns once all are stored.
type publisher func(js jetstream.JetStream, n int, message func(i int) *nats.Msg) error

// ingest times writes until all can be read.
func (b *bench) ingest(ctx context.Context, round int) ([]table.Figure, error) {
	var batch, single, kv float64
	err := inTurn(round,
		func() (err error) {
			batch, err = b.ingestLapse(ctx, round, 0, b.load(b.n, load.LongTTL), load.PublishBatch)
			return err
		},
		func() (err error) { kv, err = b.ingestKV(ctx, b.load(b.n, load.LongTTL)); return err },
		func() (err error) {
			single, err = b.ingestLapse(ctx, round, 0, b.load(b.n, load.LongTTL), load.PublishAll)
			return err
		},
	)
	const against = "NATS KV put with TTL"
	goal := table.Goal{Must: 0.7, Aim: 1, Ratio: true}
	return []table.Figure{
		table.HigherBetter(table.Figure{
			What: "documents a second, in a fast batch", Unit: "/s", Lapse: batch, Against: against, Other: kv, Goal: goal,
		}),
		table.HigherBetter(table.Figure{
			What: "each acknowledged by itself", Unit: "/s", Lapse: single, Against: against, Other: kv, Goal: goal,
		}),
	}, err
}

// ingestLapse returns documents a second, from the first publication until Count has the
// last.
func (b *bench) ingestLapse(ctx context.Context, round int, shards int, ld load.Load, publish publisher) (float64, error) {
	l, err := b.rig.StartLapse(ctx, shards)
	if err != nil {
		return 0, err
	}
	defer l.Stop()
	for _, collection := range []string{rig.Warm, rig.Orders} {
		if err := l.Configure(ctx, collection, -1); err != nil {
			return 0, err
		}
	}
	return b.ingestInto(ctx, round, l, ld, publish)
}

// ingestInto is ingestLapse with a lapse whose collections are configured.
func (b *bench) ingestInto(ctx context.Context, round int, l *rig.Lapse, ld load.Load, publish publisher) (float64, error) {
	w := ld.Warm()
	if err := load.PublishAll(l.NATS.JS, w.N, func(i int) *nats.Msg { return w.Upsert(rig.Warm, i, w.TTL) }); err != nil {
		return 0, err
	}
	if err := l.Stored(ctx, rig.Warm, w.N); err != nil {
		return 0, err
	}
	profiled, err := l.Profile(ctx, "ingest", round)
	if err != nil {
		return 0, err
	}
	used := l.Usage()
	began := time.Now()
	if err := publish(l.NATS.JS, ld.N, func(i int) *nats.Msg { return ld.Upsert(rig.Orders, i, ld.TTL) }); err != nil {
		return 0, err
	}
	acknowledged := time.Since(began)
	if err := l.Stored(ctx, rig.Orders, ld.N); err != nil {
		return 0, err
	}
	took := time.Since(began)
	b.cpu = used(fmt.Sprintf("lapse: %d documents ingested (acknowledged after %.2f s)", ld.N, acknowledged.Seconds()))
	if err := profiled(); err != nil {
		return 0, err
	}
	return float64(ld.N) / took.Seconds(), l.Verify(ctx, ld, 2*time.Duration(ld.TTL)*time.Second)
}

// ingestKV returns documents a second, from the first publication until the last is
// acknowledged and so readable.
func (b *bench) ingestKV(ctx context.Context, ld load.Load) (float64, error) {
	s, err := b.rig.StartNATS(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	for _, name := range []string{rig.Warm, rig.Orders} {
		if _, err := s.Bucket(ctx, name); err != nil {
			return 0, err
		}
	}
	w := ld.Warm()
	if err := load.PublishAll(s.JS, w.N, func(i int) *nats.Msg { return w.Put(rig.Warm, i, w.TTL) }); err != nil {
		return 0, err
	}
	used := b.rig.Usage(s.Process)
	began := time.Now()
	if err := load.PublishAll(s.JS, ld.N, func(i int) *nats.Msg { return ld.Put(rig.Orders, i, ld.TTL) }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("NATS KV: %d documents put", ld.N))
	kv, err := s.JS.KeyValue(ctx, rig.Orders)
	if err != nil {
		return 0, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return 0, err
	}
	if status.Values() != uint64(ld.N) {
		return 0, fmt.Errorf("the bucket holds %d of %d documents", status.Values(), ld.N)
	}
	for i := 0; i < ld.N; i += 1000 {
		e, err := kv.Get(ctx, ld.ID(i))
		if err != nil || string(e.Value()) != string(ld.Body(i)) {
			return 0, fmt.Errorf("the bucket holds %s for %s (%w)", e.Value(), ld.ID(i), err)
		}
	}
	return float64(ld.N) / took.Seconds(), nil
}

// memory measures the memory of documents in Redis.
func (b *bench) memory(ctx context.Context, round int) ([]table.Figure, error) {
	var lapse, plain float64
	err := inTurn(round,
		func() (err error) { lapse, err = b.memoryOfLapse(ctx, b.load(b.n, load.LongTTL)); return err },
		func() (err error) { plain, err = b.memoryOfRedis(ctx, b.load(b.n, load.LongTTL)); return err },
	)
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "with a TTL of its own", Unit: "B", Lapse: lapse, Against: "SET key value PX", Other: plain,
		Goal: table.Goal{Must: 1.2, Aim: 1, Ratio: true, AtMost: true},
	})}, err
}

func (b *bench) memoryOfLapse(ctx context.Context, ld load.Load) (float64, error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer l.Stop()
	if err := l.Configure(ctx, rig.Orders, load.LongTTL); err != nil {
		return 0, err
	}
	before, err := l.Redis.UsedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := l.Fill(ctx, rig.Orders, ld); err != nil {
		return 0, err
	}
	l.Process.Stop() // so that the buffers of its connections do not count
	after, err := l.Redis.UsedMemory(ctx)
	return (after - before) / float64(ld.N), err
}

func (b *bench) memoryOfRedis(ctx context.Context, ld load.Load) (float64, error) {
	s, err := b.rig.StartRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	before, err := s.UsedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.Set(ctx, ld); err != nil {
		return 0, err
	}
	after, err := s.UsedMemory(ctx)
	return (after - before) / float64(ld.N), err
}
