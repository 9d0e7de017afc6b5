// Package paths has a function for each way through statements.
package paths

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

type pinger interface{ ping(ctx context.Context) error }

type one struct{ client redis.UniversalClient }

func (o one) ping(ctx context.Context) error { return o.client.Ping(ctx).Err() }

func (o one) then(ctx context.Context) error {
	if err := o.ping(ctx); err != nil { // held
		return err
	}
	return o.ping(ctx) // held
}

func (o one) either(ctx context.Context, first bool) error {
	if first {
		return o.ping(ctx)
	}
	return o.client.Ping(ctx).Err()
}

func (o one) pipeline(ctx context.Context) error {
	p := o.client.Pipeline()
	p.Ping(ctx)
	p.Ping(ctx)
	_, err := p.Exec(ctx)
	return err
}

func (o one) beside(ctx context.Context) error {
	go func() { _ = o.ping(ctx) }()
	return o.ping(ctx)
}

func (o one) cases(ctx context.Context, n int) error {
	switch n {
	case 0:
		return o.ping(ctx)
	case 1:
		_ = o.ping(ctx)
	default:
		return errors.New("another")
	}
	return nil
}

func twice(ctx context.Context, o one) error {
	_ = o.ping(ctx)    // held
	return o.ping(ctx) // held
}

func loop(ctx context.Context, all []one) {
	for _, o := range all {
		_ = o.ping(ctx) // held
	}
}

func retry(ctx context.Context, o one) {
	for {
		if o.ping(ctx) == nil { // held
			return
		}
	}
}

func condition(ctx context.Context, o one) {
	for o.ping(ctx) != nil { // held
		ctx = context.WithoutCancel(ctx) // the call of the condition stands in front of the loop's body
	}
}

func inBranch(ctx context.Context, o one, more bool) error {
	if more {
		_ = o.ping(ctx) // held
	}
	return o.ping(ctx) // held
}

func inFunction(ctx context.Context, o one, each func(func() error) error) error {
	if err := each(func() error {
		return o.ping(ctx) // held
	}); err != nil {
		return err
	}
	return o.ping(ctx) // held
}

func byInterface(ctx context.Context, p pinger) error {
	_ = p.ping(ctx)    // held
	return p.ping(ctx) // held
}

func orbit(ctx context.Context, js jetstream.JetStream) error {
	_, _ = jetstreamext.GetBatch(ctx, js, "s", 1)    // held
	_, err := jetstreamext.GetBatch(ctx, js, "s", 1) // held
	return err
}
