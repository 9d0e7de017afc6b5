package processor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mrand "math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/ttlrules"
)

// partition owns one partition and folds its part of the log, step by step. Only
// its own goroutine touches what is not atomic.
type partition struct {
	id    int
	store *sink.Partition
	inbox *inbox
	shared
	logger *slog.Logger

	// What is committed.
	taken     bool
	everTaken bool
	version   string
	committed uint64 // offset
	stamped   int64  // watermark

	// What was applied. It may be ahead of what is committed, where nothing but
	// time and offset has changed.
	offset    uint64
	watermark int64
	rebuild   uint64
	configs   map[string]*collection
	nonce     string
	steps     uint64
	damage    error // what a step found damaged, and is to be rebuilt

	pending   []*message // taken from the inbox, to be applied
	base      uint64     // of the log: pending and inbox have all that comes after it
	said      said
	fence     *events.Fence // in the stream of events; nil if nothing was said yet
	verified  int           // of the collections, in turn
	names     []string
	heartbeat time.Time

	applied atomic.Uint64              // offset, for others to read
	lacking atomic.Uint64              // rebuild, for others to read
	owned   atomic.Bool                // everTaken, for others to read
	trouble atomic.Pointer[error]      // why nothing goes on, if so
	settled atomic.Pointer[Checkpoint] // up to where all has been said
	due     atomic.Int64               // since when something is due, Unix milliseconds; 0 if nothing is
}

// collection is what a partition knows of a collection.
type collection struct {
	config sink.Config
	// The lowest scores in the indexes, or less.
	nextInherit, nextOwn int64
	building             building
}

// nextDue is the instant at which something of the collection may be due; never is
// math.MaxInt64.
func (c *collection) nextDue() int64 {
	at := int64(math.MaxInt64)
	if c.config.NoIndex {
		return at
	}
	if c.nextInherit != sink.NoScore {
		if t, ok := c.config.History.NextDue(c.nextInherit, true); ok {
			at = min(at, t)
		}
	}
	if c.nextOwn != sink.NoScore {
		if t, ok := c.config.History.NextDue(c.nextOwn, false); ok {
			at = min(at, t)
		}
	}
	return at
}

// note keeps the lowest scores true after a document came to the index.
func (c *collection) note(h *sink.Header) {
	switch {
	case h.TTL == ttlrules.Inherit:
		c.nextInherit = min(c.nextInherit, h.Ts)
	case h.TTL > 0:
		c.nextOwn = min(c.nextOwn, h.Ts+int64(h.TTL)*1000)
	}
}

// collection is the place of a collection in the partition.
func (p *partition) collection(name string) *collection {
	c, ok := p.configs[name]
	if !ok {
		c = &collection{nextInherit: sink.NoScore, nextOwn: sink.NoScore}
		p.configs[name] = c
	}
	return c
}

func (p *partition) config(name string) sink.Config {
	if c, ok := p.configs[name]; ok {
		return c.config
	}
	return sink.Config{}
}

// nextDue is the instant at which something in the partition may be due.
func (p *partition) nextDue() int64 {
	at := int64(math.MaxInt64)
	for _, c := range p.configs {
		at = min(at, c.nextDue())
	}
	return at
}

// run steps until ctx is done; then it ends the step in flight. It returns an error
// only if going on would be wrong.
func (p *partition) run(ctx context.Context) error {
	failures := 0
	timer := time.NewTimer(heartbeatEvery)
	defer timer.Stop()
	for ctx.Err() == nil {
		worked, err := p.runOnce(context.WithoutCancel(ctx))
		if err != nil {
			if p.fatal(err) {
				return err
			}
			failures++
			p.fail(ctx, err, failures)
			continue
		}
		if p.trouble.Swap(nil) != nil {
			p.logger.Info("the partition goes on")
		}
		failures = 0
		if worked {
			continue
		}
		timer.Reset(heartbeatEvery)
		select {
		case <-ctx.Done():
		case <-p.inbox.arrived:
		case <-timer.C:
		}
	}
	return nil
}

// fatal says whether an error means that going on would be wrong.
func (p *partition) fatal(err error) bool {
	switch {
	case errors.Is(err, ErrLogTruncated), errors.Is(err, ErrLogBehind), errors.Is(err, ErrLogChanged):
		return true
	case errors.Is(err, sink.ErrForeign):
		return !p.everTaken
	}
	return false
}

// fail notes why a step failed, and waits before the next. Nothing that was known
// of the partition is taken for true after a failure: it is taken over anew.
func (p *partition) fail(ctx context.Context, err error, failures int) {
	p.taken = false
	if errors.Is(err, sink.ErrDamaged) {
		p.damage = err
	}
	fenced := errors.Is(err, sink.ErrFenced)
	if p.trouble.Swap(&err) == nil && !fenced {
		p.logger.Warn("a step failed, and is tried again", slog.Any("error", err))
	}
	if fenced {
		p.metrics.fenced.Inc()
	}
	pause := min(retryAfter<<min(failures-1, 4), retryAtMost)
	wait(ctx, pause/2+mrand.N(pause/2+1))
}

