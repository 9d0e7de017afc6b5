package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// byHand compares ingest with what a person would write by hand for it, without the guarantees of lapse.
func (b *bench) byHand(ctx context.Context, round int) ([]table.Figure, error) {
	var figures []table.Figure
	ld := b.load(b.n, load.LongTTL)
	for i, way := range []struct {
		what    string
		publish publisher
	}{{"each acknowledged by itself", load.PublishAll}, {"in a fast batch", load.PublishBatch}} {
		var lapse, hand float64
		err := inTurn(round+i,
			func() (err error) { lapse, err = b.ingestLapse(ctx, round, 0, ld, way.publish); return err },
			func() (err error) { hand, err = b.ingestByHand(ctx, ld, way.publish); return err },
		)
		if err != nil {
			return nil, err
		}
		figures = append(figures, table.HigherBetter(table.Figure{
			What: way.what, Unit: "/s", Lapse: lapse, Against: "by hand", Other: hand, Goal: table.Goal{Must: 1, Ratio: true},
		}))
	}
	return figures, nil
}

// ingestByHand returns documents a second, from the first publication until all are in Redis.
func (b *bench) ingestByHand(ctx context.Context, ld load.Load, publish publisher) (float64, error) {
	h, err := b.rig.StartHand(ctx)
	if err != nil {
		return 0, err
	}
	defer h.Stop()
	w := ld.Warm()
	if err := load.PublishAll(h.NATS.JS, w.N, func(i int) *nats.Msg { return rig.HandMessage(w, rig.Warm, i) }); err != nil {
		return 0, err
	}
	if err := h.Stored(ctx, rig.Warm, w.N); err != nil {
		return 0, err
	}
	used := h.Usage()
	began := time.Now()
	if err := publish(h.NATS.JS, ld.N, func(i int) *nats.Msg { return rig.HandMessage(ld, rig.Orders, i) }); err != nil {
		return 0, err
	}
	acknowledged := time.Since(began)
	if err := h.Stored(ctx, rig.Orders, ld.N); err != nil {
		return 0, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("by hand: %d documents ingested (acknowledged after %.2f s)", ld.N, acknowledged.Seconds()))
	return float64(ld.N) / took.Seconds(), h.Verify(ctx, ld)
}
