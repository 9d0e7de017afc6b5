package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Name is the service's name, whatever the prefix.
const Name = "lapse"

// Defaults of Options.
const (
	DefaultConcurrency = 256
	DefaultTimeout     = 2 * time.Second
	defaultVersion     = "0.0.0"
)

// Reader is what the service asks: a *sink.Reader. It must be safe for
// concurrent use, and return soon after its context is done.
type Reader interface {
	Get(ctx context.Context, collection, id string) (sink.Document, error)
	List(ctx context.Context, collection string, opts sink.ListOptions) (sink.Page, error)
	Count(ctx context.Context, collection string) (wire.CountReply, error)
	Forecast(ctx context.Context, collection string, buckets int, within time.Duration) (wire.ForecastReply, error)
	Config(ctx context.Context, collection string) (wire.Config, error)
}

var _ Reader = (*sink.Reader)(nil)

// Options say how a Service serves. The zero value of each is its default.
type Options struct {
	Prefix      wire.Prefix   // wire.DefaultPrefix
	Logger      *slog.Logger  // none
	Version     string        // of the service, in SemVer; "0.0.0"
	Concurrency int           // requests that are answered side by side; DefaultConcurrency
	Timeout     time.Duration // of one request, from when its turn comes; DefaultTimeout
}

// Service is a running service.
type Service struct {
	nc     *nats.Conn
	reader Reader
	opts   Options
	log    *slog.Logger
	micro  micro.Service
	stats  map[string]*stats // by verb

	ctx    context.Context // ends the requests in flight; made by Start, so not a caller's
	cancel context.CancelFunc
	slots  chan struct{} // one for each request in flight
	stop   sync.Once
}

// Start serves until [Service.Stop] or until the connection is closed. The
// connection's error handler should be set before. The connection stays the
// caller's, who closes it after Stop.
func Start(nc *nats.Conn, reader Reader, opts Options) (*Service, error) {
	opts.Prefix = cmp.Or(opts.Prefix, wire.DefaultPrefix)
	opts.Version = cmp.Or(opts.Version, defaultVersion)
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultConcurrency)
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	if _, err := wire.ParsePrefix(string(opts.Prefix)); err != nil {
		return nil, fmt.Errorf("start the reads: %w", err)
	}
	if opts.Concurrency < 0 || opts.Timeout < 0 {
		return nil, fmt.Errorf("start the reads: concurrency %d, timeout %s: neither may be negative", opts.Concurrency, opts.Timeout)
	}
	s := &Service{
		nc:     nc,
		reader: reader,
		opts:   opts,
		log:    opts.Logger,
		stats:  make(map[string]*stats),
		slots:  make(chan struct{}, opts.Concurrency),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, e := range endpoints {
		s.stats[e.verb] = &stats{}
	}
	if err := s.serve(); err != nil {
		s.cancel()
		return nil, fmt.Errorf("start the reads: %w", err)
	}
	return s, nil
}

func (s *Service) serve() error {
	svc, err := micro.AddService(s.nc, micro.Config{
		Name:         Name,
		Version:      s.opts.Version,
		Description:  "reads of documents that expire: get, list, count, forecast, config",
		Metadata:     map[string]string{"prefix": string(s.opts.Prefix)},
		StatsHandler: func(e *micro.Endpoint) any { return s.stats[e.Name].snapshot() },
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.log.Warn("reads: subscription failed", slog.String("subject", err.Subject), slog.String("error", err.Description))
		},
	})
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		subject := s.opts.Prefix.Read(e.verb, ">")
		err := svc.AddEndpoint(e.verb, s.dispatch(e), micro.WithEndpointSubject(subject),
			micro.WithEndpointMetadata(map[string]string{"subject": s.opts.Prefix.Read(e.verb, e.arguments)}))
		if err != nil {
			return errors.Join(fmt.Errorf("endpoint %s: %w", subject, err), svc.Stop())
		}
	}
	s.micro = svc
	return nil
}

// dispatch hands an endpoint's requests to goroutines: its message loop waits
// only when as many as may are in flight.
func (s *Service) dispatch(e endpoint) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		if req.Reply() == "" {
			return // nobody to answer
		}
		s.slots <- struct{}{}
		go func() {
			defer func() { <-s.slots }()
			s.answer(e, req)
		}()
	})
}

// answer answers one request. It publishes by itself: the Respond and Error of
// a micro request are for its message loop alone.
func (s *Service) answer(e endpoint, req micro.Request) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
	defer cancel()

	reply, err := s.ask(ctx, e, req)
	if err == nil {
		reply.Subject = req.Reply()
		if err = s.nc.PublishMsg(reply); errors.Is(err, nats.ErrMaxPayload) {
			err = tooLarge(reply, s.nc.MaxPayload())
		}
	}
	var failure *failure
	if err != nil {
		failure = s.failureOf(err)
		if failure.code == wire.StatusInternal {
			s.log.Error("reads: request failed", slog.String("subject", req.Subject()), slog.Any("error", err))
		}
		// If this cannot be published either, the connection is gone and so
		// is the caller's request; the connection's handlers log that.
		_ = s.nc.PublishMsg(failure.message(req.Reply()))
	}
	s.stats[e.verb].add(time.Since(start), failure)
}

func (s *Service) ask(ctx context.Context, e endpoint, req micro.Request) (*nats.Msg, error) {
	args, err := s.arguments(req.Subject(), e)
	if err != nil {
		return nil, err
	}
	return e.handle(ctx, s, args, req.Data())
}

// Stop takes no more requests, answers those that have come, and returns when
// they are answered. Those that are not within twice the timeout are answered
// with a 503. Stopping twice is fine.
func (s *Service) Stop() {
	s.stop.Do(func() {
		if err := s.micro.Stop(); err != nil {
			s.log.Warn("reads: stop", slog.Any("error", err))
		}
		limit := time.NewTimer(2 * s.opts.Timeout)
		defer limit.Stop()
		s.dispatched(limit.C)
		for range cap(s.slots) {
			select {
			case s.slots <- struct{}{}:
			case <-limit.C:
				s.cancel()
				s.slots <- struct{}{}
			}
		}
		s.cancel()
		s.flush()
		for range cap(s.slots) { // for what came after the limit
			<-s.slots
		}
	})
}

// dispatched waits until the requests that the server has sent are in flight.
func (s *Service) dispatched(limit <-chan time.Time) {
	s.flush() // the server has ended the subscriptions, and what it sent before is here
	done := make(chan struct{})
	if s.nc.Barrier(func() { close(done) }) != nil {
		return // closed: nothing more comes, and nothing can be answered
	}
	select {
	case <-done:
	case <-limit:
		s.cancel()
	}
}

func (s *Service) flush() {
	if s.nc.IsConnected() {
		// A failure means that the connection is gone: nothing to be done here.
		_ = s.nc.FlushTimeout(s.opts.Timeout)
	}
}
