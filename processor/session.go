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

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/region"
	"github.com/seed18712806/lapse/processor/internal/retention"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// checkTimeout is the limit of the check of the servers, and that of making the streams.
const checkTimeout = 30 * time.Second

// session is what each Run makes anew. The first fields are there before Run, for the
// metrics; wire makes the others.
type session struct {
	status *shard.Status
	queue  *shard.Queue
	pace   *shard.Pace
	sizes  sizes
	start  atomic.Uint64 // last sequence of the log when the shard was taken over
	ruled  atomic.Uint64 // sequence of the rules in the stream of configurations; see rule
	wired  atomic.Bool
	ended  atomic.Bool

	publisher *events.Publisher
	outputs   events.Source
	compared  struct { // see compareEvents
		last   events.Place
		lost   events.Place // which is told once
		losses int
	}
	ticker       *shard.Ticker
	reader       *shard.Reader
	owner        *shard.Owner
	checkpointer *shard.Checkpointer
	duties       []func(context.Context) // that run until the session ends
	monitor      *monitor
	keeper       *retention.Keeper // nil in a region that follows another one
	follower     *region.Follower  // nil in the first region
	processor    *Processor
}

func newSession(p *Processor) *session {
	s := &session{status: shard.NewStatus(p.opts.Health), queue: shard.NewQueue(p.opts.ReadAhead), processor: p}
	s.pace = shard.NewPace(s.requests)
	return s
}

// requests counts the requests that have come: the reads of all processes, and the messages of the log.
func (s *session) requests(ctx context.Context) (int64, error) {
	reads, err := s.processor.store.Reads(ctx)
	return reads + int64(s.queue.Backlog.ReadUpTo()), err
}

// Check finds out whether the servers can be used, and whether they hold what Run would
// refuse. It changes nothing.
func (p *Processor) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	_, err := p.check(ctx)
	return err
}

// check is Check, and finds out the role of the region.
func (p *Processor) check(ctx context.Context) (role streams.Role, err error) {
	defer func() { err = asRefusal(err) }()
	if err := p.store.Check(ctx); err != nil {
		return role, err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return role, err
	}
	opts := p.opts.streams(p.nc.MaxPayload())
	opts.AsIs = p.asIs
	err = streams.Again(ctx, p.opts.Logger, func(ctx context.Context) (err error) {
		if role, err = p.role(ctx, js, opts); err != nil {
			return err
		}
		p.follows.Store(nil)
		if role.Mirror {
			p.follows.Store(&role.Follows)
		} else {
			err = streams.Check(ctx, js, opts)
		}
		return err
	})
	if err != nil || role.Mirror {
		return role, err
	}
	if !p.asIs {
		err := streams.Again(ctx, p.opts.Logger, func(ctx context.Context) error {
			return streams.CheckMapping(ctx, p.nc, p.opts.log())
		})
		if err != nil {
			return role, err
		}
	}
	return role, p.checkStore(ctx, js)
}

// checkStore refuses documents in Redis where there is no log yet: they belong to another
// log. It creates nothing.
func (p *Processor) checkStore(ctx context.Context, js jetstream.JetStream) error {
	there, err := p.hasLog(ctx, js)
	if err != nil || there {
		return err
	}
	state, err := p.store.Load(ctx)
	if err != nil && !errors.Is(err, store.ErrDamaged) || state.Version == "" {
		return err
	}
	if there, err := p.hasLog(ctx, js); err != nil || there {
		return err // another process has made both since
	}
	return streams.Refuse(ErrLogChanged, "restore that log, or use another prefix or an empty Redis",
		"Redis holds documents of the log that was created at %s, and there is no stream %s", streams.FormatID(state.Log),
		p.opts.log().Stream())
}

