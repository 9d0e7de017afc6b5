package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/cmd/internal/tracing"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Options say how a process serves.
type Options struct {
	Version string // in SemVer, for the NATS service
	Logger  *slog.Logger

	// NATS is the URL of the server, or comma-separated URLs. If it is empty, the process
	// embeds a server.
	NATS       string
	NATSLogin  credentials.NATS
	NATSListen string        // address of the embedded server
	NATSToken  string        // that clients of the embedded server must give; none if empty
	NATSSync   time.Duration // how often the embedded server syncs to disk; 0: at every write
	Data       string        // directory of the embedded server

	// Follow is the region to follow: its JetStream domain, or the URL of a NATS server there; none if empty.
	Follow string
	// MaxStaleness is how far reads may be behind the first region; they answer 503 beyond. 0 is no limit.
	MaxStaleness time.Duration
	// WritesTo is the URL of the API of the first region, to which writes over HTTP are sent (421); if it is empty,
	// they are passed on.
	WritesTo string

	// Redis is the server, the cluster, or the Sentinels. Without a URL, the process embeds a
	// Redis, which forgets everything at the end.
	Redis       redisconn.Options
	RedisListen string // address of the embedded server, which otherwise listens nowhere; needs Data

	HTTP      web.Options
	ReadyFile string // see writeReadyFile; none if empty

	// Processor is the options of the processor. Run sets its Logger, Metrics and Health. It has a
	// prefix: the other parts of the process take it from here.
	Processor processor.Options

	permissions *natsPermissions // what NATS denies; Run sets it
	malformed   *malformed       // Run sets it
	files       int              // that the process may have open; those of the system if 0
}

// ballast is memory that the process takes and never touches, so it costs none. Go collects garbage when the heap,
// with this, has doubled. lapse keeps little and allocates much: without it, Go would collect many times a second.
const ballast = 64 << 20

// Run serves until ctx is done, and then ends cleanly and returns nil. If it cannot go on,
// it ends before that and returns the reason.
func Run(ctx context.Context, opts Options) error {
	start := time.Now()
	if _, err := wire.ParsePrefix(string(opts.Processor.Prefix)); err != nil {
		return err
	}
	redis.SetLogger(redisconn.Logging{Logger: opts.Logger})
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		defer runtime.KeepAlive(make([]byte, ballast))
	}
	opts.permissions, opts.malformed = newPermissions(), newMalformed()
	p := &process{opts: opts}
	err := p.open(ctx)
	if err == nil {
		err = p.serve(ctx, start)
	}
	err = errors.Join(err, p.close())
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil // it was told to stop while it was starting
	}
	return err
}

// process is what Run opens, and closes at the end.
type process struct {
	opts    Options
	at      addresses
	http    net.Listener
	files   *web.Files  // of the HTTP server
	log     connections // of the processor
	reads   connections
	api     apiConnections
	tracer  *tracing.Tracer // nil if tracing is off
	beats   *nats.Conn      // of the member alone, so that nothing delays its beats
	closers []func() error

	embedded *natsServer // nil if NATS is elsewhere
}

// open takes the ports and the data directory, starts the embedded servers and connects.
// The caller calls close, even if open fails.
func (p *process) open(ctx context.Context) (err error) {
	opts := p.opts
	if err := checkServers(opts); err != nil {
		return err
	}
	if p.http, err = listen("--http-listen", opts.HTTP.Listen); err != nil {
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
	if opts.NATS == "" {
		release, err := lockData(opts.Data)
		if err != nil {
			return err
		}
		p.opened(release)
	}
	if opts.HTTP, err = p.tokens(); err != nil {
		return err
	}
	if p.files, err = opts.HTTP.Load(); err != nil {
		return err
	}
	p.withdraw() // the ready file of a process that was killed
	p.at = addresses{NATS: credentials.RedactURLs(opts.NATS), Redis: credentials.RedactURLs(opts.Redis.URL),
		HTTP: p.files.Scheme() + "://" + p.http.Addr().String()}

	if opts.NATS == "" {
		if p.embedded, err = startNATS(ctx, opts); err != nil {
			return err
		}
		p.opened(func() error { p.embedded.stop(); return nil })
		p.at.NATS, p.at.Data = p.embedded.URL, opts.Data
	}
	if opts.Redis.URL == "" {
		if opts.Redis.Dial, err = p.startRedis(); err != nil {
			return err
		}
	}
	if p.log, err = p.connect(ctx, opts, p.embedded, "log", processorPool); err != nil {
		return err
	}
	if p.reads, err = p.connect(ctx, opts, p.embedded, "reads", readsPool); err != nil {
		return err
	}
	if p.beats, err = connectNATS(opts, p.embedded, "beats"); err != nil {
		return err
	}
	p.opened(func() error { p.beats.Close(); return nil })
	p.api, err = p.connectAPI(opts, p.embedded)
	return err
}

func (p *process) opened(close func() error) { p.closers = append(p.closers, close) }

// openedRedis is opened for a client of Redis. It may fail to say good-bye to a server that is gone: nothing is lost by
// that, and the process has ended cleanly.
func (p *process) openedRedis(client io.Closer) {
	p.opened(func() error { _ = client.Close(); return nil })
}

// close closes in the reverse order of opening.
func (p *process) close() (err error) {
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i]())
	}
	return err
}

