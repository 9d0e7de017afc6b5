package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/feed"
	"github.com/seed18712806/lapse/processor/internal/partition"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// progressEvery is how often a long application of the log is logged.
const progressEvery = time.Second

// Processor applies the log to Redis. See the package doc.
type Processor struct {
	nc           *nats.Conn
	store        Store
	opts         Options
	metrics      *metrics
	guard        *feed.ClockGuard
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
	bounds partition.Bounds
}

// New validates the options. It talks to neither server.
func New(nc *nats.Conn, client redis.UniversalClient, opts Options) (*Processor, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	return NewWith(nc, newRedisStore(client, opts), opts)
}

// NewWith is New on a store of as many partitions as the options have.
func NewWith(nc *nats.Conn, stored Store, opts Options) (*Processor, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	p := &Processor{nc: nc, store: stored, opts: opts, metrics: newMetrics(), bounds: partition.DefaultBounds, asking: make(chan struct{}, 1)}
	p.guard = feed.NewClockGuard(opts.MaxClockLead, feed.Clocks{Own: time.Now, Redis: p.store.Time}, opts.Health)
	p.session = newSession(p)
	if opts.Metrics != nil {
		if err := p.metrics.register(opts.Metrics, p); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

// Partitions is the number of partitions with which the logs of a prefix were created; 0 if there
// is none.
func Partitions(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, shards int) (int, error) {
	if _, err := wire.ParsePrefix(string(prefix)); err != nil {
		return 0, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	return streams.Partitions(ctx, js, streams.Options{Prefix: prefix, Shards: shards})
}

// FollowedPartitions is Partitions in the region in another JetStream domain.
func FollowedPartitions(ctx context.Context, nc *nats.Conn, domain string, prefix wire.Prefix, shards int) (int, error) {
	origin, err := streams.NewOrigin(nc, domain)
	if err != nil {
		return 0, err
	}
	info, err := origin.Info(ctx, streams.Options{Prefix: prefix, Shards: shards}.Root())
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(info.Config.Metadata[wire.PartitionsKey])
	if err != nil {
		return 0, fmt.Errorf("stream %s in the JetStream domain %q is not lapse's", info.Config.Name, domain)
	}
	return n, nil
}

// Follows finds out the JetStream domain of the region that the flag of a user names: the domain itself, or the
// URL of a NATS server there.
func Follows(ctx context.Context, where string, connect func(url string) (*nats.Conn, error)) (domain string, err error) {
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
		return "", errors.New("it has no JetStream domain: give it one (jetstream { domain: … }), and join both regions by a leaf node (deploy/README.md, Regions)")
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
// Run owns the partitions whatever other processes do: see RunAs.
func (p *Processor) Run(ctx context.Context) error { return p.RunAs(ctx, nil) }

// RunAs is Run for as long as lease allows this process to own the partitions; then it
// returns [ErrNotOwner]. A nil lease always allows it.
func (p *Processor) RunAs(ctx context.Context, lease Lease) (err error) {
	if p.running.Swap(true) {
		return errors.New("the processor runs already")
	}
	defer p.running.Store(false)
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
	upTo, err := s.takeOver(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := s.allowReplies(ctx, upTo); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.start.Store(max(upTo, 1)) // a mirror may be empty
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

// takeOver takes the partitions over, and returns the last sequence of the log then. Before it writes anything, none of
// them may be refused, but for damage.
func (s *session) takeOver(ctx context.Context) (upTo uint64, err error) {
	for i, part := range s.partitions {
		if len(s.partitions) == 1 {
			break
		}
		if _, refusal, err := part.BeginAnew(ctx, Accepted{}); err == nil && refusal != nil && refusal.Kind != ErrRefused {
			return 0, fmt.Errorf("partition %d: %w", s.statuses.Number(i), refusal)
		}
	}
	var wg sync.WaitGroup
	ends, errs := make([]uint64, len(s.partitions)), make([]error, len(s.partitions))
	for i, part := range s.partitions {
		wg.Go(func() { ends[i], errs[i] = part.TakeOver(ctx) })
	}
	wg.Wait()
	return slices.Max(ends), cmp.Or(errs...)
}

// Progress is how far the log is applied.
type Progress struct {
	Applied uint64        // sequence of the log that every partition has applied
	Lag     uint64        // messages of the log that are not read yet, or not applied
	Overdue time.Duration // since when the oldest event that is not published was due
}

// Progress returns how far the log is applied; it is zero until the processor runs.
func (p *Processor) Progress() (all Progress) {
	s := p.current()
	if !s.wired.Load() {
		return all
	}
	all.Applied = math.MaxUint64
	all.Lag = s.backlog.Pending()
	for i, status := range s.statuses.Partitions {
		all.Applied = min(all.Applied, status.Applied.Load())
		n, _ := s.inboxes[i].Len()
		all.Lag += uint64(n)
		if due := status.Due.Load(); due > 0 {
			all.Overdue = max(all.Overdue, time.Since(time.UnixMilli(due)))
		}
	}
	return all
}

// Ready is nil once the log, as it was when the partitions were taken over, has been
// applied, and as long as there is no problem; else it is what is missing.
func (p *Processor) Ready() error {
	return errors.Join(p.opts.Health.Err(), p.Applying())
}

// TakenOver reports whether the partitions were taken over since Run began, and Run has not ended.
func (p *Processor) TakenOver() bool {
	s := p.current()
	return s.start.Load() > 0 && !s.ended.Load()
}

// Applying is nil once the log was applied, and no partition is being rebuilt.
func (p *Processor) Applying() error {
	s := p.current()
	if behind, lacking := s.statuses.Missing(s.start.Load()); behind+lacking > 0 {
		return fmt.Errorf("%d of %d partitions have not applied the log yet, and %d are being rebuilt", behind, len(s.statuses.Partitions), lacking)
	}
	return nil
}
