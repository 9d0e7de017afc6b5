package harness

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
)

// Processor is a processor inside the test, with connections of its own.
type Processor struct {
	*processor.Processor
	NATS  *nats.Conn
	Redis *redis.Client

	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // what Run returned, once done
}

// StartProcessor runs a processor on a NATS (a URL) and a Redis (an address),
// which may be those of a [Proxy], until the test ends, and waits until it is ready.
func StartProcessor(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	p := LaunchProcessor(t, natsURL, redis, opts)
	p.WaitReady()
	return p
}

// LaunchProcessor is StartProcessor, but waits for nothing.
func LaunchProcessor(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	p := &Processor{NATS: Connect(t, natsURL), Redis: RedisClient(t, redis), t: t, done: make(chan struct{})}
	var err error
	if p.Processor, err = processor.New(p.NATS, p.Redis, opts); err != nil {
		t.Fatalf("processor: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		p.err = p.Run(ctx)
		close(p.done)
	}()
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Errorf("processor: %v", err)
		}
	})
	return p
}

// WaitReady waits until it has applied the log, as it was when it started.
func (p *Processor) WaitReady() {
	p.t.Helper()
	Until(p.t, Limit, "the processor is ready", func(context.Context) error {
		select {
		case <-p.done:
			return errors.Join(errors.New("it has ended"), p.err)
		default:
			return p.Ready()
		}
	})
}

// Stop ends it and returns what Run returned. Stopping twice is fine.
func (p *Processor) Stop() error {
	p.cancel()
	<-p.done
	return p.err
}

// Refused waits until it has ended by itself, and returns why. What it refused
// for is then no failure of the test.
func (p *Processor) Refused() error {
	p.t.Helper()
	Until(p.t, Limit, "the processor has ended", func(context.Context) error {
		select {
		case <-p.done:
			return nil
		default:
			return errors.New("it still runs")
		}
	})
	err := p.err
	p.err = nil
	return err
}
