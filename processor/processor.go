package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor/streams"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// How much is done at a time, and how long is waited.
const (
	inboxMessages = 4096    // read ahead of what is applied, per partition
	inboxBytes    = 8 << 20 // likewise
	pullMessages  = 8192    // asked for in one request; two are open, to read ahead
	pullBytes     = 4 << 20 // likewise, or more where one message is larger

	batchMessages = 512     // applied in one step
	batchBytes    = 4 << 20 // likewise
	batchWhole    = 64      // of them, those that need a stored body

	reapChunk       = 256     // documents reaped in one step
	reapBytes       = 1 << 20 // likewise
	reapCollections = 32      // likewise
	turnChunk       = 32      // documents reaped in one step while that gives way to reads
	lookFor         = 250     // milliseconds ahead that documents are looked up before they fall due
	lookBefore      = 20      // milliseconds before the first that was not looked up falls due
	turnsReads      = 40      // reads in turnsEvery to which reaping gives way
	guessAfter      = 4       // batches of which nothing was there, until that is guessed of the next
	buildChunk      = 500     // documents indexed in one step
	verifyAtOnce    = 100     // collections verified at a time

	callTimeout       = 10 * time.Second // of one call to Redis or NATS
	lookAgain         = 3 * time.Second  // if a call that changes nothing is not answered
	takeOverTimeout   = 30 * time.Second
	publishTimeout    = 20 * time.Second
	publishReplicated = 5 * time.Second
	pauseAtMost       = 500 * time.Millisecond // see pauseOf
	retryAfter        = 100 * time.Millisecond
	retryAtMost       = 2 * time.Second
	heartbeatEvery    = time.Second
	checkpointEvery   = time.Second
	identifyEvery     = 2 * time.Second
	pullExpires       = 30 * time.Second       // of a request
	pullHeartbeat     = 2 * time.Second        // of the server, while it has nothing to send
	pullForgotten     = time.Minute            // how long the server keeps a consumer that nobody reads
	turnsEvery        = 200 * time.Millisecond // that is looked how much is read
	turnsAfter        = time.Second            // for how long reaping gives way after much was read
	turnRest          = 500 * time.Microsecond // after each; a timer makes a millisecond or more of it
	paceEvery         = time.Second
	drainWithin       = 30 * time.Second     // whatever is due, though it gives way
	tickEvery         = 2 * time.Millisecond // at most
	tickAgain         = time.Second          // if it is not read
	progressEvery     = time.Second
)

// Options are what a Processor is made with. The zero value of each is its default.
type Options struct {
	Prefix     wire.Prefix           // "lapse"
	Partitions int                   // 16; 1 to 1024; fixed when the log is created
	Logger     *slog.Logger          // none
	Metrics    prometheus.Registerer // none

	// What follows counts when a stream is created. On one that is there already it
	// is compared, and changed, only if it is set.
	Replicas        int            // 1
	LogMaxAge       *time.Duration // for ever
	LogMaxBytes     *int64         // no limit (-1)
	EventsMaxAge    *time.Duration // 7 days
	DuplicateWindow *time.Duration // 2 minutes; at least 100 ms
}

// Processor applies the log to Redis. See the package doc.
type Processor struct {
	nc         *nats.Conn
	store      *sink.Store
	opts       Options
	metrics    *metrics
	partitions []*partition
	consumer   atomic.Pointer[consumer] // nil until Run has begun
	turns      *turns
	start      atomic.Uint64 // last sequence of the log when Run began
	running    atomic.Bool
	fault      func(point) error // of a test; see fault.go
}

// shared is what all partitions have in common.
type shared struct {
	log        string // identity of the log
	line       *line
	streams    *streams.Streams
	publisher  *events.Publisher
	consumer   *consumer
	ticker     *ticker
	turns      *turns
	outcomes   *outcomes
	metrics    *metrics
	limits     limits
	pauseAfter time.Duration // see pauseOf
	fenceFor   time.Duration // how long a fence is used, as the stream forgets it; 0 is for ever
	fault      func(point) error
}

