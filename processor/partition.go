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
	looked    time.Time // when this process was the owner for certain
	soon      soon
	turn      turn  // to reap
	hurries   bool  // something waits for what is due to be reaped
	fresh     int   // how many batches were read, one after the other, of which nothing was there
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
	left    atomic.Int64               // how much is due or soon will be, as far as that was looked up
	due     atomic.Int64               // since when something is due, Unix milliseconds; 0 if nothing is
}

// collection is what a partition knows of a collection.
type collection struct {
	config sink.Config
	// The lowest scores in the indexes, or less, of what was not looked up.
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
	p.leaveTurn()
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
		if err := p.hurry(ctx); err != nil {
			return false, err
		}
	}
	read := p.position() // before the messages are taken: nothing is missing up to there
	p.pending = p.inbox.take(p.pending)
	for len(p.pending) > 0 && p.pending[0].seq <= p.offset {
		p.pending = p.pending[1:] // another owner has applied it
	}
	var batch []*message
	if len(p.pending) > 0 && p.pending[0].administers() {
		if err := p.control(ctx, p.pending[0]); err != nil {
			return false, err
		}
		worked = true
	} else {
		batch = p.nextBatch()
	}
	stepped, err := p.step(ctx, batch, read)
	if err != nil {
		return false, err
	}
	built, err := p.buildNext(ctx)
	if err != nil {
		return false, err
	}
	if worked || stepped || built {
		return true, nil
	}
	return p.keep(ctx)
}

// position is how far the log was read, as far as this partition's messages are
// concerned. While its inbox is rewound, what the consumer says is not about it.
func (p *partition) position() mark {
	if !p.inbox.reading() {
		return mark{}
	}
	return p.consumer.position()
}

// reached notes how far the log was applied, and tells others.
func (p *partition) reached(to mark) {
	p.offset, p.watermark = to.seq, to.time
	p.applied.Store(to.seq)
	p.outcomes.poke()
}

// keep is what is done when there is nothing else to do: ask to be woken when
// something will be due, drop epochs that no longer matter, and once in a while
// commit how far the log was applied and verify what is stored. It says whether
// something is due by now.
func (p *partition) keep(ctx context.Context) (due bool, err error) {
	next := p.nextDue()
	if p.turn == waitsForTurn {
		next = math.MaxInt64 // it is woken when it is its turn
	}
	p.ticker.want(p.id, next)
	if p.position().time >= next {
		return true, nil // since the log was looked at last
	}
	if err := p.settle(ctx); err != nil {
		return false, err
	}
	if p.rebuild != 0 && p.offset >= p.rebuild {
		return false, p.commit(ctx, p.here(), nil, nil)
	}
	if time.Since(p.heartbeat) < heartbeatEvery {
		return false, nil
	}
	p.heartbeat = time.Now()
	if p.offset != p.committed || p.watermark != p.stamped {
		if err := p.commit(ctx, p.here(), nil, nil); err != nil {
			return false, err
		}
	} else {
		p.judge() // a step may have been committed that nobody was told of
	}
	return false, p.verifyNext(ctx)
}

// verifyNext verifies some of the collections, in turn.
func (p *partition) verifyNext(ctx context.Context) error {
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
	return p.verify(ctx, some)
}

// verify makes sure that the partition is this process's, and that some collections are
// as they were left.
func (p *partition) verify(ctx context.Context, collections []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	if err := p.store.Verify(ctx, p.version, collections); err != nil {
		return err
	}
	p.looked = began
	return nil
}

// settle drops the epochs of configurations under which all that was due is gone.
func (p *partition) settle(ctx context.Context) error {
	var changes []sink.ConfigChange
	for name, c := range p.configs {
		if len(c.config.History) > 1 && !c.config.Building && p.nextDueOf(name) > p.watermark {
			settled := c.config
			settled.History = settled.History.Settled()
			changes = append(changes, sink.ConfigChange{Collection: name, Config: &settled})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := p.commit(ctx, p.here(), changes, nil); err != nil {
		return err
	}
	for _, c := range changes {
		p.configs[c.Collection].config = *c.Config
	}
	return nil
}

// here is where the log was applied to.
func (p *partition) here() mark { return mark{p.offset, p.watermark} }

// commit commits a step, after which the log is applied up to a mark. If it is refused
// as a document exists, nothing has changed.
func (p *partition) commit(ctx context.Context, to mark, configs []sink.ConfigChange, changes []sink.CollectionChanges) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	p.steps++
	pr := sink.Progress{
		Version:   p.version,
		Next:      p.nonce + "-" + strconv.FormatUint(p.steps, 10),
		Offset:    to.seq,
		Watermark: to.time,
	}
	if to.seq < p.rebuild {
		pr.Rebuild = p.rebuild
	}
	if err := p.at(beforeCommit); err != nil {
		return err
	}
	if err := p.store.Commit(ctx, pr, configs, changes); err != nil {
		return err
	}
	if err := p.at(afterCommit); err != nil {
		return err
	}
	p.looked = began
	p.metrics.commits.Observe(time.Since(began).Seconds())
	for _, c := range changes {
		p.noteChanges(c)
	}
	p.version, p.committed, p.stamped, p.rebuild = pr.Next, pr.Offset, pr.Watermark, pr.Rebuild
	p.lacking.Store(pr.Rebuild)
	p.reached(to)
	p.judge()
	return nil
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
		p.left.Store(0)
	}
}

func newNonce() string { return rand.Text() }

func partitionError(id int, err error) error { return fmt.Errorf("partition %d: %w", id, err) }
