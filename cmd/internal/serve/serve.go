package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/cmd/internal/redact"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
)

// Run serves until ctx is done (then it ends cleanly and returns nil) or until
// something makes going on wrong (then it ends too, and says what).
func Run(ctx context.Context, opts Options) error {
	start := time.Now()
	redis.SetLogger(redisLog{opts.Logger})
	defer giveHeapRoom()()
	p := &process{opts: opts}
	err := p.open(ctx)
	if err == nil {
		err = p.serve(ctx, start)
	}
	err = errors.Join(err, p.close())
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // told to stop while it was starting
	}
	return err
}

// process is what Run opens, and closes in the end.
type process struct {
	opts    Options
	at      addresses
	http    net.Listener
	log     connections // of the processor
	reads   connections
	closers []func() error
}

// open takes the ports and the data directory, starts the embedded servers and
// connects. What it opened is for close to close, even if it fails.
func (p *process) open(ctx context.Context) (err error) {
	opts := p.opts
	if opts.Redis != "" {
		if _, err := parseRedis(opts.Redis); err != nil {
			return err
		}
	}
	if p.http, err = listen("--http-listen", opts.HTTPListen); err != nil {
		return err
	}
	p.opened(func() error {
		if err := p.http.Close(); !errors.Is(err, net.ErrClosed) { // the HTTP server closes it too
			return err
		}
		return nil
	})
	if err := checkPorts(opts); err != nil {
		return err
	}
	p.withdraw() // what a process that was killed left there
	p.at = addresses{NATS: redact.URLs(opts.NATS), Redis: redact.URLs(opts.Redis), HTTP: "http://" + p.http.Addr().String()}

	var embedded *natsServer
	if opts.NATS == "" {
		release, err := lockData(opts.Data)
		if err != nil {
			return err
		}
		p.opened(release)
		if embedded, err = startNATS(ctx, opts); err != nil {
			return err
		}
		p.opened(func() error { embedded.stop(); return nil })
		p.at.NATS, p.at.Data = embedded.URL, opts.Data
	}
	if opts.Redis == "" {
		m, err := startRedis(opts.RedisListen)
		if err != nil {
			return err
		}
		p.opened(func() error { m.Close(); return nil })
		opts.Redis = "redis://" + m.Addr()
		p.at.Redis = opts.Redis
	}
	if p.log, err = p.connect(ctx, opts, embedded, "log", processorPool); err != nil {
		return err
	}
	p.reads, err = p.connect(ctx, opts, embedded, "reads", readsPool)
	return err
}

func (p *process) opened(close func() error) { p.closers = append(p.closers, close) }

// close closes in the reverse order of opening.
func (p *process) close() (err error) {
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i]())
	}
	return err
}

// serve runs processor, reads and HTTP.
func (p *process) serve(ctx context.Context, start time.Time) error {
	opts, log := p.opts, p.opts.Logger
	metrics := newRegistry()
	proc, err := processor.New(p.log.nats, p.log.redis, processor.Options{
		Prefix: opts.Prefix, Partitions: opts.Partitions, Logger: log, Metrics: metrics,
		Replicas: opts.Replicas, LogMaxAge: opts.LogMaxAge, LogMaxBytes: opts.LogMaxBytes,
		EventsMaxAge: opts.EventsMaxAge, DuplicateWindow: opts.DuplicateWindow,
	})
	if err != nil {
		return err
	}
	reader, err := sink.NewReader(p.reads.redis, sink.ReaderOptions{Prefix: opts.Prefix, Partitions: opts.Partitions})
	if err != nil {
		return err
	}
	svc, err := service.Start(p.reads.nats, reader, service.Options{Prefix: opts.Prefix, Logger: log, Version: opts.Version})
	if err != nil {
		return err
	}
	defer svc.Stop()
	failed := make(chan error, 2)
	web := serveHTTP(p.http, handler(proc.Ready, metrics), log, failed)
	defer shutdownHTTP(web)
	log.Info("listening", slog.String("nats", p.at.NATS), slog.String("redis", p.at.Redis),
		slog.String("http", p.at.HTTP), slog.String("data", p.at.Data))

	// The processor is stopped after the reads, so not by ctx itself.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- proc.Run(running) }()
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		if err := p.announce(running, proc.Ready, start); err != nil {
			failed <- err
		}
	}()
	defer func() { stop(); <-announced; p.withdraw() }()

	select {
	case <-ctx.Done():
		log.Info("stopping")
	case err = <-failed:
	case err := <-ended:
		if err == nil {
			err = errors.New("the processor ended without being told to")
		}
		return err
	}
	svc.Stop()
	stop()
	return errors.Join(err, <-ended)
}

// announce waits until the processor is ready, and says so once.
func (p *process) announce(ctx context.Context, ready func() error, start time.Time) error {
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ready() != nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	if p.opts.ReadyFile != "" {
		if err := writeReadyFile(p.opts.ReadyFile, p.at); err != nil {
			return err
		}
	}
	p.opts.Logger.Info("ready", slog.String("took", time.Since(start).Round(time.Millisecond).String()))
	return nil
}

// withdraw takes back what announce wrote.
func (p *process) withdraw() {
	if p.opts.ReadyFile == "" {
		return
	}
	if err := os.Remove(p.opts.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.opts.Logger.Warn("ready file", slog.Any("error", fmt.Errorf("remove: %w", err)))
	}
}
