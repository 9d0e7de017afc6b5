package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
)

// BeginAnew gives up what a person accepts to lose, while no process serves the prefix: see
// [processor.Processor.BeginAnew]. It returns what it has done, and the refusals that are left.
func BeginAnew(ctx context.Context, opts Options, accepted processor.Accepted) (done []string,
	left []*processor.Refusal, err error) {
	redis.SetLogger(redisconn.Logging{Logger: opts.Logger})
	p := &process{opts: opts}
	defer func() { err = errors.Join(err, p.close()) }()
	nc, err := p.openOnly(ctx)
	if err != nil {
		return nil, nil, err
	}
	db, err := p.opts.Redis.Connect(ctx, processorPool)
	if err != nil {
		return nil, nil, err
	}
	p.openedRedis(db)
	one := opts.Processor
	one.Logger, one.Shards = opts.Logger, max(one.Shards, 1)
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, nil, err
	}
	_, err = js.Stream(ctx, one.Prefix.Log(0, one.Shards).Stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil, fmt.Errorf("there is no log of lapse with the prefix %q and %d shards there: give the flags and "+
			"variables with which lapse serve runs", one.Prefix, one.Shards)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up the log of lapse: %w: run the same command again. Nothing was changed", err)
	}
	if opts.NATS != "" {
		if err := nobodyServes(ctx, opts); err != nil {
			return nil, nil, err
		}
	}
	for one.Shard = range one.Shards {
		proc, err := processor.New(nc, db, one)
		if err != nil {
			return done, left, err
		}
		did, refused, err := proc.BeginAnew(ctx, accepted)
		if done = append(done, did...); refused != nil {
			left = append(left, refused)
		}
		if err != nil {
			return done, left, fmt.Errorf("%w: run the same command again", err)
		}
	}
	return done, left, nil
}

// openOnly opens the servers and connects to NATS. Nobody else can use a NATS server that is embedded. The
// caller calls close, even if it fails.
func (p *process) openOnly(ctx context.Context) (nc *nats.Conn, err error) {
	opts := p.opts
	if err := checkServers(opts); err != nil {
		return nil, err
	}
	if opts.Redis.URL == "" {
		if p.opts.Redis.Dial, err = p.startRedis(); err != nil {
			return nil, err
		}
	}
	if opts.NATS != "" {
		if nc, err = connectNATS(opts, nil, "begin-anew"); err == nil {
			p.opened(func() error { nc.Close(); return nil })
		}
		return nc, err
	}
	if _, err := os.Stat(filepath.Join(opts.Data, storeName)); err != nil {
		return nil, fmt.Errorf("--data %s: there is no log of lapse: %w", opts.Data, err)
	}
	nc, closed, err := Offline(ctx, opts.Data)
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("--data %s: a lapse serve is using it: stop it, and run this again. Nothing was changed",
			opts.Data)
	}
	if err != nil {
		return nil, err
	}
	p.opened(func() error { closed(); return nil })
	return nc, nil
}

// nobodyServes returns an error if a process serves the prefix on a NATS server that is not embedded.
func nobodyServes(ctx context.Context, opts Options) error {
	c, err := client.Connect(client.Options{Server: opts.NATS, Prefix: opts.Processor.Prefix, Login: opts.NATSLogin})
	if err != nil {
		return err
	}
	defer c.Close()
	found, err := c.Status(ctx)
	if err != nil {
		return err
	}
	for _, m := range found.Members {
		if m.Role != client.RoleGone {
			return fmt.Errorf("the process %s serves the prefix %q (it was seen %.0f s ago): stop every process of lapse, "+
				"and run this again. If it was killed, wait for 10 seconds. Nothing was changed", m.Name, opts.Processor.Prefix,
				m.SeenAgo)
		}
	}
	return nil
}