// runOnce does what is to be done next, traffic first: apply what has arrived,
// reap some of what is due, build some of an index, and keep the state fresh.
// worked says that there may be more to do at once.
func (p *partition) runOnce(ctx context.Context) (worked bool, err error) {
	if !p.taken {
		if err := p.takeOver(ctx); err != nil {
			return false, err
		}
		// After a failure what is due goes first, once: if Redis is full, that is
		// what makes room.
		if _, err := p.reap(ctx); err != nil {
			return false, err
		}
	}
	position := p.position()
	p.pending = p.inbox.take(p.pending)
	for len(p.pending) > 0 && p.pending[0].seq <= p.offset {
		p.pending = p.pending[1:] // another owner has applied it
	}
	if len(p.pending) > 0 {
		if err := p.applyNext(ctx); err != nil {
			return false, err
		}
		worked = true
	} else if position > p.offset {
		p.advance(position)
	}
	reaped, err := p.reap(ctx)
	if err != nil {
		return false, err
	}
	built, err := p.buildNext(ctx)
	if err != nil {
		return false, err
	}
	if worked = worked || reaped || built; worked {
		return true, nil
	}
	return false, p.keep(ctx)
}

// position is how far the log was read, as far as this partition's messages are
// concerned. While its inbox is rewound, what the consumer says is not about it.
func (p *partition) position() uint64 {
	if !p.inbox.reading() {
		return 0
	}
	return p.consumer.position.Load()
}

// advance notes that the log was applied up to an offset, where no message of it
// is for this partition.
func (p *partition) advance(offset uint64) {
	if offset > p.said.upTo {
		p.said.pass(p.watermark)
	}
	p.offset, p.base = offset, offset
	p.reached(offset)
}

// reached tells others how far the log was applied.
func (p *partition) reached(offset uint64) {
	p.applied.Store(offset)
	p.outcomes.poke()
}

// keep is what is done when there is nothing else to do: ask for a tick when
// something will be due, drop epochs that no longer matter, and once in a while
// commit how far the log was applied and verify what is stored.
func (p *partition) keep(ctx context.Context) error {
	p.ticker.want(p.id, p.nextDue())
	if err := p.settle(ctx); err != nil {
		return err
	}
	if p.rebuild != 0 && p.offset >= p.rebuild {
		return p.commit(ctx, nil, nil)
	}
	if time.Since(p.heartbeat) < heartbeatEvery {
		return nil
	}
	p.heartbeat = time.Now()
	if p.offset != p.committed || p.watermark != p.stamped {
		if err := p.commit(ctx, nil, nil); err != nil {
			return err
		}
	}
	return p.verify(ctx)
}

// verify verifies some of the collections, in turn.
func (p *partition) verify(ctx context.Context) error {
	if p.verified >= len(p.names) {
		p.names = p.names[:0]
		for name := range p.configs {
			p.names = append(p.names, name)
		}
		slices.Sort(p.names)
		p.verified = 0
	}
	some := p.names[p.verified:min(p.verified+verifyAtOnce, len(p.names))]
	p.verified += len(some)
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.store.Verify(ctx, p.version, some)
}

// settle drops the epochs of configurations under which all that was due is gone.
func (p *partition) settle(ctx context.Context) error {
	var changes []sink.ConfigChange
	for name, c := range p.configs {
		if len(c.config.History) > 1 && !c.config.Building && c.nextDue() > p.watermark {
			settled := c.config
			settled.History = settled.History.Settled()
			changes = append(changes, sink.ConfigChange{Collection: name, Config: &settled})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := p.commit(ctx, changes, nil); err != nil {
		return err
	}
	for _, c := range changes {
		p.configs[c.Collection].config = *c.Config
	}
	return nil
}

// progress is what a commit says about the log, and the version that it makes.
func (p *partition) progress() sink.Progress {
	p.steps++
	if p.offset >= p.rebuild {
		p.rebuild = 0
	}
	return sink.Progress{
		Version:   p.version,
		Next:      p.nonce + "-" + strconv.FormatUint(p.steps, 10),
		Offset:    p.offset,
		Watermark: p.watermark,
		Rebuild:   p.rebuild,
	}
}

// commit commits a step, with the offset and the watermark that p has by then.
func (p *partition) commit(ctx context.Context, configs []sink.ConfigChange, changes []sink.CollectionChanges) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	pr := p.progress()
	if err := p.at(beforeCommit); err != nil {
		return err
	}
	if err := p.store.Commit(ctx, pr, configs, changes); err != nil {
		return err
	}
	if err := p.at(afterCommit); err != nil {
		return err
	}
	p.metrics.commits.Observe(time.Since(began).Seconds())
	p.committedAt(pr)
	return nil
}

// committedAt notes what was committed.
func (p *partition) committedAt(pr sink.Progress) {
	p.version, p.committed, p.stamped = pr.Next, pr.Offset, pr.Watermark
	p.lacking.Store(pr.Rebuild)
	p.reached(pr.Offset)
	p.judge()
}

// judge tells others whether something is due, and if nothing is, that up to what is
// committed all has been said.
func (p *partition) judge() {
	switch due := p.nextDue(); {
	case due <= p.stamped:
		p.due.Store(due)
	case !p.anyBuilding():
		p.settled.Store(&Checkpoint{Log: p.log, Seq: p.committed, Watermark: p.stamped})
		fallthrough
	default:
		p.due.Store(0)
	}
}

func newNonce() string { return rand.Text() }

func partitionError(id int, err error) error { return fmt.Errorf("partition %d: %w", id, err) }
