package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// costTime is how long documents are written in a run of the row cost.
const costTime = 10 * time.Second

// costs are the runs of the row cost.
var costs = []struct {
	rate, body int
	formula
}{
	{1000, 256, formula{shards: 1}}, {5000, 256, formula{shards: 1}}, {10_000, 256, formula{shards: 1}},
	{5000, 4096, formula{shards: 1}}, {5000, 256, formula{shards: 4}},
}

// formula is the CPU time of a document that is written and expires, in µs, on the machine of the figures in
// README.md: a step has a cost of its own, and the more documents come, the more of them
// share one. deploy/docs/scale.md has it too.
type formula struct{ shards int }

// of are the times of lapse, nats-server and Redis for a number of documents a second, of so many bytes each.
func (f formula) of(rate, body int) [3]float64 {
	r, kib := float64(rate), float64(body)/1024
	return [3]float64{
		10 + 5*kib + 1100/(1+r/760),
		(15 + 7.5*kib + 1010/(1+r/480)) * (1 + 0.07*float64(f.shards-1)),
		5 + 6*kib + 260/(1+r/1640),
	}
}

// cost compares the CPU time of documents, which are written at a steady rate and expire, with the
// formula.
func (b *bench) cost(ctx context.Context, round int) (figures []table.Figure, err error) {
	rate, body := b.rate, b.body
	defer func() { b.rate, b.body = rate, body }()
	for _, c := range costs {
		b.rate, b.body = c.rate, c.body
		n := int(costTime.Seconds()) * c.rate
		what := fmt.Sprintf("%d/s, %d B, shards %d", c.rate, c.body, c.shards)
		if _, err := b.expire(ctx, what, b.openLapse(c.shards), n, b.paced(ctx, round, n)); err != nil {
			return nil, err
		}
		want := c.of(c.rate, c.body)
		for i, server := range []string{"lapse", "nats-server", "Redis"} {
			measured := b.cpuOf(n, b.cpu[i])
			figures = append(figures, table.Figure{
				What: server + ", " + what, Unit: "µs", Lapse: measured, Against: "the formula", Other: want[i],
				Ratio: max(measured/want[i], want[i]/measured), Goal: table.Goal{Must: 1.2, Ratio: true, AtMost: true},
			})
		}
	}
	return figures, nil
}
