package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// reads times reads of single documents, many at a time.
func (b *bench) reads(ctx context.Context, round int) ([]table.Figure, error) {
	var lapse, plain float64
	err := inTurn(round,
		func() (err error) { lapse, err = b.readLapse(ctx, round); return err },
		func() (err error) { plain, err = b.readPlain(ctx); return err },
	)
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "reads a second", Unit: "/s", Lapse: lapse, Against: "HGET", Other: plain,
		Goal: table.Goal{Must: 0.6, Aim: 0.9, Ratio: true},
	})}, err
}

func (b *bench) readLapse(ctx context.Context, round int) (float64, error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer l.Stop()
	if err := l.Configure(ctx, rig.Orders, -1); err != nil {
		return 0, err
	}
	ld := b.load(b.n, load.LongTTL)
	if err := l.Fill(ctx, rig.Orders, ld); err != nil {
		return 0, err
	}
	used := l.Usage()
	rate, err := b.readAll(ctx, "lapse", ld, func(id string) (string, error) {
		d, err := l.Get(ctx, rig.Orders, id)
		return string(d.Body), err
	})
	used("lapse: read")
	return rate, err
}

func (b *bench) readPlain(ctx context.Context) (float64, error) {
	s, err := b.rig.StartRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	ld := b.load(b.n, load.LongTTL)
	err = s.Pipelined(ctx, ld.N, func(p redis.Pipeliner, i int) { p.HSet(ctx, rig.Orders, ld.ID(i), ld.Body(i)) })
	if err != nil {
		return 0, err
	}
	return b.readAll(ctx, "HGET", ld, func(id string) (string, error) { return s.Client.HGet(ctx, rig.Orders, id).Result() })
}

// readAll reads documents at random, 64 at a time, and returns reads a second. It compares
// each body. A tenth of the reads comes first, as the warm-up.
func (b *bench) readAll(ctx context.Context, name string, ld load.Load, read func(id string) (string, error)) (float64, error) {
	run := func(each int) ([]time.Duration, time.Duration, error) {
		all := make([][]time.Duration, parallel)
		errs := make([]error, parallel)
		var wg sync.WaitGroup
		began := time.Now()
		for w := range parallel {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(w)))
				for range each {
					i := r.IntN(ld.N)
					at := time.Now()
					got, err := read(ld.ID(i))
					all[w] = append(all[w], time.Since(at))
					if err == nil && got != string(ld.Body(i)) {
						err = fmt.Errorf("%s reads as %s", ld.ID(i), got)
					}
					if err != nil {
						errs[w] = err
						return
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		for _, err := range errs {
			if err != nil {
				return nil, 0, err
			}
		}
		return slices.Concat(all...), took, ctx.Err()
	}
	each := b.n / parallel
	if _, _, err := run(each/10 + 1); err != nil {
		return 0, err
	}
	each = max(each, 2000)
	lat, took, err := run(each)
	if err != nil {
		return 0, err
	}
	slices.Sort(lat)
	b.note("%s: %d reads at a time, p50 %.2f ms, p99 %.2f ms", name, parallel, ms(load.Quantile(lat, 0.5)), ms(load.Quantile(lat, 0.99)))
	return float64(len(lat)) / took.Seconds(), nil
}

// An idle machine serves this rate easily, so that reads do not wait for each other.
const (
	steadyReads   = 2000 // a second
	steadyReaders = 16
)

// reaping compares reads while lapse reaps with reads while lapse is idle.
func (b *bench) reaping(ctx context.Context, round int) ([]table.Figure, error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.Stop()
	const kept = "kept"
	keep, due := b.load(10_000, 0), b.load(b.n, 0)
	for _, c := range []string{kept, rig.Orders} {
		if err := l.Configure(ctx, c, rig.Off); err != nil {
			return nil, err
		}
	}
	if err := l.Fill(ctx, kept, keep); err != nil {
		return nil, err
	}
	if err := l.Fill(ctx, rig.Orders, due); err != nil {
		return nil, err
	}
	const idleFor = 3 * time.Second
	if _, err := b.steady(ctx, l, kept, keep, sleepUntil(time.Second)); err != nil {
		return nil, err
	}
	idle, err := b.steady(ctx, l, kept, keep, sleepUntil(idleFor))
	if err != nil {
		return nil, err
	}
	profiled, err := l.Profile(ctx, "reaping", round)
	if err != nil {
		return nil, err
	}
	used, began := l.Usage(), time.Now()
	busy, err := b.steady(ctx, l, kept, keep, func(ctx context.Context) error {
		if err := l.NATS.NC.PublishMsg(rig.ConfigMessage(rig.Orders, 1)); err != nil {
			return err
		}
		return l.Published(ctx, b.n)
	})
	if err != nil {
		return nil, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("lapse: %d documents reaped", b.n))
	if err := profiled(); err != nil {
		return nil, err
	}
	b.note("steady reads: idle p50 %.2f ms p99 %.2f ms; while reaping p50 %.2f ms p99 %.2f ms max %.2f ms",
		ms(load.Quantile(idle, 0.5)), ms(load.Quantile(idle, 0.99)), ms(load.Quantile(busy, 0.5)), ms(load.Quantile(busy, 0.99)), ms(busy[len(busy)-1]))
	f := table.Figure{What: "p99, against idle", Unit: "ms", Lapse: ms(load.Quantile(busy, 0.99)), Against: "lapse idle", Other: ms(load.Quantile(idle, 0.99)),
		Goal: table.Goal{Must: 3, Aim: 1.5, Ratio: true, AtMost: true}}
	return []table.Figure{table.HigherBetter(f), {What: "documents reaped a second, meanwhile", Unit: "/s", Lapse: float64(b.n) / took.Seconds()}}, nil
}

func sleepUntil(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return load.Sleep(ctx, d) }
}

// steady reads at a steady rate until during returns, and returns the sorted durations of
// the reads. A duration counts from the planned beginning, so that a slow read counts for
// those that it delays too.
func (b *bench) steady(ctx context.Context, l *rig.Lapse, collection string, ld load.Load, during func(context.Context) error) ([]time.Duration, error) {
	all, errs := make([][]time.Duration, steadyReaders), make([]error, steadyReaders)
	var over atomic.Bool
	var wg sync.WaitGroup
	began := time.Now()
	for w := range steadyReaders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			for k := 0; !over.Load(); k++ {
				at := began.Add(time.Duration(k*steadyReaders+w) * time.Second / steadyReads)
				if err := load.Sleep(ctx, time.Until(at)); err != nil {
					return
				}
				// A late timer is a delay of this program, unless the read before was slow.
				if now := time.Now(); now.Sub(at) < time.Second*steadyReaders/steadyReads {
					at = now
				}
				i := r.IntN(ld.N)
				d, err := l.Get(ctx, collection, ld.ID(i))
				if err == nil && string(d.Body) != string(ld.Body(i)) {
					err = fmt.Errorf("%s reads as %s", ld.ID(i), d.Body)
				}
				if err != nil {
					errs[w] = err
					return
				}
				all[w] = append(all[w], time.Since(at))
			}
		})
	}
	err := during(ctx)
	over.Store(true)
	wg.Wait()
	for _, e := range append(errs, err) {
		if e != nil {
			return nil, e
		}
	}
	lat := slices.Concat(all...)
	slices.Sort(lat)
	return lat, nil
}
