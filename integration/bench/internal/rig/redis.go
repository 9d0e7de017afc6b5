package rig

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
)

// The number of pipelines is the best on a small machine; their size is a usual one.
const (
	pipelines  = 4
	inPipeline = 500
)

// Key returns the key of a document in a Redis without lapse.
func Key(ld load.Load, i int) string { return Orders + ":" + ld.ID(i) }

// Pipelined calls add for 0 to n-1, and sends the commands in pipelines.
func (s *Redis) Pipelined(ctx context.Context, n int, add func(p redis.Pipeliner, i int)) error {
	var wg sync.WaitGroup
	errs := make([]error, pipelines)
	next := make(chan int)
	for w := range pipelines {
		wg.Go(func() {
			for from := range next {
				if errs[w] != nil {
					continue
				}
				p := s.Client.Pipeline()
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

// Set writes documents as keys with an expiry.
func (s *Redis) Set(ctx context.Context, ld load.Load) error {
	return s.Pipelined(ctx, ld.N, func(p redis.Pipeliner, i int) {
		p.Set(ctx, Key(ld, i), ld.Body(i), time.Duration(ld.TTL)*time.Second)
	})
}

// SetAt writes documents as keys that expire at an instant.
func (s *Redis) SetAt(ctx context.Context, ld load.Load, from, to int, at time.Time) error {
	ms := strconv.FormatInt(at.UnixMilli(), 10)
	return s.Pipelined(ctx, to-from, func(p redis.Pipeliner, i int) {
		p.Do(ctx, "set", Key(ld, from+i), ld.Body(from+i), "pxat", ms)
	})
}
