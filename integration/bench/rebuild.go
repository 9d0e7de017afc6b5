package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// rebuild wipes Redis while lapse runs.
func (b *bench) rebuild(ctx context.Context, round int) ([]table.Figure, error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.Stop()
	if err := l.Configure(ctx, rig.Orders, -1); err != nil {
		return nil, err
	}
	// Some documents have expired before: lapse must not publish their events again.
	gone := b.load(b.n, 1).Warm()
	if err := load.PublishAll(l.NATS.JS, gone.N, func(i int) *nats.Msg { return gone.Upsert(rig.Orders, i, gone.TTL) }); err != nil {
		return nil, err
	}
	ld := b.load(b.n, load.LongTTL)
	if err := load.PublishAll(l.NATS.JS, ld.N, func(i int) *nats.Msg { return ld.Upsert(rig.Orders, i, ld.TTL) }); err != nil {
		return nil, err
	}
	if err := errors.Join(l.Published(ctx, gone.N), l.Stored(ctx, rig.Orders, ld.N)); err != nil {
		return nil, err
	}
	profiled, err := l.Profile(ctx, "rebuild", round)
	if err != nil {
		return nil, err
	}
	used := l.Usage()
	began := time.Now()
	if err := l.Redis.Client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	flushed := time.Since(began)
	noticed, err := noticedAfter(ctx, l, began)
	if err != nil {
		return nil, err
	}
	if err := l.Stored(ctx, rig.Orders, ld.N); err != nil {
		return nil, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("lapse: %d documents rebuilt (FLUSHALL took %.2f s, lapse wrote after %.2f s)", ld.N, flushed.Seconds(), noticed.Seconds()))
	if err := profiled(); err != nil {
		return nil, err
	}
	if err := l.Verify(ctx, ld, 2*load.LongTTL*time.Second); err != nil {
		return nil, err
	}
	if err := l.Published(ctx, gone.N); err != nil {
		b.problem("after a rebuild: %v", err)
	}
	rate := float64(ld.N+gone.N) / (took - noticed).Seconds()
	return []table.Figure{
		{What: "documents a second, once lapse writes", Unit: "/s", Lapse: rate, Goal: table.Goal{Must: 100_000, Aim: 150_000}},
		{What: "from FLUSHALL until all can be read", Unit: "s", Lapse: took.Seconds()},
	}, nil
}

// noticedAfter waits until lapse writes to a Redis that was wiped.
func noticedAfter(ctx context.Context, l *rig.Lapse, began time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if n, err := l.Redis.Client.DBSize(ctx).Result(); err != nil {
			return 0, err
		} else if n > 0 {
			return time.Since(began), nil
		}
		if err := load.Sleep(ctx, 5*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// startup starts lapse with embedded servers, on a log that it has written.
func (b *bench) startup(ctx context.Context, _ int) ([]table.Figure, error) {
	if b.rig.Lapse == "" {
		b.note("startup is not measured: it needs the lapse binary, so leave out -profile")
		return nil, nil
	}
	dir, err := b.rig.Folder("data")
	if err != nil {
		return nil, err
	}
	ld := b.load(b.n/3, load.LongTTL)
	l, empty, err := b.rig.StartEmbedded(ctx, dir)
	if err != nil {
		return nil, err
	}
	err = func() error {
		defer l.Stop()
		if err := l.Configure(ctx, rig.Orders, -1); err != nil {
			return err
		}
		if err := l.Fill(ctx, rig.Orders, ld); err != nil || b.gone == 0 {
			return err
		}
		gone := b.load(b.gone, 1)
		if err := l.Configure(ctx, rig.Warm, -1); err != nil {
			return err
		}
		if err := load.PublishAll(l.NATS.JS, gone.N, func(i int) *nats.Msg { return gone.Upsert(rig.Warm, i, gone.TTL) }); err != nil {
			return err
		}
		if err := l.Published(ctx, gone.N); err != nil {
			return err
		}
		return snapshotOnce(ctx, l)
	}()
	if err != nil {
		return nil, err
	}
	l, took, err := b.rig.StartEmbedded(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer l.Stop()
	if err := l.Verify(ctx, ld, 0); err != nil {
		return nil, err
	}
	if c, err := l.Reader.Count(ctx, rig.Orders); err != nil || c.Live != int64(ld.N) {
		b.problem("after a start with embedded servers lapse has %+v of %d documents (%v)", c, ld.N, err)
	}
	b.note("start-up without documents: %.2f s", empty.Seconds())
	what := fmt.Sprintf("with %s documents, until ready", table.Number(float64(ld.N)))
	return []table.Figure{{What: what, Unit: "s", Lapse: took.Seconds(), Goal: table.Goal{Must: 3, Aim: 1, AtMost: true}}}, nil
}
