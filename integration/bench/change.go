package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// change times a change of the default TTL on few and on many documents.
func (b *bench) change(ctx context.Context, round int) ([]table.Figure, error) {
	sizes := []int{max(1000, b.n/30), b.n * 10 / 3}
	lapse, plain := make([]changed, 2), make([]time.Duration, 2)
	err := inTurn(round,
		func() error {
			for i, n := range sizes {
				var err error
				if lapse[i], err = b.changeLapse(ctx, n); err != nil {
					return err
				}
			}
			return nil
		},
		func() error {
			for i, n := range sizes {
				var err error
				if plain[i], err = b.changePlain(ctx, n); err != nil {
					return err
				}
			}
			return nil
		},
	)
	if err != nil {
		return nil, err
	}
	var figures []table.Figure
	for i, n := range sizes {
		figures = append(
			figures,
			table.LowerBetter(
				table.Figure{
					What:    fmt.Sprintf("%s documents", table.Number(float64(n))),
					Unit:    "ms",
					Lapse:   ms(lapse[i].later),
					Against: "pipelined PEXPIRE",
					Other:   ms(plain[i]),
					Goal:    table.Goal{Must: 20, Aim: 5, AtMost: true},
				},
			),
			table.Figure{What: fmt.Sprintf("%s documents, all expired by it", table.Number(float64(n))), Unit: "ms", Lapse: ms(lapse[i].expired),
				Goal: table.Goal{Must: 20, Aim: 5, AtMost: true}},
		)
	}
	return figures, nil
}

// changed holds how long changes took until reads showed them.
type changed struct {
	later   time.Duration // the median of the changes that move every deadline
	expired time.Duration // of the change that makes every document expired
}

func (b *bench) changeLapse(ctx context.Context, n int) (c changed, err error) {
	l, err := b.rig.StartLapse(ctx, 0)
	if err != nil {
		return c, err
	}
	defer l.Stop()
	if err := l.Configure(ctx, rig.Orders, load.LongTTL); err != nil {
		return c, err
	}
	ld := b.load(n, 0)
	if err := l.Fill(ctx, rig.Orders, ld); err != nil {
		return c, err
	}
	if err := load.Sleep(ctx, 1100*time.Millisecond); err != nil { // so that the last change expires every document
		return c, err
	}
	const changes = 20
	var took []time.Duration
	for i := range changes {
		seconds := int32(load.LongTTL + i + 1)
		d, err := effective(ctx, l, ld, seconds, func(d sink.Document, err error) (bool, error) {
			return err == nil && d.ExpiresAt != nil && *d.ExpiresAt == d.Ts+wire.Time(seconds)*1000, err
		})
		if err != nil {
			return c, err
		}
		if i >= changes/4 { // the changes before are the warm-up
			took = append(took, d)
		}
	}
	slices.Sort(took)
	c.later = took[len(took)/2]
	b.note("default TTL changed on %d documents: min %.2f ms, median %.2f ms, max %.2f ms", n, ms(took[0]), ms(c.later), ms(took[len(took)-1]))
	c.expired, err = effective(ctx, l, ld, 1, func(_ sink.Document, err error) (bool, error) {
		if errors.Is(err, sink.ErrNotFound) {
			return true, nil
		}
		return false, err
	})
	if err == nil {
		err = l.Stored(ctx, rig.Orders, 0)
	}
	return c, err
}

// effective publishes a default TTL, and returns how long it takes until reads of eight documents show it.
func effective(ctx context.Context, l *rig.Lapse, ld load.Load, seconds int32, is func(sink.Document, error) (bool, error)) (time.Duration, error) {
	var left []string
	for i := range 8 {
		left = append(left, ld.ID(i))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	if err := l.NATS.NC.PublishMsg(rig.ConfigMessage(rig.Orders, seconds)); err != nil {
		return 0, err
	}
	if err := l.NATS.NC.Flush(); err != nil {
		return 0, err
	}
	for len(left) > 0 {
		d, err := l.Get(ctx, rig.Orders, left[0])
		ok, err := is(d, err)
		if err != nil {
			return 0, err
		}
		if ok {
			left = left[1:]
		}
	}
	return time.Since(began), nil
}

func (b *bench) changePlain(ctx context.Context, n int) (time.Duration, error) {
	s, err := b.rig.StartRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	ld := b.load(n, load.LongTTL)
	if err := s.Set(ctx, ld); err != nil {
		return 0, err
	}
	began := time.Now()
	err = s.Pipelined(ctx, n, func(p redis.Pipeliner, i int) {
		p.PExpire(ctx, rig.Key(ld, i), 2*load.LongTTL*time.Second)
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	left, err := s.Client.TTL(ctx, rig.Key(ld, n-1)).Result()
	if err == nil && left <= load.LongTTL*time.Second {
		err = fmt.Errorf("%s expires in %s", rig.Key(ld, n-1), left)
	}
	return took, err
}