// connections are all to NATS.
func (p *process) connections() []*nats.Conn {
	return []*nats.Conn{p.log.nats, p.reads.nats, p.beats, p.api.nats, p.api.client.Conn()}
}

// newNode makes a processor for each shard, and the member. They do not run yet.
func (p *process) newNode(ctx context.Context, metrics *prometheus.Registry, board *health.Board, redis *reach) (*node,
	*lease.Member, error) {
	opts := p.opts.Processor
	opts.Shards = max(opts.Shards, 1)
	domain, err := p.follows(ctx)
	if err != nil {
		return nil, nil, err
	}
	opts.Follow = domain
	n := &node{maxStaleness: p.opts.MaxStaleness, board: board, version: p.opts.Version, http: p.at.HTTP,
		redis: &sameRedis{
			read:   func(ctx context.Context) (string, error) { return store.Identity(ctx, p.reads.redis, opts.Prefix) },
			shards: opts.Shards, board: board,
		}}
	if p.opts.WritesTo != "" {
		n.first = newFirst(p.opts.WritesTo, n.ownFollowing, p.reads.nats, opts.Prefix, opts.Shards)
	}
	for i := range opts.Shards {
		opts := opts
		opts.Shard, opts.Logger, opts.Metrics, opts.Health = i, p.opts.Logger, metrics, board
		if opts.Shards > 1 {
			label := strconv.Itoa(i)
			opts.Logger = opts.Logger.With(slog.Int("shard", i))
			opts.Metrics, opts.Health = prometheus.WrapRegistererWith(prometheus.Labels{"shard": label}, metrics), board.Of(i)
		}
		proc, err := processor.New(p.log.nats, p.log.redis, opts)
		if err != nil {
			return nil, nil, err
		}
		if err := proc.Check(ctx); endsStart(err) {
			return nil, nil, err
		}
		n.shards = append(n.shards, shard{proc, opts.Health})
	}
	if opts.Shards > 1 { // otherwise the processor has registered the board
		if err := metrics.Register(board); err != nil {
			return nil, nil, err
		}
	}
	member, err := lease.New(p.beats, lease.Options{
		Prefix: opts.Prefix, Shards: opts.Shards, Replicas: opts.Replicas, Logger: p.opts.Logger,
		Describe: n.describe, Unfit: func() error { return errors.Join(redis.lost(), n.redis.refused()) },
		Region:    p.region(ctx),
		Impatient: p.opts.NATS == "", // no other process can have worked while the embedded server was down
	})
	if err != nil {
		return nil, nil, err
	}
	n.member, n.redis.member, n.redis.tell = member, member, member.Tell
	n.first.ask(ctx)
	return n, member, metrics.Register(n)
}

// endsStart reports whether the process must end because of what a processor has found in its check. Any other error is
// a problem of the shard, which may be over at a later try: a region may be started before the link to the first one.
func endsStart(err error) bool {
	if refusal := (*processor.Refusal)(nil); errors.As(err, &refusal) {
		return refusal.EndsStart()
	}
	return err != nil && !errors.Is(err, processor.ErrPromotion) && !errors.Is(err, processor.ErrOrigin)
}

// startNode is newNode, with what NATS denies at the start in its error.
func (p *process) startNode(ctx context.Context, metrics *prometheus.Registry, board *health.Board,
	redis *reach) (n *node, member *lease.Member, err error) {
	err = p.opts.permissions.Start(ctx, func(ctx context.Context) (err error) {
		n, member, err = p.newNode(ctx, metrics, board, redis)
		return err
	})
	return n, member, err
}

