package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/sides"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// grow times lapse alone as the work grows: more documents, larger bodies.
func (b *bench) grow(ctx context.Context, round int) ([]table.Figure, error) {
	if round > 0 {
		return nil, nil // it takes long, and one round shows how the cost grows
	}
	var figures []table.Figure
	rate := func(what string, v float64, err error) error {
		figures = append(figures, table.Figure{What: what, Unit: "/s", Lapse: v})
		return err
	}
	ingest := func(what string, ld load.Load) error {
		v, err := b.ingestLapse(ctx, round, 0, ld, load.PublishBatch)
		return rate("ingest, "+what, v, err)
	}
	due := func(what string, n int) error {
		x, err := b.expire(ctx, what, b.openLapse(0), n, b.together(ctx, round, n))
		return rate("due at once, "+what, x.PerSecond, err)
	}
	for _, n := range []int{b.n / 10, b.n, b.n * 10} {
		what := table.Number(float64(n)) + " documents"
		if err := ingest(what, b.load(n, load.LongTTL)); err != nil {
			return figures, err
		}
		if err := due(what, n); err != nil {
			return figures, err
		}
		p99, err := b.lateBeside(ctx, n)
		figures = append(figures, table.Figure{What: "lateness p99, beside " + what, Unit: "ms", Lapse: p99})
		if err != nil {
			return figures, err
		}
	}
	// From 1 kB on the number of bytes is the same.
	for _, size := range []int{100, 1_000, 10_000, 100_000} {
		n := min(b.n, b.n*1000/size)
		if err := ingest(fmt.Sprintf("%d bodies of %s B", n, table.Number(float64(size))), load.New(n, size, load.LongTTL, seed)); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

// lateBeside returns the p99 of the lateness beside documents that do not expire yet.
func (b *bench) lateBeside(ctx context.Context, beside int) (float64, error) {
	n := b.n / 3
	x, err := b.expire(ctx, fmt.Sprintf("lapse beside %d", beside), b.openLapse(0), n, func(s *sides.Side, ld load.Load) error {
		if err := b.stand(ctx, s, beside); err != nil {
			return err
		}
		return load.Pace(ctx, n, b.rate, func(from, to int) error { return s.Write(ld, from, to, latenessTTL) })
	})
	return ms(x.P99), err
}

// stand writes documents to lapse that do not expire, and waits until it is idle again.
func (b *bench) stand(ctx context.Context, s *sides.Side, n int) error {
	if err := s.Lapse.Configure(ctx, rig.Warm, -1); err != nil {
		return err
	}
	if err := s.Lapse.Fill(ctx, rig.Warm, b.load(n, load.LongTTL)); err != nil {
		return err
	}
	return load.Sleep(ctx, time.Second)
}
