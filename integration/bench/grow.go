package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
)

// grow times lapse against itself, as the work grows: more documents, more
// partitions, larger bodies.
func (b *bench) grow(ctx context.Context, round int) ([]figure, error) {
	if round > 0 {
		return nil, nil // it takes long, and is about shapes, not about percents
	}
	var figures []figure
	rate := func(what string, v float64, err error) error {
		figures = append(figures, figure{What: what, Unit: "/s", Lapse: v})
		return err
	}
	ingest := func(what string, partitions int, ld load) error {
		v, err := b.ingestLapse(ctx, round, partitions, ld)
		return rate("ingest, "+what, v, err)
	}
	due := func(what string, partitions, n int) error {
		x, err := b.expire(ctx, what, b.openLapse(partitions), n, b.together(ctx, round, n))
		return rate("due at once, "+what, x.perSecond, err)
	}
	for _, n := range []int{b.n / 10, b.n, b.n * 10} {
		what := number(float64(n)) + " documents"
		if err := ingest(what, 0, b.load(n, longTTL)); err != nil {
			return figures, err
		}
		if err := due(what, 0, n); err != nil {
			return figures, err
		}
		p99, err := b.lateBeside(ctx, n)
		figures = append(figures, figure{What: "lateness p99, beside " + what, Unit: "ms", Lapse: p99})
		if err != nil {
			return figures, err
		}
	}
	for _, partitions := range []int{1, sink.DefaultPartitions, 64} {
		what := fmt.Sprintf("%d partitions", partitions)
		if err := ingest(what, partitions, b.load(b.n, longTTL)); err != nil {
			return figures, err
		}
		if err := due(what, partitions, b.n); err != nil {
			return figures, err
		}
	}
	// As many as make the same bytes, beyond a kilobyte.
	for _, size := range []int{100, 1_000, 10_000, 100_000} {
		n := min(b.n, b.n*1000/size)
		if err := ingest(fmt.Sprintf("%d bodies of %s B", n, number(float64(size))), 0, newLoad(realKind, n, size, longTTL, b.seed)); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// lateBeside returns the p99 of the lateness at the usual rate beside documents that
// do not expire yet.
func (b *bench) lateBeside(ctx context.Context, beside int) (float64, error) {
	n := b.n / 3
	x, err := b.expire(ctx, fmt.Sprintf("lapse beside %d", beside), b.openLapse(0), n, func(s *side, ld load) error {
		standing := b.load(beside, longTTL)
		if err := s.l.configure(ctx, warm, -1); err != nil {
			return err
		}
		if err := publishAll(s.l.nats.js, beside, func(i int) *nats.Msg { return standing.upsert(warm, i, longTTL) }); err != nil {
			return err
		}
		if err := s.l.stored(ctx, warm, beside); err != nil {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		return pace(ctx, n, b.rate, func(from, to int) error { return s.write(ld, from, to, latenessTTL) })
	})
	return ms(x.p99), err
}
