package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ingest times writes until they can be read.
func (b *bench) ingest(ctx context.Context, round int) ([]figure, error) {
	var lapse, kv float64
	err := inTurn(round,
		func() (err error) { lapse, err = b.ingestLapse(ctx, round, 0, b.load(b.n, longTTL)); return err },
		func() (err error) { kv, err = b.ingestKV(ctx, b.load(b.n, longTTL)); return err },
	)
	return []figure{times(figure{
		What: "documents a second", Unit: "/s", Lapse: lapse, Against: "NATS KV put with TTL", Other: kv,
		Goal: goal{Must: 0.7, Aim: 1, Ratio: true},
	})}, err
}

// ingestLapse returns documents a second, from the first publish until the last is
// counted as live.
func (b *bench) ingestLapse(ctx context.Context, round, partitions int, ld load) (float64, error) {
	l, err := b.startLapse(ctx, partitions)
	if err != nil {
		return 0, err
	}
	defer l.stop()
	for _, collection := range []string{warm, orders} {
		if err := l.configure(ctx, collection, -1); err != nil {
			return 0, err
		}
	}
	w := ld.warm()
	if err := publishAll(l.nats.js, w.n, func(i int) *nats.Msg { return w.upsert(warm, i, w.ttl) }); err != nil {
		return 0, err
	}
	if err := l.stored(ctx, warm, w.n); err != nil {
		return 0, err
	}
	profiled, err := l.profile(ctx, "ingest", round)
	if err != nil {
		return 0, err
	}
	used := l.usage()
	began := time.Now()
	if err := publishAll(l.nats.js, ld.n, func(i int) *nats.Msg { return ld.upsert(orders, i, ld.ttl) }); err != nil {
		return 0, err
	}
	acknowledged := time.Since(began)
	if err := l.stored(ctx, orders, ld.n); err != nil {
		return 0, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("lapse ingests %d (all acknowledged after %.2f s)", ld.n, acknowledged.Seconds()))
	if err := profiled(); err != nil {
		return 0, err
	}
	return float64(ld.n) / took.Seconds(), l.verify(ctx, ld, 2*time.Duration(ld.ttl)*time.Second)
}

// ingestKV returns documents a second, from the first publish until the last is
// acknowledged, and with that readable.
func (b *bench) ingestKV(ctx context.Context, ld load) (float64, error) {
	s, err := b.startNATS(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	for _, name := range []string{warm, orders} {
		if _, err := s.bucket(ctx, name); err != nil {
			return 0, err
		}
	}
	w := ld.warm()
	if err := publishAll(s.js, w.n, func(i int) *nats.Msg { return w.put(warm, i, w.ttl) }); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := publishAll(s.js, ld.n, func(i int) *nats.Msg { return ld.put(orders, i, ld.ttl) }); err != nil {
		return 0, err
	}
	took := time.Since(began)
	kv, err := s.js.KeyValue(ctx, orders)
	if err != nil {
		return 0, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return 0, err
	}
	if status.Values() != uint64(ld.n) {
		return 0, fmt.Errorf("the bucket has %d of %d documents", status.Values(), ld.n)
	}
	for i := 0; i < ld.n; i += 1000 {
		e, err := kv.Get(ctx, ld.id(i))
		if err != nil || string(e.Value()) != string(ld.body(i)) {
			return 0, fmt.Errorf("the bucket has %s for %s (%w)", e.Value(), ld.id(i), err)
		}
	}
	return float64(ld.n) / took.Seconds(), nil
}

// bucket makes a key-value bucket in which keys can have a TTL.
func (s *natsServer) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	return s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: name, History: 1, LimitMarkerTTL: time.Hour, Storage: jetstream.FileStorage,
	})
}

// memory weighs documents in Redis.
func (b *bench) memory(ctx context.Context, round int) ([]figure, error) {
	var own, inherit, plain float64
	err := inTurn(round,
		func() (err error) { own, err = b.weighLapse(ctx, b.load(b.n, longTTL)); return err },
		func() (err error) { inherit, err = b.weighLapse(ctx, b.load(b.n, 0)); return err },
		func() (err error) { plain, err = b.weighPlain(ctx, b.load(b.n, longTTL)); return err },
	)
	goal := goal{Must: 1.2, Aim: 1, Ratio: true, AtMost: true}
	const against = "SET key value PX"
	return []figure{
		times(figure{What: "with a TTL of its own", Unit: "B", Lapse: own, Against: against, Other: plain, Goal: goal}),
		times(figure{What: "inheriting the default", Unit: "B", Lapse: inherit, Against: against, Other: plain, Goal: goal}),
	}, err
}

func (b *bench) weighLapse(ctx context.Context, ld load) (float64, error) {
	l, err := b.startLapse(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer l.stop()
	if err := l.configure(ctx, orders, longTTL); err != nil {
		return 0, err
	}
	before, err := l.redis.usedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := l.fill(ctx, orders, ld); err != nil {
		return 0, err
	}
	l.process.stop() // so that its buffers do not count
	after, err := l.redis.usedMemory(ctx)
	return (after - before) / float64(ld.n), err
}

func (b *bench) weighPlain(ctx context.Context, ld load) (float64, error) {
	s, err := b.startRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	before, err := s.usedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.set(ctx, ld); err != nil {
		return 0, err
	}
	after, err := s.usedMemory(ctx)
	return (after - before) / float64(ld.n), err
}

// fill writes documents to lapse, and waits until they are stored.
func (l *lapseServer) fill(ctx context.Context, collection string, ld load) error {
	if err := publishAll(l.nats.js, ld.n, func(i int) *nats.Msg { return ld.upsert(collection, i, ld.ttl) }); err != nil {
		return err
	}
	return l.stored(ctx, collection, ld.n)
}
