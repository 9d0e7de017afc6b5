package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/region"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// How often the monitor checks, and what is a problem. By G11 each is told within 10 s.
const (
	monitorEvery  = time.Second
	policyEvery   = 5                 // checks
	slowAfter     = 5 * time.Second   // a step
	overdueAfter  = 5 * time.Second   // an event, if no document is reaped meanwhile
	overdueAtMost = 60 * time.Second  // an event, although others are published
	behindAfter   = 7 * time.Second   // the log goes on, and the shard applies nothing
	unreadAfter   = 5 * time.Second   // the log, although it has messages and nothing is to be applied
	impossible    = uint64(1)<<53 - 1 // a sequence that no stream has
)

// The problems that the monitor finds.
var (
	problemNATS = health.Problem{Name: "NATS", Advice: "Make the NATS server reachable. lapse connects again by " +
		"itself."}
	problemAppend = health.Problem{Name: "log cannot be appended to", Advice: "Look at the stream of the log: it is " +
		"full, or has no leader."}
	problemEvents = health.Problem{Name: "events cannot be published", Advice: "Look at the stream of events: it is " +
		"full, or has no leader. Events wait, and none is lost."}
	problemMapping = health.Problem{Name: "mapping", Advice: "Correct the mappings of the NATS account, as the " +
		"message says."}
	problemConfigs = health.Problem{Name: "configurations", Advice: "Look at the stream of configurations: the logs " +
		"copy it."}
	problemRedis = health.Problem{Name: "Redis", Advice: "Make Redis reachable. lapse goes on by itself, and " +
		"rebuilds what Redis has lost."}
	problemEviction = health.Problem{Name: "Redis may evict", Advice: "Set maxmemory-policy noeviction in Redis, and " +
		"give it more memory."}
	problemDenied = health.Problem{Name: "permissions in Redis", Advice: "Give the Redis user of lapse the command " +
		"that is named."}
	problemOverdue = health.Problem{Name: "overdue", Advice: "Find out what is slow: NATS, Redis, or the CPU of lapse."}
	problemSlow    = health.Problem{Name: "slow step", Advice: "Look at what the step is doing: waiting for NATS or " +
		"Redis, or merging patches into a large document."}
	problemBehind = health.Problem{Name: "behind", Advice: "Wait while the lag falls. If it grows, writes come " +
		"faster than lapse applies them."}
	problemReaders = health.Problem{Name: "readers", Advice: "Do what the reason says, in the account that it names. " +
		"Only the readers of that account are harmed.", Minor: true}
	problemConsumer = health.Problem{Name: "consumers", Advice: "Delete consumers that nobody uses, or set " +
		"max_consumers of the account to more."}
	problemSize = health.Problem{Name: "size of events", Advice: "Set --events-max-bytes to more, or " +
		"--events-max-age to less. Find out who makes so many events.", Minor: true}
	problemLimits = health.Problem{Name: "limits", Advice: "Set the limit back, and find out who has changed it. If " +
		"you did: restart lapse.", Minor: true}
	problemLost = health.Problem{Name: "lost events", Advice: "Find out what NATS has lost, and what of the " +
		"events each consumer needs again. Nobody can publish them again.", Minor: true}
	problemForget = health.Problem{Name: "forgetting", Advice: "Let lapse take snapshots, and let Redis rewrite its " +
		"files."}
)

// forgetProblems drops the problems of a processor that has ended.
func (p *Processor) forgetProblems() {
	p.opts.Health.Forget(shard.ProblemLog, shard.ProblemClock, shard.ProblemClockBehind, shard.ProblemTick,
		shard.ProblemCheckpoints, shard.ProblemShard, shard.ProblemIndexes, problemNATS, problemAppend, problemEvents,
		problemMapping, problemConfigs,
		problemRedis, problemEviction, problemDenied, problemOverdue, problemSlow, problemBehind, problemReaders,
		problemConsumer, problemSize, problemLimits, problemLost, problemForget, region.ProblemRegion)
}

