package main

import (
	"context"
	"sync"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/sides"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/client"
)

// snapshots times the events of lapse while it takes one snapshot after another, and while it
// takes none, beside documents that do not expire.
func (b *bench) snapshots(ctx context.Context, round int) ([]table.Figure, error) {
	const with, without = "with snapshots", "without snapshots"
	n := b.n / 3
	late, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
		return b.expire(ctx, name, open, n, func(s *sides.Side, ld load.Load) error {
			if err := b.stand(ctx, s, b.n); err != nil {
				return err
			}
			if name == with {
				stop, err := b.snapshotAlways(ctx, s)
				if err != nil {
					return err
				}
				defer stop()
			}
			return load.Pace(ctx, n, b.rate, func(from, to int) error { return s.Write(ld, from, to, latenessTTL) })
		})
	}, map[string]sides.Opener{with: b.openLapse(0), without: b.openLapse(0)})
	if err != nil {
		return nil, err
	}
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "p99", Unit: "ms", Lapse: ms(late[with].P99), Against: "without", Other: ms(late[without].P99),
		Goal: table.Goal{Must: 1.5, Ratio: true, AtMost: true},
	})}, nil
}

// snapshotAlways lets lapse take snapshots, again and again, until stop is
// called.
func (b *bench) snapshotAlways(ctx context.Context, s *sides.Side) (stop func(), err error) {
	c, err := connect(s.Lapse)
	if err != nil {
		return nil, err
	}
	taking, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	taken := 0
	done.Go(func() {
		for taking.Err() == nil {
			done := 0
			p, err := c.Snapshot(taking, func(p client.SnapshotProgress) { done = p.Done })
			taken += max(done, p.Done)
			if taking.Err() == nil && (err != nil || p.Failure != "") {
				b.problem("snapshots: %v %s", err, p.Failure)
				return
			}
		}
	})
	return func() {
		end()
		done.Wait()
		c.Close()
		b.note("lapse took %d snapshots meanwhile", taken)
	}, nil
}

// snapshotOnce lets lapse take a snapshot of all that it has.
func snapshotOnce(ctx context.Context, l *rig.Lapse) error {
	c, err := connect(l)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Snapshot(ctx, func(client.SnapshotProgress) {})
	return err
}

func connect(l *rig.Lapse) (*client.Client, error) {
	return client.Connect(client.Options{Server: l.NATS.NC.ConnectedUrl()})
}
