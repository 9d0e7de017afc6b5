package main

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/wire"
)

// shards compares the CPU time of lapse and its servers with four shards and with one.
func (b *bench) shards(ctx context.Context, round int) ([]table.Figure, error) {
	n, cpu := b.n/3, map[int]float64{} // of a document, in microseconds
	run := func(shards int) func() error {
		return func() error {
			_, err := b.expire(ctx, fmt.Sprintf("%d shards", shards), b.openLapse(wire.Shape{Shards: shards}), n, b.paced(ctx, round, n))
			cpu[shards] = float64(b.cpu.Microseconds()) / float64(n)
			return err
		}
	}
	err := inTurn(round, run(1), run(4))
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "four shards", Unit: "µs", Lapse: cpu[4], Against: "one", Other: cpu[1], Goal: table.Goal{Must: 1.1, Ratio: true, AtMost: true},
	})}, err
}