// monitor finds out whether writes, events and reads can go on, although no client shows
// it: it asks both servers, and compares how far the shard is. It does each for itself, so
// that a server that answers late does not hold up what is told of the others.
type monitor struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	store   Store
	names   wire.Log
	log     *streams.Log
	health  *health.Board
	guard   *shard.ClockGuard
	session *session
	lost    *streams.EventsWatch
	limits  streams.Limits // nil in a region that follows another one, whose limits change with those there

	last   atomic.Uint64 // sequence of the log
	unread atomic.Bool   // the log has messages, and nothing is to be applied

	// Of checkRedis.
	checks int

	// Of checkShard.
	reaped, applied seenAt

	// Of checkNATS.
	made       time.Time // when the stream of events was
	rounds     int
	gone       int    // checks that found a stream gone, one after the other
	read       seenAt // sequence of the log
	configured seenAt // sequence of the stream of configurations up to which that is applied
}

func newMonitor(p *Processor, s *session, js jetstream.JetStream, log *streams.Log) *monitor {
	m := &monitor{
		nc: p.nc, js: js, store: p.store, names: p.opts.log(), log: log, health: p.opts.Health, guard: p.guard,
		session: s, made: log.Streams.Events.CachedInfo().Created, lost: log.Streams.NewEventsWatch(),
	}
	if log.Streams.Log.CachedInfo().Config.Mirror == nil {
		m.limits = log.Streams.Limits()
	}
	m.last.Store(log.Streams.Log.CachedInfo().State.LastSeq)
	return m
}

// seenAt is the value of a counter, and since when the counter has it although it is to move on.
type seenAt struct {
	value uint64
	since time.Time
}

// stands returns for how long the counter has had a value. While nothing waits, that is no time.
func (s *seenAt) stands(value uint64, waits bool, now time.Time) time.Duration {
	if !waits || s.since.IsZero() || s.value != value {
		*s = seenAt{value, now}
	}
	return now.Sub(s.since)
}

// errEventsAnew: somebody has deleted the stream of events and made another one, which has to be checked as
// at a start.
var errEventsAnew = errors.New("the stream of events was deleted and made anew")

// watches are what the monitor does at the same time, each until ctx is done, or until a stream is gone or
// is another one, which is an error.
func (m *monitor) watches() []func(context.Context) error {
	every := func(check func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			for {
				if err := check(ctx); err != nil && ctx.Err() == nil {
					return err
				}
				if !backoff.Wait(ctx, monitorEvery) {
					return nil
				}
			}
		}
	}
	watches := []func(context.Context) error{every(m.checkNATS), every(m.checkRedis), every(m.checkShard)}
	if len(m.session.processor.opts.Readers) > 0 && m.names.Shard == 0 {
		watches = append(watches, every(m.checkReaders))
	}
	return watches
}

// ask asks NATS something within a limit of its own: what gets no answer must not take the time of
// another question, whose stream would be blamed.
func (m *monitor) ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	return question(ctx)
}

// checkNATS finds out whether the streams exist and take messages.
func (m *monitor) checkNATS(ctx context.Context) error {
	if !m.nc.IsConnected() {
		m.health.Set(problemNATS, errors.New("there is no connection to NATS: lapse connects again as soon as it can"))
		return nil
	}
	m.health.Set(problemNATS, nil)
	if m.session.follower != nil {
		err := m.checkMirrors(ctx)
		if errors.Is(err, errEventsAnew) || errors.Is(err, ErrStreamGone) {
			return err
		}
		return nil
	}
	m.set(ctx, problemAppend, cmp.Or(full(m.log.Streams.Log.CachedInfo()),
		m.takes(ctx, m.log.Streams.Log, m.names.Tick())))
	m.set(ctx, problemEvents, m.takes(ctx, m.log.Streams.Events, m.names.Prefix.Probe()))
	if m.log.Streams.Configs != nil {
		m.set(ctx, problemMapping,
			m.ask(ctx, func(ctx context.Context) error { return streams.CheckMapping(ctx, m.nc, m.names) }))
		m.set(ctx, problemConfigs,
			cmp.Or(m.takes(ctx, m.log.Streams.Configs, m.names.Prefix.Config(probed)), m.checkConfigs(time.Now())))
	}
	err := m.ask(ctx, m.streamsThere)
	if errors.Is(err, ErrLogChanged) || errors.Is(err, errEventsAnew) || errors.Is(err, ErrSuperseded) {
		return err
	}
	if !errors.Is(err, ErrStreamGone) {
		m.gone = 0
	} else if m.gone++; m.gone > 1 { // once could be a server that starts
		return err
	}
	if err == nil && m.unread.Load() {
		// The end of the log may be deleted: a tick shows whether it is read.
		_ = m.ask(ctx, func(ctx context.Context) error { _, err := m.session.ticker.Barrier(ctx); return err })
	}
	return nil
}