func (p *Processor) hasLog(ctx context.Context, js jetstream.JetStream) (bool, error) {
	name := p.opts.log().Stream()
	err := streams.Again(ctx, p.opts.Logger, func(ctx context.Context) error {
		_, err := js.Stream(ctx, name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		err = fmt.Errorf("look for stream %s: %w", name, err)
	}
	return err == nil, err
}

// provision makes the streams, or opens the mirrors.
func (p *Processor) provision(ctx context.Context, js jetstream.JetStream,
	role streams.Role) (provisioned *streams.Streams, err error) {
	opts := p.opts.streams(p.nc.MaxPayload())
	opts.Existing, opts.AsIs = p.made, p.asIs
	provision := streams.Provision
	if role.Mirror {
		provision = streams.OpenMirrors
	}
	err = streams.Again(ctx, p.opts.Logger, func(ctx context.Context) (err error) {
		provisioned, err = provision(ctx, js, opts)
		return err
	})
	return provisioned, err
}

// wire checks Redis, provisions the streams and makes the parts of a session. Each part
// gets what it uses when it is made.
func (p *Processor) wire(ctx context.Context, s *session, l *streams.Link, lease Lease) error {
	provisioning, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	role, err := p.check(provisioning)
	if err != nil {
		return err
	}
	js, err := jetstream.New(p.nc)
	if err != nil {
		return err
	}
	provisioned, err := p.provision(provisioning, js, role)
	if err != nil {
		return err
	}
	p.made = true
	stream := provisioned.Events.CachedInfo().Config
	if s.publisher, err = events.NewPublisher(p.nc, p.opts.Prefix, stream); err != nil {
		return err
	}
	names := p.opts.log()
	log := streams.NewLog(provisioned, l)
	s.ticker = shard.NewTicker(js, l, names.Tick(), s.queue, p.opts.Health)
	s.reader = shard.NewReader(shard.Source{
		NATS: p.nc, Link: l, Log: log, Guard: p.guard, Health: p.opts.Health, Queue: s.queue, Ticker: s.ticker,
		Decoder: fold.Decoder{Log: names, MaxBody: provisioned.MaxBody, MaxLevels: provisioned.MaxLevels},
	})
	s.outputs = events.NewSource(names, provisioned.Created()).Continues(provisioned.Former)
	tail := s.publisher.NewTail(s.outputs)
	checkpoints := shard.NewCheckpoints(log, p.opts.Shard)
	desk := snapshot.NewDesk(snapshot.NewStore(p.objects(provisioned), log, p.opts.Shard, log.ID(), p.hook))
	parts := shard.Parts{
		Shard: p.opts.Shard, Shards: p.opts.Shards, Store: p.store, Log: log,
		Link: l, Publisher: s.publisher, Tail: tail, MaxAge: stream.MaxAge,
		Lease: lease, Status: s.status, Queue: s.queue, Reader: s.reader, Ticker: s.ticker, Pace: s.pace,
		Checkpoints: checkpoints, Desk: desk, Metrics: &p.metrics.Metrics,
		Outcomes: shard.NewOutcomes(p.nc, p.store, p.opts.ReplyPrefixes),
		Limits:   fold.Limits{Log: s.outputs, MaxBody: provisioned.MaxBody},
		Bounds:   p.bounds, Hook: p.hook, Trace: p.opts.Trace, Logger: p.opts.Logger.With(slog.Int("shard", p.opts.Shard)),
	}
	if !role.Mirror {
		parts.MayLead = s.stillFirst
	} else if err := s.follow(ctx, js, role, &parts); err != nil {
		return err
	}
	s.owner = shard.New(parts)
	s.checkpointer = shard.NewCheckpointer(checkpoints, s.owner.Announcer(), p.opts.Health, p.hook)
	s.monitor = newMonitor(p, s, js, log)
	if s.follower != nil {
		s.duties = []func(context.Context){s.pace.Run, s.report, s.compareAgain}
		s.wired.Store(true)
		return nil
	}
	s.keeper = retention.New(retention.Parts{
		Names: names, Log: log, JetStream: js, Desk: desk, Checkpoints: checkpoints, Status: s.status, Redis: p.store,
		Logger: p.opts.Logger, Metrics: p.metrics.retention, Hook: p.hook, Applying: p.Applying,
		Sync: *p.opts.SyncInterval, Mirrored: len(p.opts.Readers) > 0,
	}, p.opts.ForgetWithin)
	copies := &copier{js: js, link: l, streams: provisioned, session: s, log: names, logger: p.opts.Logger}
	s.duties = []func(context.Context){s.ticker.Run, s.pace.Run, s.checkpointer.Run, parts.Outcomes.Run, copies.run,
		s.keeper.Run, s.keeper.TakeOrders, s.report, s.compareAgain, s.tellFormer}
	s.wired.Store(true)
	return nil
}

// compareAgain has the shard taken over again whenever the connection to NATS was lost and is up
// again: the server may have lost what it had acknowledged.
func (s *session) compareAgain(ctx context.Context) {
	nc := s.processor.nc
	changes := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			s.takeOverAgain("the connection to NATS was lost")
		}
	}
}

