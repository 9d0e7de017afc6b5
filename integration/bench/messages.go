package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/sides"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/wire"
)

// messages times messages that are delivered at their time, and weighs those that wait for it.
func (b *bench) messages(ctx context.Context, round int) ([]table.Figure, error) {
	n := b.n / 3
	open := map[string]sides.Opener{
		"lapse": b.openEvents(0, ".due.>", receiveDue, upsertMessage), "beanstalkd": sides.Beanstalkd(b.rig), "NATS schedules": sides.Schedules(b.rig),
	}
	got, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
		return b.expire(ctx, name, open, n, b.paced(ctx, round, n))
	}, open)
	if err != nil {
		return nil, err
	}
	weights := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(open)) {
		if weights[name], err = b.weigh(ctx, open[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	var figures []table.Figure
	for _, other := range []string{"beanstalkd", "NATS schedules"} {
		beside := func(what, unit string, of func(name string) float64) {
			figures = append(figures, table.LowerBetter(table.Figure{What: what, Unit: unit, Lapse: of("lapse"), Against: other, Other: of(other)}))
		}
		beside("late, p50", "ms", func(name string) float64 { return ms(got[name].P50) })
		beside("late, p99", "ms", func(name string) float64 { return ms(got[name].P99) })
		beside(fmt.Sprintf("memory of one of %d that wait", b.n), "B", func(name string) float64 { return weights[name] })
	}
	return figures, nil
}

// weigh returns the memory that all processes of a side need more for each message that waits.
func (b *bench) weigh(ctx context.Context, open sides.Opener) (float64, error) {
	r := load.NewReceipts(b.n)
	r.Warm = load.NewReceipts(1)
	s, err := open(ctx, r)
	if err != nil {
		return 0, err
	}
	defer func() { s.Done() }()
	before := s.Memory()
	ld := b.load(b.n, load.LongTTL)
	if err := s.Write(ld, 0, ld.N, load.LongTTL); err != nil {
		return 0, err
	}
	if err := s.Flush(); err != nil {
		return 0, err
	}
	if s.Lapse != nil {
		err = s.Lapse.Stored(ctx, rig.Orders, ld.N)
	}
	return float64(s.Memory()-before) / float64(ld.N), err
}

// upsertMessage returns the message that writes a document whose expiry is delivered to a target.
func upsertMessage(ld load.Load, i, ttl int) *nats.Msg {
	m := ld.Upsert(rig.Orders, i, ttl)
	m.Header = nats.Header{wire.HeaderTarget: {"mail.send"}}
	return m
}

// receiveDue receives a message at its time, and checks that it has its document.
func receiveDue(m jetstream.Msg, r *load.Receipts, ld load.Load) {
	at := time.Now()
	i, warmed, err := load.Index(m.Headers().Get("ce-subject"))
	when, wrong := time.Parse(time.RFC3339, m.Headers().Get("ce-time"))
	switch {
	case err != nil:
		r.Fail(err)
	case wrong != nil:
		r.Fail(wrong)
	case warmed:
		r.Warm.Got(i, when, at)
	case !ld.In(string(m.Data()), i):
		r.Fail(fmt.Errorf("message without its document: %s", m.Data()))
	default:
		r.Got(i, when, at)
	}
}
