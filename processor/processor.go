package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// progressEvery is how often a long application of the log is logged.
const progressEvery = time.Second

// Processor applies the log to Redis. See the package doc.
type Processor struct {
	nc           *nats.Conn
	store        Store
	opts         Options
	metrics      *metrics
	guard        *shard.ClockGuard
	running      atomic.Bool
	ran          bool
	made         bool                   // the streams were provisioned, so one that is absent was deleted
	saidPromoted sync.Once              // says in the log that Options.Follow does not count any more
	asIs         bool                   // it changes no stream's configuration: see BeginAnew
	follows      atomic.Pointer[string] // the JetStream domain of the first region, as last checked; nil if this is that

	asking chan struct{} // has an element while one asks
	asked  atomic.Uint64 // the connection on which the regions that follow this one were asked last

	mu      sync.Mutex // of session
	session *session

	hook   crash.Hook // of a test
	bounds shard.Bounds
}

// New validates the options. It talks to neither server. The connection to NATS should have the dialer of
// package sink/dial and a ReconnectBufSize of -1. Then no event is sent in the place of another one that NATS has lost
// while it was away.
func New(nc *nats.Conn, client redis.UniversalClient, opts Options) (*Processor, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	return NewWith(nc, store.New(client, opts.Prefix, opts.Shard, opts.Shards), opts)
}

// NewWith is New on another store.
func NewWith(nc *nats.Conn, stored Store, opts Options) (*Processor, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	p := &Processor{nc: nc, store: stored, opts: opts, metrics: newMetrics(), bounds: shard.DefaultBounds,
		asking: make(chan struct{}, 1)}
	p.guard = shard.NewClockGuard(opts.MaxClockLead, shard.Clocks{Own: time.Now, Redis: p.store.Time}, opts.Health)
	p.session = newSession(p)
	if opts.Metrics != nil {
		if err := p.metrics.register(opts.Metrics, p); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

// Follows finds out the JetStream domain of the region that the flag of a user names: the domain itself, or the
// URL of a NATS server there.
func Follows(ctx context.Context, where string, connect func(url string) (*nats.Conn, error)) (domain string,
	err error) {
	if !strings.Contains(where, "://") {
		return where, nil
	}
	nc, err := connect(where)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	account, err := js.AccountInfo(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for its JetStream domain: %w", err)
	}
	if account.Domain == "" {
		return "", errors.New("it has no JetStream domain: give it one (jetstream { domain: … }), and join both regions " +
			"by a leaf node (" + health.Regions + ")")
	}
	return account.Domain, nil
}

// current is the session of the present Run, or of the last.
func (p *Processor) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// Run provisions the streams, checks Redis, and processes until ctx is done (then it ends
// the work in flight and returns nil) or until it would be wrong to go on (then it returns
// why). It may be called again once it has returned: see "A refused shard" in the package doc.
//
// Run owns the shard whatever other processes do: see RunAs.
func (p *Processor) Run(ctx context.Context) error { return p.RunAs(ctx, nil) }

// RunAs is Run for as long as lease allows this process to own the shard; then it
// returns [ErrNotOwner]. A nil lease always allows it.
func (p *Processor) RunAs(ctx context.Context, lease Lease) (err error) {
	if p.running.Swap(true) {
		return errors.New("the processor runs already")
	}
	defer p.running.Store(false)
	defer func() { err = asRefusal(err) }()
	if p.ran {
		p.mu.Lock()
		p.session = newSession(p)
		p.mu.Unlock()
	}
	p.ran = true
	l, stopWatching := streams.WatchLink(p.nc)
	defer stopWatching()
	s := p.session
	told := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.ended.Store(true)
	if err := p.wire(ctx, s, l, lease); err != nil {
		return err
	}
	defer func() { err = s.unlessPromoted(ctx, err) }()
	defer s.close()
	defer p.forgetProblems()
	if s.follower != nil {
		if err := s.follower.Begin(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	// The reading begins at the lowest offset, which is known after the takeover.
	upTo, err := s.owner.TakeOver(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	rule, err := s.rule(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.start.Store(max(upTo, rule, 1)) // a mirror may be empty
	s.run(ctx, cancel)
	cause := context.Cause(ctx)
	if s.follower == nil && !errors.Is(cause, ErrNotOwner) && streams.AsRefusal(cause) == nil {
		// Every step has ended, so these checkpoints are final.
		if err := s.checkpointer.RunOnce(context.WithoutCancel(ctx)); err != nil {
			p.opts.Logger.Warn("checkpoints could not be stored", slog.Any("error", err))
		}
	}
	// A duty may have ended with an error of a request that got no answer: nobody has stopped the processor then.
	if told.Err() != nil && (errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded)) {
		return nil
	}
	return cause
}

// Progress is how far the log is applied.
type Progress struct {
	Applied uint64        // sequence of the log
	Lag     uint64        // messages of the log that are not read yet, or not applied
	Overdue time.Duration // since when the oldest event that is not published was due
}

// Progress returns how far the log is applied; it is zero until the processor runs.
func (p *Processor) Progress() (all Progress) {
	s := p.current()
	if !s.wired.Load() {
		return all
	}
	waiting, _ := s.queue.Waiting()
	all.Applied, all.Lag = s.status.Applied.Load(), s.queue.Backlog.Pending()+uint64(waiting)
	if due := s.status.Due.Load(); due > 0 {
		all.Overdue = time.Since(time.UnixMilli(due))
	}
	return all
}

// Ready is nil once the log, as it was when the shard was taken over, has been
// applied, and as long as there is no problem; else it is what is missing.
func (p *Processor) Ready() error {
	return errors.Join(p.opts.Health.Err(), p.Applying())
}

// TakenOver reports whether the shard was taken over since Run began, and Run has not ended.
func (p *Processor) TakenOver() bool {
	s := p.current()
	return s.start.Load() > 0 && !s.ended.Load()
}

// Applying is nil once the log was applied, and the shard is not being rebuilt.
func (p *Processor) Applying() error {
	s := p.current()
	switch behind, rebuilds := s.status.Lacks(s.start.Load()); {
	case behind, s.status.Configured.Load() < s.ruled.Load():
		return errors.New("the log has not been applied yet")
	case rebuilds:
		return errors.New("the shard is being rebuilt")
	}
	return nil
}

// BeginAnew gives up what a person accepts to lose, of what Run refuses to go on without, while no process applies the
// shard: the shard begins anew from the log, or goes on without events, or messages of the log, that were
// lost. The next Run goes on from there. Where it then removes documents from Redis, a person must have saved Redis.
//
// It returns what it has done, and the refusal that is left, which says what gives it up; nil if none is. It gives up
// nothing else, and creates no stream. It may be interrupted at any point, and be called again.
func (p *Processor) BeginAnew(ctx context.Context, accepted Accepted) (done []string, left *Refusal, err error) {
	if p.running.Swap(true) {
		return nil, nil, errors.New("the processor runs already")
	}
	defer p.running.Store(false)
	p.made, p.asIs = true, true
	l, stopWatching := streams.WatchLink(p.nc)
	defer stopWatching()
	err = p.wire(ctx, p.session, l, nil)
	if r := streams.AsRefusal(err); r != nil {
		return nil, r, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer p.session.close()
	return p.session.owner.BeginAnew(ctx, accepted)
}
