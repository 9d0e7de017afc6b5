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
)

// reads times reads of single documents, many at a time.
func (b *bench) reads(ctx context.Context, round int) ([]figure, error) {
	var lapse, plain float64
	err := inTurn(round,
		func() (err error) { lapse, err = b.readLapse(ctx, round); return err },
		func() (err error) { plain, err = b.readPlain(ctx); return err },
	)
	return []figure{times(figure{
		What: "reads a second", Unit: "/s", Lapse: lapse, Against: "HGET", Other: plain,
		Goal: goal{Must: 0.6, Aim: 0.9, Ratio: true},
	})}, err
}

func (b *bench) readLapse(ctx context.Context, round int) (float64, error) {
	l, err := b.startLapse(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer l.stop()
	if err := l.configure(ctx, orders, -1); err != nil {
		return 0, err
	}
	ld := b.load(b.n, longTTL)
	if err := l.fill(ctx, orders, ld); err != nil {
		return 0, err
	}
	used := l.usage()
	rate, err := b.readAll(ctx, "lapse", ld, func(id string) (string, error) {
		d, err := l.get(ctx, orders, id)
		return string(d.Body), err
	})
	used("lapse read")
	return rate, err
}

func (b *bench) readPlain(ctx context.Context) (float64, error) {
	s, err := b.startRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	ld := b.load(b.n, longTTL)
	err = s.pipelined(ctx, ld.n, func(p redis.Pipeliner, i int) { p.HSet(ctx, orders, ld.id(i), ld.body(i)) })
	if err != nil {
		return 0, err
	}
	return b.readAll(ctx, "HGET", ld, func(id string) (string, error) { return s.client.HGet(ctx, orders, id).Result() })
}

// readAll reads n documents at random, as many at a time as asked for, and returns
// reads a second. A tenth of it before is the warm-up. What is read is compared.
func (b *bench) readAll(ctx context.Context, name string, ld load, read func(id string) (string, error)) (float64, error) {
	run := func(each int) ([]time.Duration, time.Duration, error) {
		all := make([][]time.Duration, b.parallel)
		errs := make([]error, b.parallel)
		var wg sync.WaitGroup
		began := time.Now()
		for w := range b.parallel {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(b.seed, uint64(w)))
				for range each {
					i := r.IntN(ld.n)
					at := time.Now()
					got, err := read(ld.id(i))
					all[w] = append(all[w], time.Since(at))
					if err == nil && got != string(ld.body(i)) {
						err = fmt.Errorf("%s reads as %s", ld.id(i), got)
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
	each := b.n / b.parallel
	if _, _, err := run(each/10 + 1); err != nil {
		return 0, err
	}
	each = max(each, 2000)
	lat, took, err := run(each)
	if err != nil {
		return 0, err
	}
	slices.Sort(lat)
	b.note("%s: %d reads at a time, p50 %.2f ms, p99 %.2f ms", name, b.parallel, ms(quantile(lat, 0.5)), ms(quantile(lat, 0.99)))
	return float64(len(lat)) / took.Seconds(), nil
}

// Reads at a steady rate, which an idle machine takes easily: what they wait for is
// not themselves.
const (
	steadyReads   = 2000 // a second
	steadyReaders = 16
)

// reaping compares reads while documents are being reaped with reads while nothing
// else happens.
func (b *bench) reaping(ctx context.Context, round int) ([]figure, error) {
	l, err := b.startLapse(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	const kept = "kept"
	keep, due := b.load(10_000, 0), b.load(b.n, 0)
	for _, c := range []string{kept, orders} {
		if err := l.configure(ctx, c, off); err != nil {
			return nil, err
		}
	}
	if err := l.fill(ctx, kept, keep); err != nil {
		return nil, err
	}
	if err := l.fill(ctx, orders, due); err != nil {
		return nil, err
	}
	const idleFor = 3 * time.Second
	if _, err := l.steady(ctx, kept, keep, sleepUntil(time.Second)); err != nil {
		return nil, err
	}
	idle, err := l.steady(ctx, kept, keep, sleepUntil(idleFor))
	if err != nil {
		return nil, err
	}
	profiled, err := l.profile(ctx, "reaping", round)
	if err != nil {
		return nil, err
	}
	used, began := l.usage(), time.Now()
	busy, err := l.steady(ctx, kept, keep, func(ctx context.Context) error {
		if err := l.nats.nc.PublishMsg(configMessage(orders, 1)); err != nil {
			return err
		}
		return l.said(ctx, b.n)
	})
	if err != nil {
		return nil, err
	}
	used(fmt.Sprintf("lapse reaps %d in %.2f s, %.0f a second", b.n, time.Since(began).Seconds(), float64(b.n)/time.Since(began).Seconds()))
	if err := profiled(); err != nil {
		return nil, err
	}
	b.note("steady reads: idle p50 %.2f ms p99 %.2f ms; while reaping p50 %.2f ms p99 %.2f ms max %.2f ms",
		ms(quantile(idle, 0.5)), ms(quantile(idle, 0.99)), ms(quantile(busy, 0.5)), ms(quantile(busy, 0.99)), ms(busy[len(busy)-1]))
	f := figure{What: "p99, against idle", Unit: "ms", Lapse: ms(quantile(busy, 0.99)), Against: "lapse idle", Other: ms(quantile(idle, 0.99)),
		Goal: goal{Must: 4, Aim: 1.5, Ratio: true, AtMost: true}}
	return []figure{times(f)}, nil
}

func sleepUntil(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return sleep(ctx, d) }
}

// said waits until the stream of events holds so many.
func (l *lapseServer) said(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s, err := l.nats.js.Stream(ctx, prefix.EventsStream())
		if err != nil {
			return fmt.Errorf("wait for %d events: %w", n, err)
		}
		switch have := s.CachedInfo().State.Msgs; {
		case have == uint64(n):
			return nil
		case have > uint64(n):
			return fmt.Errorf("there are %d events, and %d were due", have, n)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// steady reads at a steady rate while something else goes on, and returns how long
// reads took, sorted: from when each was to begin, so that one that holds the others
// up counts for them too.
func (l *lapseServer) steady(ctx context.Context, collection string, ld load, during func(context.Context) error) ([]time.Duration, error) {
	all, errs := make([][]time.Duration, steadyReaders), make([]error, steadyReaders)
	var over atomic.Bool
	var wg sync.WaitGroup
	began := time.Now()
	for w := range steadyReaders {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(l.b.seed, uint64(w)))
			for k := 0; !over.Load(); k++ {
				at := began.Add(time.Duration(k*steadyReaders+w) * time.Second / steadyReads)
				if err := sleep(ctx, time.Until(at)); err != nil {
					return
				}
				// What a timer is late by is this program's, not the read's, unless the read before was slow.
				if now := time.Now(); now.Sub(at) < time.Second*steadyReaders/steadyReads {
					at = now
				}
				i := r.IntN(ld.n)
				d, err := l.get(ctx, collection, ld.id(i))
				if err == nil && string(d.Body) != string(ld.body(i)) {
					err = fmt.Errorf("%s reads as %s", ld.id(i), d.Body)
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