// checkMirrors finds out whether the mirrors exist, and what they hold. Package region compares them with the
// first region.
func (m *monitor) checkMirrors(ctx context.Context) error {
	return m.ask(ctx, func(ctx context.Context) error {
		asked := m.guard.Now()
		info, err := m.log.Streams.Log.Info(ctx)
		if err == nil {
			m.session.ticker.Shown(info.TimeStamp)
			m.guard.Shown(asked, info.TimeStamp)
			m.last.Store(info.State.LastSeq)
			m.checkReader(info.State.LastSeq, time.Now())
			var events *jetstream.StreamInfo
			if events, err = m.log.Streams.Events.Info(ctx); err == nil {
				if !events.Created.Equal(m.made) {
					return fmt.Errorf("%w at %s", errEventsAnew, events.Created.UTC().Format(time.RFC3339Nano))
				}
				m.session.sizes.streams.Store(&[]*jetstream.StreamInfo{info, events})
			}
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			m.gone = 0
		} else if m.gone++; m.gone > 1 {
			return streams.Gone(err, m.names.Stream())
		}
		return nil
	})
}

// checkReaders keeps the mirrors in the accounts of readers.
func (m *monitor) checkReaders(ctx context.Context) error {
	var all []error
	opts := m.session.processor.opts
	for _, account := range opts.Readers {
		err := m.ask(ctx, func(ctx context.Context) error {
			r, err := streams.NewReaders(m.js, opts.Prefix, account, opts.Logger)
			if err != nil {
				return err
			}
			return r.Keep(ctx)
		})
		if err != nil {
			all = append(all, fmt.Errorf("account %s: %w", account, err))
		}
	}
	m.set(ctx, problemReaders, errors.Join(all...))
	if all == nil {
		backoff.Wait(ctx, (policyEvery-1)*monitorEvery)
	}
	return nil
}

// probed stands for a collection where nothing is ever stored.
const probed = "probe"

// checkConfigs returns why the shard does not apply the configurations; nil if it does.
func (m *monitor) checkConfigs(now time.Time) error {
	have, last := m.session.status.Configured.Load(), m.log.Streams.Configs.CachedInfo().State.LastSeq
	if stands := m.configured.stands(have, have < last, now); stands > behindAfter {
		return fmt.Errorf("shard %d has applied %s up to message %d of %d, and no further for %s: clients wait for the "+
			"outcomes; look at the log %s, and at that of nats-server",
			m.names.Shard, m.names.Prefix.ConfigStream(), have, last, stands.Round(time.Second), m.names.Stream())
	}
	return nil
}

// set sets or clears a problem, unless the monitor ends.
func (m *monitor) set(ctx context.Context, problem health.Problem, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		m.health.Set(problem, err)
	}
}

