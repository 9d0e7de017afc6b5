package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// change times a change of the default TTL on few and on many documents.
func (b *bench) change(ctx context.Context, round int) ([]figure, error) {
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
	var figures []figure
	for i, n := range sizes {
		figures = append(figures,
			sooner(figure{What: fmt.Sprintf("%s documents", number(float64(n))), Unit: "ms", Lapse: ms(lapse[i].later), Against: "pipelined PEXPIRE", Other: ms(plain[i]),
				Goal: goal{Must: 20, Aim: 5, AtMost: true}}),
			figure{What: fmt.Sprintf("%s documents, all expired by it", number(float64(n))), Unit: "ms", Lapse: ms(lapse[i].expired),
				Goal: goal{Must: 20, Aim: 5, AtMost: true}})
	}
	figures = append(figures, figure{What: "many, against few", Unit: "ms", Lapse: ms(lapse[1].later), Against: "lapse with few", Other: ms(lapse[0].later),
		Ratio: ms(lapse[1].later) / ms(lapse[0].later), Goal: goal{Must: 1.5, Ratio: true, AtMost: true}})
	return figures, nil
}

// changed is how long changes took to be effective.
type changed struct {
	later   time.Duration // the median of changes that move every deadline
	expired time.Duration // of one that makes every document expired
}

func (b *bench) changeLapse(ctx context.Context, n int) (c changed, err error) {
	l, err := b.startLapse(ctx, 0)
	if err != nil {
		return c, err
	}
	defer l.stop()
	if err := l.configure(ctx, orders, longTTL); err != nil {
		return c, err
	}
	ld := b.load(n, 0)
	if err := l.fill(ctx, orders, ld); err != nil {
		return c, err
	}
	if err := sleep(ctx, 1100*time.Millisecond); err != nil { // for the last change, below
		return c, err
	}
	const changes = 20
	var took []time.Duration
	for i := range changes {
		seconds := int32(longTTL + i + 1)
		d, err := l.effective(ctx, ld, seconds, func(d sink.Document, err error) (bool, error) {
			return err == nil && d.ExpiresAt != nil && *d.ExpiresAt == d.Ts+wire.Time(seconds)*1000, err
		})
		if err != nil {
			return c, err
		}
		if i >= changes/4 { // those before are the warm-up
			took = append(took, d)
		}
	}
	slices.Sort(took)
	c.later = took[len(took)/2]
	b.note("default changed on %d documents: min %.2f ms, median %.2f ms, max %.2f ms", n, ms(took[0]), ms(c.later), ms(took[len(took)-1]))
	c.expired, err = l.effective(ctx, ld, 1, func(_ sink.Document, err error) (bool, error) {
		if errors.Is(err, sink.ErrNotFound) {
			return true, nil
		}
		return false, err
	})
	if err == nil {
		err = l.stored(ctx, orders, 0)
	}
	return c, err
}

// effective publishes a default TTL, and returns how long it took until reads of
// every partition go by it.
func (l *lapseServer) effective(ctx context.Context, ld load, seconds int32, is func(sink.Document, error) (bool, error)) (time.Duration, error) {
	var left []string // a document of each partition
	for i, have := 0, map[int]bool{}; i < ld.n && len(left) < sink.DefaultPartitions; i++ {
		if p := wire.Partition(sink.DefaultPartitions, orders, ld.id(i)); !have[p] {
			have[p] = true
			left = append(left, ld.id(i))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	if err := l.nats.nc.PublishMsg(configMessage(orders, seconds)); err != nil {
		return 0, err
	}
	if err := l.nats.nc.Flush(); err != nil {
		return 0, err
	}
	for len(left) > 0 {
		d, err := l.get(ctx, orders, left[0])
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
	s, err := b.startRedis(ctx)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	ld := b.load(n, longTTL)
	if err := s.set(ctx, ld); err != nil {
		return 0, err
	}
	began := time.Now()
	err = s.pipelined(ctx, n, func(p redis.Pipeliner, i int) {
		p.PExpire(ctx, ld.key(i), 2*longTTL*time.Second)
	})
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	left, err := s.client.TTL(ctx, ld.key(n-1)).Result()
	if err == nil && left <= longTTL*time.Second {
		err = fmt.Errorf("%s expires in %s", ld.key(n-1), left)
	}
	return took, err
}
