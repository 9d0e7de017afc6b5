package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/trace"
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

// Reader answers the requests: a *sink.Reader. It must be safe for concurrent use, and return
// soon after its context is done.
type Reader interface {
	Get(ctx context.Context, collection, id string) (sink.Document, error)
	List(ctx context.Context, collection string, opts sink.ListOptions) (sink.Page, error)
	Query(ctx context.Context, collection string, opts sink.QueryOptions) (sink.QueryPage, error)
	Count(ctx context.Context, collection string) (wire.CountReply, error)
	Forecast(ctx context.Context, collection string, opts sink.ForecastOptions) (wire.ForecastReply, error)
	Config(ctx context.Context, collection string) (wire.Config, error)
	Collections(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error)
}

var _ Reader = (*sink.Reader)(nil)

// Options say how a Service serves. The zero value of each is its default.
type Options struct {
	Prefix      wire.Prefix  // wire.DefaultPrefix
	Logger      *slog.Logger // none
	Version     string       // of the service, in SemVer; "0.0.0"
	Shards      int          // of the prefix, for the metadata; 1
	Concurrency int          // requests that are answered at a time; DefaultConcurrency
	// of one request, from the moment at which the service begins to answer it; DefaultTimeout
	Timeout time.Duration
	Metrics prometheus.Registerer // none
	Trace   trace.Recorder        // none
	// Settled is the reply to that read. Without it, the read fails.
	Settled func(ctx context.Context) (wire.SettledReply, error)
	// Later: answer no requests before [Service.Offer].
	Later bool
	// Opened is closed once requests may be answered: those that arrive before wait for that. Nil is from the beginning.
	Opened <-chan struct{}
}

// Service is a running service.
type Service struct {
	nc     *nats.Conn
	reader Reader
	opts   Options
	log    *slog.Logger
	stats  map[string]*stats // by verb
	meters *meters

	id      string // of this instance
	started time.Time

	mu      sync.Mutex
	subs    []*nats.Subscription // none while it answers no requests
	stopped bool

	ctx    context.Context // ends the requests in flight; Start makes it, so it is not that of a caller
	cancel context.CancelFunc
	slots  chan struct{} // one for each request in flight
	stop   sync.Once
}

// Start serves, unless Options.Later is set, until [Service.Stop] or until the connection is closed. The caller closes
// the connection after Stop. If too many requests wait and the client library drops some, it calls
// the connection's error handler.
func Start(nc *nats.Conn, reader Reader, opts Options) (*Service, error) {
	var err error
	if opts.Prefix, err = opts.Prefix.OrDefault(); err != nil {
		return nil, fmt.Errorf("start the reads: %w", err)
	}
	opts.Version = cmp.Or(opts.Version, defaultVersion)
	opts.Shards = cmp.Or(opts.Shards, 1)
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultConcurrency)
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	if opts.Concurrency < 0 || opts.Timeout < 0 {
		return nil, fmt.Errorf("start the reads: concurrency %d, timeout %s: neither may be negative", opts.Concurrency,
			opts.Timeout)
	}
	if !semVer.MatchString(opts.Version) {
		return nil, fmt.Errorf("start the reads: version %q is not valid: use one such as 1.2.3", opts.Version)
	}
	s := &Service{
		nc:     nc,
		reader: reader,
		opts:   opts,
		log:    opts.Logger,
		stats:  make(map[string]*stats),
		slots:  make(chan struct{}, opts.Concurrency),
		meters: newMeters(),
		id:     rand.Text(), started: time.Now().UTC(),
	}
	if opts.Metrics != nil {
		if err := s.meters.register(opts.Metrics); err != nil {
			return nil, fmt.Errorf("start the reads: %w", err)
		}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, e := range endpoints {
		s.stats[e.verb] = &stats{}
	}
	if opts.Later {
		return s, nil
	}
	if err := s.Offer(true); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// Offer answers requests from now on, or leaves them to the other processes: it still answers
// those that have arrived. To offer twice, to leave twice, and both after Stop do nothing.
func (s *Service) Offer(yes bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped || yes == (s.subs != nil):
		return nil
	case yes:
		if err := s.subscribe(); err != nil {
			return fmt.Errorf("start the reads: %w", err)
		}
		return nil
	}
	return s.unsubscribe()
}

// dispatch answers each request of an endpoint in a goroutine. The message loop waits only
// while Options.Concurrency requests are in flight.
func (s *Service) dispatch(e endpoint) nats.MsgHandler {
	return func(req *nats.Msg) {
		if req.Reply == "" {
			return // nobody waits for an answer
		}
		s.slots <- struct{}{}
		go func() {
			defer func() { <-s.slots }()
			if s.opts.Opened != nil {
				select {
				case <-s.opts.Opened:
				case <-s.ctx.Done():
				}
			}
			s.answer(e, req)
		}()
	}
}

// answer answers one request. It counts the request before it publishes the answer, so that a
// client that has the answer finds it in the statistics.
func (s *Service) answer(e endpoint, req *nats.Msg) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.Timeout)
	defer cancel()

	stats := s.stats[e.verb]
	reply, err := s.ask(ctx, e, req)
	took := time.Since(start)
	stats.add(took)
	code := wire.StatusOK
	if err == nil {
		reply.Subject = req.Reply
		if err = s.nc.PublishMsg(reply); errors.Is(err, nats.ErrMaxPayload) {
			err = tooLarge(reply, s.nc.MaxPayload())
		}
	}
	if err != nil {
		failure := s.failureOf(err)
		code = failure.code
		if failure.code == wire.StatusInternal {
			s.log.Error("reads: request failed", slog.String("subject", req.Subject), slog.Any("error", err))
		}
		stats.fail(failure)
		// If this cannot be published either, the connection is lost, and its handlers log
		// that.
		_ = s.nc.PublishMsg(failure.message(req.Reply))
	}
	s.meters.observe(e.verb, code, took)
	if s.opts.Trace != nil {
		s.record(e, req, code, start)
	}
}

func (s *Service) ask(ctx context.Context, e endpoint, req *nats.Msg) (*nats.Msg, error) {
	args, err := s.arguments(req.Subject, e)
	if err != nil {
		return nil, err
	}
	return e.handle(ctx, s, args, req.Data)
}

// Stop accepts no more requests, answers those that have arrived, and returns when they are
// answered. It answers those that take longer than twice the timeout with a 503. Stopping twice
// is fine.
func (s *Service) Stop() {
	s.stop.Do(func() {
		if err := s.Offer(false); err != nil {
			s.log.Warn("reads: stop", slog.Any("error", err))
		}
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
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
		for range cap(s.slots) { // for requests that were dispatched after the limit
			<-s.slots
		}
	})
}

// dispatched waits until every request that the server has sent is in flight.
func (s *Service) dispatched(limit <-chan time.Time) {
	s.flush() // after it, the subscriptions have ended and all requests have arrived
	done := make(chan struct{})
	if s.nc.Barrier(func() { close(done) }) != nil {
		return // closed: no request arrives any more, and none can be answered
	}
	select {
	case <-done:
	case <-limit:
		s.cancel()
	}
}

func (s *Service) flush() {
	if s.nc.IsConnected() {
		// If it fails, the connection is lost, and there is nothing to do here.
		_ = s.nc.FlushTimeout(s.opts.Timeout)
	}
}