// streamsThere returns an error if a stream is gone, or the log or the stream of events is another one.
func (m *monitor) streamsThere(ctx context.Context) error {
	asked := m.guard.Now()
	info, err := m.log.Streams.Log.Info(ctx)
	if err != nil {
		return streams.Gone(err, m.log.Streams.Log.CachedInfo().Config.Name)
	}
	if err := streams.CheckOffset(info, m.log.ID(), info.State.LastSeq); err != nil && errors.Is(err, ErrLogChanged) {
		return err
	}
	if err := streams.Superseded(info); err != nil {
		return err
	}
	m.session.ticker.Shown(info.TimeStamp)
	m.guard.Shown(asked, info.TimeStamp)
	m.last.Store(info.State.LastSeq)
	m.checkReader(info.State.LastSeq, time.Now())
	if configs := m.log.Streams.Configs; configs != nil {
		info, err := configs.Info(ctx)
		if err != nil {
			return streams.Gone(err, m.names.Prefix.ConfigStream())
		}
		if !m.log.Streams.Sources(info) {
			return fmt.Errorf("%w: stream %s was deleted and created again: restore the one that the logs have their "+
				"configurations from", ErrLogChanged, m.names.Prefix.ConfigStream())
		}
		if m.rounds++; m.rounds%policyEvery == 0 {
			if err := m.log.Streams.CheckConfigs(ctx); errors.Is(err, streams.ErrConfigsBehind) {
				return fmt.Errorf("%w: %w", ErrLogChanged, err)
			}
		}
	}
	eventsInfo, err := m.log.Streams.Events.Info(ctx)
	if err != nil {
		return streams.Gone(err, m.log.Streams.Events.CachedInfo().Config.Name)
	}
	if !eventsInfo.Created.Equal(m.made) {
		return fmt.Errorf("%w at %s", errEventsAnew, eventsInfo.Created.UTC().Format(time.RFC3339Nano))
	}
	if err := m.session.compareEvents(ctx); err != nil {
		return err
	}
	m.session.sizes.streams.Store(&[]*jetstream.StreamInfo{info, eventsInfo})
	m.set(ctx, problemSize, streams.CheckSize(eventsInfo))
	m.set(ctx, problemLimits, errors.Join(m.limits.Check(info.Config), m.limits.Check(eventsInfo.Config)))
	if m.names.Shard == 0 && eventsInfo.Config.Mirror == nil {
		m.set(ctx, problemLost, m.lost.Check(ctx, eventsInfo))
	}
	if account, err := m.js.AccountInfo(ctx); err == nil {
		m.set(ctx, problemConsumer, streams.CheckConsumers(eventsInfo, account))
	}
	bucket := "KV_" + m.log.Streams.Checkpoints.Bucket()
	if _, err := m.js.Stream(ctx, bucket); err != nil {
		return streams.Gone(err, bucket)
	}
	return nil
}

// checkReader lets the reading begin again, with another consumer, if the log has messages up to
// a sequence and none comes. The server that has the consumer may lack them: it is alive, and does
// not catch up with the leader of the log.
func (m *monitor) checkReader(last uint64, now time.Time) {
	read := m.session.queue.ReadUpTo().Seq
	n, _ := m.session.queue.Waiting()
	waits := read < last && n == 0 && m.session.queue.IsWanted() && !m.guard.Holds()
	if m.read.stands(read, waits, now) < unreadAfter {
		return
	}
	m.session.processor.opts.Logger.Warn("the consumer of the log brings no messages, although there are some: "+
		"another one takes its place", slog.Uint64("read", read), slog.Uint64("last", last))
	m.read = seenAt{}
	m.session.queue.Again()
}

// full returns why the log refuses new messages although it keeps the old ones; nil if it
// does not.
func full(info *jetstream.StreamInfo) error {
	c, s := info.Config, info.State
	switch {
	case c.Sealed:
		return fmt.Errorf("stream %s is sealed, and takes no more messages: begin with a log that is not", c.Name)
	case c.Discard == jetstream.DiscardNew &&
		(c.MaxMsgs > 0 && s.Msgs >= uint64(c.MaxMsgs) || c.MaxBytes > 0 && s.Bytes >= uint64(c.MaxBytes)):
		return fmt.Errorf("stream %s is full (%d messages, %d bytes) and refuses new messages (discard new): raise its "+
			"limits, or let it discard old messages", c.Name, s.Msgs, s.Bytes)
	}
	return nil
}

