package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/wire"
)

// costTime is how long documents are written in a run of the row cost.
const costTime = 10 * time.Second

// costs are the runs of the row cost.
var costs = []struct{ rate, body, shards int }{
	{500, 256, 1}, {1000, 256, 1}, {2000, 256, 1}, {5000, 256, 1}, {10_000, 256, 1}, {1000, 4096, 1}, {5000, 4096, 1}, {1000, 256, 4}, {5000, 256, 4},
}

// cost compares the CPU time of documents, which are written at a steady rate and expire, with the
// formula that deploy/README.md has for it.
func (b *bench) cost(ctx context.Context, round int) (figures []table.Figure, err error) {
	rate, body := b.rate, b.body
	defer func() { b.rate, b.body = rate, body }()
	for _, c := range costs {
		b.rate, b.body = c.rate, c.body
		n := int(costTime.Seconds()) * c.rate
		what := fmt.Sprintf("%d/s, %d B, shards %d", c.rate, c.body, c.shards)
		if _, err := b.expire(ctx, what, b.openLapse(wire.Shape{Shards: c.shards}), n, b.paced(ctx, round, n)); err != nil {
			return nil, err
		}
		for i, server := range []string{"lapse", "nats-server", "Redis"} {
			figures = append(figures, costFigure(server+", "+what, b.cpuOf(n, b.cpu[i]), 1))
		}
	}
	return figures, nil
}

// costFigure compares a measured cost with that of the formula: how far apart they are, in either direction.
func costFigure(what string, measured, formula float64) table.Figure {
	return table.Figure{
		What: what, Unit: "µs", Lapse: measured, Against: "the formula", Other: formula,
		Ratio: math.Max(measured/formula, formula/measured), Goal: table.Goal{Must: 1.2, Ratio: true, AtMost: true},
	}
}
