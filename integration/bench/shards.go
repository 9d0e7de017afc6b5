package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// cpuOf is the CPU time of one of n documents, in µs.
func (b *bench) cpuOf(n int, cpu ...time.Duration) (us float64) {
	for _, c := range cpu {
		us += float64(c.Microseconds()) / float64(n)
	}
	return us
}

// shards compares the CPU time of lapse and its servers with four shards and with one: as fast
// as they can write, and at the rate of the flags, where each step has fewer messages.
func (b *bench) shards(ctx context.Context, round int) ([]table.Figure, error) {
	n, full, paced := b.n/3, map[int]float64{}, map[int]float64{} // µs of a document, by the number of shards
	run := func(shards int) func() error {
		return func() error {
			_, err := b.ingestLapse(ctx, round, shards, b.load(b.n, load.LongTTL), load.PublishAll)
			if full[shards] = b.cpuOf(b.n, b.cpu...); err != nil {
				return err
			}
			_, err = b.expire(ctx, fmt.Sprintf("%d shards", shards), b.openLapse(shards), n, b.paced(ctx, round, n))
			paced[shards] = b.cpuOf(n, b.cpu...)
			return err
		}
	}
	err := inTurn(round, run(1), run(4))
	goal := table.Goal{Must: 1.1, Ratio: true, AtMost: true}
	ratio := func(cpu map[int]float64, what string) table.Figure {
		return table.HigherBetter(table.Figure{What: what, Unit: "µs", Lapse: cpu[4], Against: "one shard", Other: cpu[1], Goal: goal})
	}
	return []table.Figure{
		ratio(full, "four, written at full speed"),
		ratio(paced, fmt.Sprintf("four, written and expired at %d/s", b.rate)),
	}, err
}