// takes returns why a stream would not store a message. It publishes one on a condition
// that no stream meets: the stream has to refuse it for that reason, and no other.
func (m *monitor) takes(ctx context.Context, stream jetstream.Stream, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	name := stream.CachedInfo().Config.Name
	msg := nats.NewMsg(subject)
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(impossible, 10))
	_, err := m.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		// A stream takes no more after a write to its disk has failed. It reports that only
		// to a purge, here of a subject on which nothing is ever stored.
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(m.names.Prefix.Probe()))
		if errors.As(err, &api) {
			return fmt.Errorf("stream %s stores nothing, as a write of the NATS server has failed (%w): make room on its "+
				"disk, and start it again", name, err)
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("stream %s does not answer: look at the NATS server, and at its log", name)
	}
	return fmt.Errorf("stream %s refuses messages: %w: look at the NATS server, its disk and its limits", name, err)
}

// checkRedis finds out whether Redis answers and keeps what it has, and reads its clock and memory.
func (m *monitor) checkRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	err := m.guard.Learn(ctx)
	if err == nil {
		err = m.store.Ping(ctx)
	}
	if err != nil && !errors.Is(err, store.ErrDenied) {
		err = fmt.Errorf("it does not answer: %w", err)
	}
	m.set(ctx, problemRedis, err)
	if m.checks++; err != nil || m.checks%policyEvery != 1 {
		return nil
	}
	if memory, err := m.store.Memory(ctx); err == nil {
		m.session.sizes.redis.Store(&memory)
	}
	switch err := m.store.Check(ctx); {
	case errors.Is(err, store.ErrDenied):
		m.set(ctx, problemDenied, err)
	case errors.Is(err, store.ErrServer):
		m.set(ctx, problemDenied, nil)
		m.set(ctx, problemEviction, err)
	case err == nil:
		m.set(ctx, problemDenied, nil)
		m.set(ctx, problemEviction, nil)
	}
	return nil
}

// checkShard finds out whether events are published and messages applied in time.
func (m *monitor) checkShard(context.Context) error {
	m.guard.Settle()
	if m.session.follower != nil {
		return nil // it may be behind: Processor.Following says how far
	}
	now, last, p := time.Now(), m.last.Load(), m.session.status
	m.health.Set(problemForget, m.session.keeper.Problem(now))
	n, _ := m.session.queue.Waiting()
	reaps, applied := m.reaped.stands(p.Reaped.Load(), true, now), p.Applied.Load()
	unapplied := applied < last && p.Owned.Load() && p.Rebuild.Load() == 0 && !m.guard.Holds()
	stands := m.applied.stands(applied, n > 0 || unapplied, now)
	m.unread.Store(n == 0 && stands > unreadAfter)
	var overdue, slow, behind error
	if p.Trouble.Load() == nil { // else there is a problem already
		slow = slowStep(p, now)
		if late := m.overdue(p, now); late > overdueAfter && reaps > overdueAfter || late > overdueAtMost {
			overdue = fmt.Errorf("an event is overdue by %s", late.Round(time.Second))
		}
		if stands > behindAfter {
			behind = fmt.Errorf("the log is applied up to message %d of %d, and no further for %s; %d messages were read "+
				"and wait", applied, last, stands.Round(time.Second), n)
		}
	}
	m.health.Set(problemOverdue, overdue)
	m.health.Set(problemSlow, slow)
	m.health.Set(problemBehind, behind)
	return nil
}

// slowStep says since when the owner is in a step that takes long, and at what; nil if it is in none.
func slowStep(p *shard.Status, now time.Time) error {
	at := p.Begun.Load()
	if took := now.Sub(time.Unix(0, at)); at != 0 && took > slowAfter {
		return fmt.Errorf("a step has taken %s so far, and is %s", took.Round(time.Second), p.Work())
	}
	return nil
}

// overdue is how long the first document has been due.
func (m *monitor) overdue(p *shard.Status, now time.Time) time.Duration {
	if !p.Owned.Load() || p.Rebuild.Load() > 0 || p.Applied.Load() < m.session.start.Load() {
		return 0 // the log has to be applied first
	}
	return m.session.ticker.LogTime(now).Sub(time.UnixMilli(p.FirstDue.Load()))
}
