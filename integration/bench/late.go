package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/sides"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// late times events beside the jobs of beanstalkd at two rates, and says what a document costs meanwhile.
func (b *bench) late(ctx context.Context, round int) (figures []table.Figure, err error) {
	rate := b.rate
	defer func() { b.rate = rate }()
	const lapse, other = "lapse", "beanstalkd"
	for _, at := range []struct {
		rate int
		must float64 // beanstalkd's p99 to that of lapse
	}{{5000, 1}, {500, 0.5}} {
		b.rate = at.rate
		n := b.n * at.rate / 30_000 // 10 s of the usual number
		var cpu []time.Duration
		var scripts int
		got, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
			x, err := b.expire(ctx, fmt.Sprintf("%s at %d/s", name, at.rate), open, n, b.paced(ctx, round, n))
			if name == lapse {
				cpu, scripts = b.cpu, b.scripts
			}
			return x, err
		}, map[string]sides.Opener{lapse: b.openLapse(0), other: sides.Beanstalkd(b.rig)})
		if err != nil {
			return nil, err
		}
		l, o := got[lapse], got[other]
		what := func(what string) string { return fmt.Sprintf("%s at %d/s", what, at.rate) }
		figures = append(figures,
			table.LowerBetter(table.Figure{What: what("p50"), Unit: "ms", Lapse: ms(l.P50), Against: other, Other: ms(o.P50)}),
			table.LowerBetter(table.Figure{What: what("p99"), Unit: "ms", Lapse: ms(l.P99), Against: other, Other: ms(o.P99),
				Goal: table.Goal{Must: at.must, Ratio: true}}))
		all := table.Figure{What: what("CPU of a document"), Unit: "µs", Lapse: b.cpuOf(n, cpu...)}
		if at.rate == 5000 {
			all.Goal = table.Goal{Must: 200, AtMost: true}
		}
		figures = append(figures, all)
		for i, server := range []string{lapse, "nats-server", "Redis"} {
			figures = append(figures, table.Figure{What: what("… of " + server), Unit: "µs", Lapse: b.cpuOf(n, cpu[i])})
		}
		figures = append(figures, table.Figure{What: what("scripts in Redis a document"), Lapse: float64(scripts) / float64(n)})
	}
	return figures, nil
}
