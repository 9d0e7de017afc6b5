package harness

import (
	"context"
	"errors"
	"testing"
	"time"

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
	err    error // the result of Run, once done is closed
}

// StartProcessor runs a processor until the test ends, and waits until it is ready. A write makes a collection. The
// NATS URL and the Redis address may be those of a [Proxy].
func StartProcessor(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	p := LaunchProcessor(t, natsURL, redis, opts)
	p.WaitReady()
	return p
}

// StartClosed is StartProcessor, but a collection exists only once it was configured.
func StartClosed(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	p := launch(t, natsURL, redis, opts)
	p.WaitReady()
	return p
}

// LaunchProcessor is StartProcessor, but does not wait.
func LaunchProcessor(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	opts.OpenCollections = true
	return launch(t, natsURL, redis, opts)
}

func launch(t testing.TB, natsURL, redis string, opts processor.Options) *Processor {
	t.Helper()
	p := &Processor{NATS: Connect(t, natsURL, natsAsLapse()), Redis: redisAsLapse(t, redis), t: t,
		done: make(chan struct{})}
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

// WaitReady waits until the processor has applied the log that was there when it started.
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

// Stop stops the processor and returns the result of Run. Stopping twice is fine.
func (p *Processor) Stop() error {
	p.cancel()
	<-p.done
	return p.err
}

// Refused waits until the processor ends by itself, and returns its error. That error
// then does not fail the test.
func (p *Processor) Refused() error {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(Limit):
		p.t.Fatal("the processor still runs")
	}
	err := p.err
	p.err = nil
	return err
}