// compareEvents has the shard taken over again if the stream of events has lost what it had stored.
// Nobody may hear of that, where another server has become its leader.
func (s *session) compareEvents(ctx context.Context) error {
	last := s.publisher.Last()
	for _, at := range []events.Place{s.compared.last, last} {
		holds, err := s.publisher.Holds(ctx, s.outputs, at)
		if err != nil {
			return err
		}
		if !holds && at != s.compared.lost {
			s.compared.lost = at
			s.publisher.NoteLoss()
		}
	}
	losses := s.publisher.Losses()
	if losses != s.compared.losses {
		s.takeOverAgain("the stream of events has lost what it had stored")
	}
	s.compared.last, s.compared.losses = last, losses
	return nil
}

// takeOverAgain has the shard taken over again, as soon as its owner has ended its step.
func (s *session) takeOverAgain(why string) {
	s.processor.opts.Logger.Info("the shard is taken over again, to compare what the servers hold",
		slog.String("reason", why))
	s.owner.TakeOverAgain()
}

func (s *session) close() {
	s.publisher.Close()
	if s.follower != nil {
		s.processor.opts.Health.Set(region.ProblemRegion, nil) // the next session may follow no region
	}
}

// run runs all duties until ctx is done, or one of them cancels it, and waits for their
// end.
func (s *session) run(ctx context.Context, cancel context.CancelCauseFunc) {
	var wg sync.WaitGroup
	duty := func(run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	duty(s.owner.Run)
	duty(s.reader.Run)
	if s.follower != nil {
		duty(s.follower.Run)
		duty(s.follower.WatchRole)
		duty(s.follower.FollowEvents)
	}
	for _, watch := range s.monitor.watches() {
		duty(watch)
	}
	duty(func(ctx context.Context) error { return streams.UntilClosed(ctx, s.processor.nc) })
	for _, run := range s.duties {
		duty(func(ctx context.Context) error { run(ctx); return nil })
	}
	<-ctx.Done()
	s.queue.Close()
	wg.Wait()
}

// report logs how far the log was applied while that takes long. An owner that reads some messages again does not make
// the figure smaller.
func (s *session) report(ctx context.Context) {
	logger := s.processor.opts.Logger
	var at uint64
	for began := time.Now(); backoff.Wait(ctx, progressEvery); {
		left := s.processor.Applying()
		if left == nil {
			if took := time.Since(began); took > 2*progressEvery {
				logger.Info("the log has been applied", slog.Duration("took", took))
			}
			return
		}
		at = max(at, s.queue.ReadUpTo().Seq)
		logger.Info("applying the log", slog.Uint64("at", at), slog.Uint64("of", s.start.Load()),
			slog.String("left", left.Error()))
	}
}

// rule sees to it that the log has the rules of the options. They count from their place in the log on, so the
// processor is ready once that is applied: rule returns it, and with several shards notes its place in the stream of
// configurations. A region that follows another one has the rules of that.
func (s *session) rule(ctx context.Context) (upTo uint64, err error) {
	p, log := s.processor, s.monitor.log
	if s.follower != nil || p.asIs {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	was, known, err := s.owner.LogRules()
	if err != nil {
		return 0, err
	}
	seq, err := log.Streams.Rule(ctx, s.monitor.js, p.opts.streams(p.nc.MaxPayload()), was, known)
	if err == nil && log.Streams.Configs != nil {
		s.ruled.Store(seq)
		return 0, nil
	}
	return seq, err
}