// serve runs processor, reads and HTTP, until ctx is done or one of them fails.
func (p *process) serve(ctx context.Context, start time.Time) error {
	log := p.opts.Logger
	metrics, board, redis := newRegistry(), health.New(log), &reach{}
	metrics.MustRegister(p.opts.malformed)
	if err := p.startTracing(ctx, metrics); err != nil {
		return err
	}
	n, member, err := p.startNode(ctx, metrics, board, redis)
	if err != nil {
		return err
	}
	data, err := p.watchData(metrics, board)
	if err != nil {
		return err
	}
	reader, dear, census, err := p.newReader(metrics, n)
	if err != nil {
		return err
	}
	g := newGate()
	reads, err := p.startReads(dear, g, metrics)
	if err != nil {
		return err
	}
	defer reads.Stop()
	n.redis.offer = reads.Offer
	failed := make(chan error, 6+len(p.connections()))
	server, err := p.startWeb(reader, dear, n, g, metrics, failed)
	if err != nil {
		return err
	}
	defer server.Stop()
	log.Info("listening", slog.String("nats", p.at.NATS), slog.String("redis", cmp.Or(p.at.Redis, "in this process")),
		slog.String("http", p.at.HTTP), slog.String("data", p.at.Data))

	// The processor stops after the reads, and so not with ctx.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- member.Run(running, n.apply) }()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() { census.Run(running, n.counts) })
	watching.Go(func() { watchReads(running, p.reads, board, redis) })
	watching.Go(func() { n.watch(running) })
	watching.Go(func() { n.first.run(running) })
	orFail := func(run func(context.Context) error) func() {
		return func() {
			if err := run(running); err != nil {
				failed <- err
			}
		}
	}
	watching.Go(orFail(func(c context.Context) error { return processor.AnswerRegions(c, p.log.nats, p.opts.Processor) }))
	watching.Go(orFail(n.redis.run))
	watching.Go(orFail(func(context.Context) error { return g.run(ctx, n.ready, p.embedded.opening()) }))
	p.watch(running, &watching, board, data, failed)
	var announcing sync.WaitGroup
	announcing.Go(orFail(func(c context.Context) error { return p.announce(c, g.ready(n.ready), member.Store, start) }))
	defer func() { stop(); announcing.Wait(); p.withdraw() }()

	select {
	case <-ctx.Done():
		log.Info("stopping")
		server.EndStreams()
	case err = <-failed:
	case err := <-ended:
		if err == nil {
			err = errors.New("the processor ended, although nobody stopped it")
		}
		return err
	}
	reads.Stop()
	stop()
	return errors.Join(err, <-ended)
}

// watchData makes what watches the data directory; nil without an embedded NATS server.
func (p *process) watchData(metrics *prometheus.Registry, board *health.Board) (*dataWatch, error) {
	if p.at.Data == "" {
		return nil, nil
	}
	data, err := newDataWatch(p.at.Data, p.opts.Processor.Prefix, p.opts.Processor.Shards, board, p.embedded.limitStore)
	if err != nil {
		return nil, err
	}
	return data, errors.Join(metrics.Register(data), metrics.Register(p.embedded.clients))
}

// watch watches what the process has open, until ctx is done: the connections to NATS, its
// permissions, the files of the HTTP server, and the data directory if data is not nil.
func (p *process) watch(ctx context.Context, watching *sync.WaitGroup, board *health.Board, data *dataWatch,
	failed chan<- error) {
	log := p.opts.Logger
	for _, nc := range p.connections() {
		watching.Go(func() {
			if err := untilClosed(ctx, nc); err != nil {
				failed <- err
			}
		})
		if p.opts.NATS != "" {
			watching.Go(func() { leaveServers(ctx, nc, log.With(slog.String("connection", nc.Opts.Name))) })
		}
	}
	watching.Go(func() { p.opts.permissions.Watch(ctx, board) })
	watching.Go(func() { p.files.WatchSignals(ctx, log) })
	if data != nil {
		watching.Go(func() { p.embedded.clients.Run(ctx) })
		watching.Go(func() {
			if err := data.Run(ctx); err != nil {
				failed <- err
			}
		})
	}
}

// startTracing starts the tracer, if the environment asks for one, until p is closed. By then nothing
// records spans any more.
func (p *process) startTracing(ctx context.Context, metrics prometheus.Registerer) (err error) {
	p.tracer, err = tracing.Start(ctx,
		tracing.Options{Prefix: p.opts.Processor.Prefix, Version: p.opts.Version, Logger: p.opts.Logger, Metrics: metrics})
	if p.tracer != nil {
		p.opts.Processor.Trace = p.tracer.Record
		p.opened(func() error { p.tracer.Close(); return nil })
	}
	return err
}
