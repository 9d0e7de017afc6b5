package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
)

// rebuild wipes Redis under a running lapse.
func (b *bench) rebuild(ctx context.Context, round int) ([]figure, error) {
	l, err := b.startLapse(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	if err := l.configure(ctx, orders, -1); err != nil {
		return nil, err
	}
	// Some have expired before: their events must not come again.
	gone := b.load(b.n, 1).warm()
	if err := publishAll(l.nats.js, gone.n, func(i int) *nats.Msg { return gone.upsert(orders, i, gone.ttl) }); err != nil {
		return nil, err
	}
	ld := b.load(b.n, longTTL)
	if err := publishAll(l.nats.js, ld.n, func(i int) *nats.Msg { return ld.upsert(orders, i, ld.ttl) }); err != nil {
		return nil, err
	}
	if err := errors.Join(l.said(ctx, gone.n), l.stored(ctx, orders, ld.n)); err != nil {
		return nil, err
	}
	profiled, err := l.profile(ctx, "rebuild", round)
	if err != nil {
		return nil, err
	}
	used := l.usage()
	began := time.Now()
	if err := l.redis.client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	flushed := time.Since(began)
	noticed, err := l.noticed(ctx, began)
	if err != nil {
		return nil, err
	}
	if err := l.stored(ctx, orders, ld.n); err != nil {
		return nil, err
	}
	took := time.Since(began)
	used(fmt.Sprintf("lapse rebuilds %d (FLUSHALL took %.2f s, noticed after %.2f s)", ld.n, flushed.Seconds(), noticed.Seconds()))
	if err := profiled(); err != nil {
		return nil, err
	}
	if err := l.verify(ctx, ld, 2*longTTL*time.Second); err != nil {
		return nil, err
	}
	if err := l.said(ctx, gone.n); err != nil {
		b.problem("after a rebuild: %v", err)
	}
	total := float64(ld.n + gone.n)
	return []figure{
		{What: "documents a second, once noticed", Unit: "/s", Lapse: total / (took - noticed).Seconds(), Goal: goal{Must: 100_000, Aim: 150_000}},
		{What: "from FLUSHALL until all can be read", Unit: "s", Lapse: took.Seconds()},
	}, nil
}

// noticed waits until lapse has begun to write to a Redis that was wiped.
func (l *lapseServer) noticed(ctx context.Context, began time.Time) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if n, err := l.redis.client.DBSize(ctx).Result(); err != nil {
			return 0, err
		} else if n > 0 {
			return time.Since(began), nil
		}
		if err := sleep(ctx, pollAll); err != nil {
			return 0, err
		}
	}
}

// startup starts lapse as it comes, without servers, on a log that it has written.
func (b *bench) startup(ctx context.Context, _ int) ([]figure, error) {
	if b.binary == "" {
		b.note("start-up is not measured: it needs the binary")
		return nil, nil
	}
	dir, err := b.folder("data")
	if err != nil {
		return nil, err
	}
	ld := b.load(b.n/3, longTTL)
	l, took, err := b.startEmbedded(ctx, dir)
	if err != nil {
		return nil, err
	}
	empty := took
	err = func() error {
		defer l.stopEmbedded()
		if err := l.configure(ctx, orders, -1); err != nil {
			return err
		}
		return l.fill(ctx, orders, ld)
	}()
	if err != nil {
		return nil, err
	}
	l, took, err = b.startEmbedded(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer l.stopEmbedded()
	if err := l.verify(ctx, ld, 0); err != nil {
		return nil, err
	}
	if c, err := l.reader.Count(ctx, orders); err != nil || c.Live != int64(ld.n) {
		b.problem("after a start of the embedded default it has %+v of %d documents (%v)", c, ld.n, err)
	}
	return []figure{
		{What: fmt.Sprintf("with %s documents, until ready", number(float64(ld.n))), Unit: "s", Lapse: took.Seconds(), Goal: goal{Must: 3, Aim: 1, AtMost: true}},
		{What: "with none", Unit: "s", Lapse: empty.Seconds()},
	}, nil
}

// startEmbedded starts lapse with the servers it embeds, and returns how long that
// took.
func (b *bench) startEmbedded(ctx context.Context, data string) (*lapseServer, time.Duration, error) {
	var addr [2]string
	for i := range addr {
		port, err := freePort()
		if err != nil {
			return nil, 0, err
		}
		addr[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	l := &lapseServer{b: b}
	began := time.Now()
	err := l.serve(ctx, "--data", filepath.Join(data, "store"), "--nats-listen", addr[0], "--redis-listen", addr[1])
	if err != nil {
		return nil, 0, err
	}
	took := time.Since(began)
	l.nats = &natsServer{process: l.process, url: "nats://" + addr[0]}
	l.redis = &redisServer{process: l.process, addr: addr[1], client: redis.NewClient(&redis.Options{Addr: addr[1], MaxRetries: -1})}
	if err := l.nats.connect(ctx); err != nil {
		l.process.stop()
		return nil, 0, err
	}
	if l.reader, err = sink.NewReader(l.redis.client, sink.ReaderOptions{}); err != nil {
		l.stopEmbedded()
	}
	return l, took, err
}

func (l *lapseServer) stopEmbedded() { l.stop() }
