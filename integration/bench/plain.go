package main

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Plain Redis, as the others use it: as many pipelines at once as serve it best on
// a small machine, of a size that is usual.
const (
	pipelines  = 4
	inPipeline = 500
)

// key is where a document is kept without lapse.
func (l load) key(i int) string { return orders + ":" + l.id(i) }

// pipelined calls add for 0 to n-1, in pipelines.
func (s *redisServer) pipelined(ctx context.Context, n int, add func(p redis.Pipeliner, i int)) error {
	var wg sync.WaitGroup
	errs := make([]error, pipelines)
	next := make(chan int)
	for w := range pipelines {
		wg.Go(func() {
			for from := range next {
				if errs[w] != nil {
					continue
				}
				p := s.client.Pipeline()
				for i := from; i < min(n, from+inPipeline); i++ {
					add(p, i)
				}
				_, errs[w] = p.Exec(ctx)
			}
		})
	}
	for from := 0; from < n; from += inPipeline {
		next <- from
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// set writes documents as keys with an expiry.
func (s *redisServer) set(ctx context.Context, ld load) error {
	return s.pipelined(ctx, ld.n, func(p redis.Pipeliner, i int) {
		p.Set(ctx, ld.key(i), ld.body(i), time.Duration(ld.ttl)*time.Second)
	})
}

// setAt writes some documents as keys that expire at an instant.
func (s *redisServer) setAt(ctx context.Context, ld load, from, to int, at time.Time) error {
	ms := strconv.FormatInt(at.UnixMilli(), 10)
	return s.pipelined(ctx, to-from, func(p redis.Pipeliner, i int) {
		p.Do(ctx, "set", ld.key(from+i), ld.body(from+i), "pxat", ms)
	})
}