// New validates the options. It talks to neither server.
func New(nc *nats.Conn, client redis.UniversalClient, opts Options) (*Processor, error) {
	if opts.Prefix == "" {
		opts.Prefix = wire.DefaultPrefix
	}
	if _, err := wire.ParsePrefix(string(opts.Prefix)); err != nil {
		return nil, err
	}
	if opts.Partitions == 0 {
		opts.Partitions = sink.DefaultPartitions
	}
	if opts.Partitions < 1 || opts.Partitions > sink.MaxPartitions {
		return nil, fmt.Errorf("%d partitions: allowed are 1 to %d", opts.Partitions, sink.MaxPartitions)
	}
	if w := opts.DuplicateWindow; w != nil && *w < 100*time.Millisecond {
		return nil, fmt.Errorf("duplicate window %s: allowed is 100ms or more", *w)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Processor{nc: nc, store: sink.NewStore(client, opts.Prefix, opts.Partitions), opts: opts, metrics: newMetrics(), turns: newTurns(opts.Partitions, opts.Logger)}
	for i := range opts.Partitions {
		p.partitions = append(p.partitions, &partition{
			id:     i,
			store:  p.store.Partition(i),
			inbox:  newInbox(inboxMessages, inboxBytes),
			logger: opts.Logger.With(slog.Int("partition", i)),
		})
	}
	if opts.Metrics != nil {
		if err := p.metrics.register(opts.Metrics, p); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

// Run provisions the streams, checks Redis, and processes until ctx is done
// (then it ends the work in flight and returns nil) or something makes going on
// wrong (then it says what). It may be called once.
func (p *Processor) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("the processor was run before")
	}
	line, stopWatching := watchLine(p.nc)
	defer stopWatching()
	common, err := p.prepare(ctx, line)
	if err != nil {
		return err
	}
	defer common.publisher.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	duty := func(run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	// Partitions are taken over before the log is read, which then begins at the
	// lowest offset.
	if err := p.takeOverAll(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for _, part := range p.partitions {
		duty(part.run)
	}
	duty(common.consumer.run)
	checkpoints := &checkpointer{bucket: common.streams.Checkpoints, partitions: p.partitions, logger: p.opts.Logger, stored: make([]uint64, len(p.partitions)), at: common.at}
	duty(func(ctx context.Context) error { common.ticker.run(ctx); return nil })
	duty(func(ctx context.Context) error { common.turns.run(ctx); return nil })
	duty(func(ctx context.Context) error { checkpoints.run(ctx); return nil })
	duty(func(ctx context.Context) error { p.report(ctx); return nil })
	<-ctx.Done()
	for _, part := range p.partitions {
		part.inbox.close()
	}
	wg.Wait()
	// Now that nothing moves, the checkpoints are final.
	if err := checkpoints.runOnce(context.WithoutCancel(ctx)); err != nil {
		p.opts.Logger.Warn("checkpoints could not be stored", slog.Any("error", err))
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// prepare checks Redis, provisions the streams and wires the parts.
func (p *Processor) prepare(ctx context.Context, line *line) (*shared, error) {
	if err := p.store.Check(ctx); err != nil {
		return nil, err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, err
	}
	s, err := streams.Provision(ctx, js, streams.Options{
		Prefix:          p.opts.Prefix,
		Partitions:      p.opts.Partitions,
		MaxPayload:      p.nc.MaxPayload(),
		Replicas:        p.opts.Replicas,
		LogMaxAge:       p.opts.LogMaxAge,
		LogMaxBytes:     p.opts.LogMaxBytes,
		EventsMaxAge:    p.opts.EventsMaxAge,
		DuplicateWindow: p.opts.DuplicateWindow,
		Logger:          p.opts.Logger,
	})
	if err != nil {
		return nil, err
	}
	publisher, err := events.NewPublisher(p.nc, p.opts.Prefix, s.Replicas)
	if err != nil {
		return nil, err
	}
	c := &consumer{
		nc:      p.nc,
		log:     s.Log,
		id:      s.ID,
		line:    line,
		decode:  decoder{prefix: p.opts.Prefix, partitions: p.opts.Partitions, maxBody: s.MaxBody},
		logger:  p.opts.Logger,
		rewound: make(chan struct{}, 1),
	}
	t := newTicker(js, line, p.opts.Prefix.Tick(), len(p.partitions), c.behind, p.opts.Logger)
	t.wake = func(partition int) { p.partitions[partition].inbox.nudge() }
	c.stamps, c.passed = t.stamped, t.passed
	p.turns.wake, p.turns.reads = t.wake, p.store.Reads
	p.turns.backlog = func() (left int64) {
		for _, part := range p.partitions {
			left += part.left.Load()
		}
		return left
	}
	common := &shared{
		log:        s.ID,
		line:       line,
		streams:    s,
		publisher:  publisher,
		consumer:   c,
		ticker:     t,
		turns:      p.turns,
		outcomes:   &outcomes{nc: p.nc, partitions: p.partitions},
		metrics:    p.metrics,
		limits:     limits{prefix: p.opts.Prefix, maxBody: s.MaxBody, maxPayload: p.nc.MaxPayload() - events.FenceRoom},
		pauseAfter: pauseOf(s.Events.CachedInfo().Config.Duplicates),
		fenceFor:   s.Events.CachedInfo().Config.MaxAge / 2,
		fault:      p.fault,
	}
	for _, part := range p.partitions {
		part.shared = *common
		c.inboxes = append(c.inboxes, part.inbox)
	}
	c.handedOn = func() {
		for _, part := range p.partitions {
			part.inbox.nudge()
		}
	}
	p.consumer.Store(c)
	p.start.Store(s.Log.CachedInfo().State.LastSeq)
	return common, nil
}

// takeOverAll takes all partitions over, and returns the first reason why one
// cannot be. Another process that does the same at this moment is no reason.
func (p *Processor) takeOverAll(ctx context.Context) error {
	errs := make([]error, len(p.partitions))
	var wg sync.WaitGroup
	for i, part := range p.partitions {
		wg.Go(func() {
			for {
				errs[i] = part.takeOver(ctx)
				if !errors.Is(errs[i], sink.ErrFenced) || !wait(ctx, retryAfter) {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Ready is nil once the log, as it was when Run began, has been applied, and as
// long as nothing is stuck; else it says what is missing.
func (p *Processor) Ready() error {
	behind, lacking := 0, 0
	for _, part := range p.partitions {
		if err := part.trouble.Load(); err != nil {
			return partitionError(part.id, *err)
		}
		if !part.owned.Load() || part.applied.Load() < p.start.Load() {
			behind++
		} else if part.lacking.Load() > 0 {
			lacking++
		}
	}
	if behind+lacking > 0 {
		return fmt.Errorf("%d of %d partitions have not applied the log yet, and %d are being rebuilt", behind, len(p.partitions), lacking)
	}
	return nil
}

// report logs how far the log was applied while that takes long.
func (p *Processor) report(ctx context.Context) {
	for began := time.Now(); wait(ctx, progressEvery); {
		if p.Ready() == nil {
			if took := time.Since(began); took > 2*progressEvery {
				p.opts.Logger.Info("the log has been applied", slog.Duration("took", took))
			}
			return
		}
		p.opts.Logger.Info("applying the log", slog.Uint64("at", p.consumer.Load().position().seq), slog.Uint64("of", p.start.Load()))
	}
}

// wait waits, and says whether ctx is not done yet.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
