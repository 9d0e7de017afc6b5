package serve

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

const readsEvery = time.Second

var problemReads = health.Problem{Name: "reads", Advice: "Make Redis and NATS reachable for this process."}

// newReader makes the reader of documents, and the census, which counts them.
func (p *process) newReader(metrics prometheus.Registerer, n *node) (*sink.Reader, *service.Dear, *collectionCensus,
	error) {
	opts := p.opts.Processor
	reader, err := sink.NewReader(p.reads.redis, sink.ReaderOptions{
		Prefix: opts.Prefix, Shards: max(opts.Shards, 1), Refuse: n.refused,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	dear, counts := service.NewDear(reader, n.lags), newCensus(reader)
	return reader, dear, counts, errors.Join(metrics.Register(dear), metrics.Register(counts))
}

// startReads makes the service that answers reads over NATS, once it is told to offer them, until it
// is stopped.
func (p *process) startReads(reader service.Reader, g *gate, metrics prometheus.Registerer) (*service.Service, error) {
	opts := p.opts.Processor
	sliding := service.Sliding{Reader: reader, NATS: p.reads.nats, Prefix: opts.Prefix,
		Slides: service.SlidesTotal("nats")}
	if err := metrics.Register(sliding.Slides); err != nil {
		return nil, err
	}
	settled := func(ctx context.Context) (wire.SettledReply, error) {
		return processor.Settled(ctx, p.reads.nats, opts.Prefix, max(opts.Shards, 1))
	}
	return service.Start(p.reads.nats, sliding,
		service.Options{Settled: settled, Prefix: opts.Prefix, Logger: p.opts.Logger, Version: p.opts.Version,
			Shards: opts.Shards, Metrics: metrics, Trace: opts.Trace, Later: true, Opened: g.opened})
}

// reach is whether this process reaches Redis.
type reach struct{ err atomic.Pointer[error] }

// lost returns why Redis does not answer; nil if it answers.
func (r *reach) lost() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

// watchReads reports on the board while the reads lack one of their servers, until ctx is
// done. It notes whether the process reaches Redis.
func watchReads(ctx context.Context, c connections, board *health.Board, r *reach) {
	tick := time.NewTicker(readsEvery)
	defer tick.Stop()
	for {
		asking, cancel := context.WithTimeout(ctx, 3*readsEvery)
		err := redisconn.PingAll(asking, c.redis)
		cancel()
		if ctx.Err() != nil {
			return
		}
		lost := err
		r.err.Store(&lost)
		switch {
		case !c.nats.IsConnected():
			err = errors.New("no read is answered: there is no connection to NATS")
		case err != nil:
			err = fmt.Errorf("reads that need it answer 503, because Redis does not answer: %w", err)
		}
		board.Set(problemReads, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
