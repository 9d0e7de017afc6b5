package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/trace"
)

const (
	HeartbeatEvery = time.Second

	// stepEvery is the time from the beginning of a step with more than fewAtOnce messages and due documents to
	// that of the next one. It is the number of steps that costs, not the work in them: at 5,000 documents a second
	// each would have eight, as all its calls wait for a process to be woken. With it, such a document costs 0.77 of
	// the CPU, and its event comes 1 ms later (p50), and not later at the p99. Steps with more take longer anyway.
	// Where several owners of the process make such steps, the time is that many times as long, up to mostBusy, so that
	// all of them together make as many steps as one would: with four, a document costs 0.82 of the CPU, and its event
	// comes 5 ms later (p50), and not later at the p99.
	stepEvery = 3 * time.Millisecond
	fewAtOnce = 4
	mostBusy  = 4

	verifyAtOnce = 100 // collections, in one call
)

// busyOwners is how many owners of this process had more than fewAtOnce in their last step: see stepEvery.
var busyOwners atomic.Int64

// ErrNotOwner: another process is to own the shard now.
var ErrNotOwner = errors.New("another process owns the shard")

// lease tells whether this process is to own the shard. See processor.Lease.
type lease interface {
	OK(ctx context.Context) error
	Fenced(ctx context.Context) error
}

// Store is the stored shard, as its owner uses it. See [store.Shard].
type Store interface {
	Load(ctx context.Context) (store.State, error)
	Leftovers(ctx context.Context) ([]string, error)
	Verify(ctx context.Context, version string, collections []string, indexes ...store.IndexOf) error
	Take(ctx context.Context, s store.State, version string, rebuild uint64) error
	Refuse(ctx context.Context, s store.State, version string) error
	Clock() int64

	ReadDocuments(ctx context.Context, version string, wants []store.Want) ([][]*store.Stored, error)
	Due(ctx context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) ([]store.Due, error)
	Between(ctx context.Context, version, collection string, slices []store.Slice, limit, bytes int,
	) ([]store.Found, error)
	Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange,
		changes []store.CollectionChanges) error

	Copy(ctx context.Context, version string, collections []string, at store.CopyPlace, documents, bytes int,
	) (store.Copied, error)
	Clear(ctx context.Context, version string, next store.State, rebuild uint64) error
	Fill(ctx context.Context, version, next string, changes []store.CollectionFill) error
	Count(ctx context.Context, version string, collections []string) (full []string, documents uint64, err error)
}

// Parts are what an Owner works with.
type Parts struct {
	Shard       int
	Shards      int // how many there are
	Store       Store
	Log         *streams.Log
	Link        *streams.Link
	Publisher   *events.Publisher           // to the stream of events
	Tail        *events.Tail                // of that stream
	MaxAge      time.Duration               // of messages in the stream of events; 0 if they stay for ever
	Mirror      Mirror                      // nil in the first region
	MayLead     func(context.Context) error // an error if another region is the first now; nil where that is not asked
	Lease       lease                       // nil if this process owns the shard whatever others do
	Status      *Status
	Queue       *Queue
	Reader      *Reader
	Ticker      *Ticker
	Pace        *Pace
	Checkpoints *Checkpoints
	Desk        *snapshot.Desk // nil if there are no snapshots
	Outcomes    *Outcomes
	Metrics     *Metrics
	Limits      fold.Limits
	Bounds      Bounds
	Hook        crash.Hook
	Trace       trace.Recorder // of the writes, and of the events that follow from them
	Logger      *slog.Logger
}

// Metrics count what the owners do.
type Metrics struct {
	Applied, Expired, Warned, Fenced, Rebuilds prometheus.Counter
	Emitted                                    prometheus.Counter     // outputs
	Rejected                                   *prometheus.CounterVec // by code
	Lateness, Commits                          prometheus.Observer
}

// Owner owns a shard: it folds the log, step by step. Only its own goroutine touches it, but for its Status and
// its Queue.
type Owner struct {
	Parts

	// State of the shard. Every takeover makes it anew.
	progress    fold.Progress
	collections *fold.Collections
	due         fold.DueQueue
	pending     []*fold.Message // the first of the queue, of which this round applies some
	announcer   *Announcer
	outcomes    []fold.Outcome // of the last step, until they are sent

	tenure tenure
	reaper reaper
	duties duties
	again  atomic.Bool // see TakeOverAgain

	stepped int  // messages and due documents of the last step
	busy    bool // it is counted in busyOwners
}

// tenure is how this process owns the shard.
type tenure struct {
	taken     bool      // the shard is taken over, and nothing has failed since
	everTaken bool      // it was taken over in this run
	verified  time.Time // when this process was the owner for certain
	failed    time.Time // when something failed last
	damage    error     // the damage that a step found, which a takeover repairs

	recording *recording         // the snapshot that is being taken; nil if none is
	loads     *snapshot.Manifest // the snapshot to be loaded before anything else; nil if none is
	loader    *loader            // of it; nil before it begins
}

// duties are when the owner last did what it does once in a while.
type duties struct {
	settled   time.Time // collections
	heartbeat time.Time
	warned    int64         // log time up to which all warnings are published
	made      time.Time     // when documents were passed for property indexes
	making    time.Duration // how long that took
	full      bool          // Redis had no room for their entries
}

// New makes the owner of a shard, which begins in Run.
func New(parts Parts) *Owner {
	p := &Owner{Parts: parts}
	p.announcer = NewAnnouncer(&p.Parts, p)
	return p
}

// TakeOverAgain makes the owner compare with each other what the servers hold, as each takeover does:
// one of them may have lost what it had acknowledged.
func (p *Owner) TakeOverAgain() { p.again.Store(true) }

// Announcer publishes the outputs of the shard.
func (p *Owner) Announcer() *Announcer { return p.announcer }

// Run steps until ctx is done; then it ends the step in flight. It returns an error only
// if it would be wrong to go on.
func (p *Owner) Run(ctx context.Context) error {
	failures := 0
	timer := time.NewTimer(HeartbeatEvery)
	defer timer.Stop()
	defer p.abandon(errEnds)
	defer p.setBusy(false)
	for ctx.Err() == nil {
		began := time.Now()
		p.Status.Begun.Store(began.UnixNano())
		p.stepped = 0
		worked, err := p.runOnce(ctx)
		p.Status.Begun.Store(0)
		p.setBusy(worked && p.stepped > fewAtOnce)
		if err != nil {
			if p.Lease != nil && errors.Is(err, store.ErrFenced) {
				err = cmp.Or(p.Lease.Fenced(ctx), err)
			}
			if p.fatal(err) {
				return err
			}
			failures++
			p.fail(ctx, err, failures)
			continue
		}
		if p.tenure.loads == nil {
			p.Status.trouble(nil)
		}
		if p.progressed() {
			failures = 0
		}
		if worked {
			if p.busy {
				time.Sleep(stepEvery*time.Duration(min(busyOwners.Load(), mostBusy)) - time.Since(began))
			}
			continue
		}
		timer.Reset(p.rest())
		select {
		case <-ctx.Done():
		case <-p.Queue.Arrived():
		case <-timer.C:
		}
	}
	return nil
}

// setBusy counts the owner in busyOwners, or not.
func (p *Owner) setBusy(busy bool) {
	switch {
	case busy && !p.busy:
		busyOwners.Add(1)
	case !busy && p.busy:
		busyOwners.Add(-1)
	}
	p.busy = busy
}

// progressed reports whether the shard has got on since its last failure: it has committed something that came after
// its takeover, or nothing has failed for a while. A takeover is no progress, nor is a part of a load: else a shard
// that always fails after it would be taken over again and again without a pause, with a tick and a fence each time.
func (p *Owner) progressed() bool {
	return p.tenure.loads == nil && (p.progress.CommittedOffset > p.announcer.upTo ||
		time.Since(p.tenure.failed) > backoff.Calm)
}

// fatal reports whether an error means that it would be wrong to go on.
func (p *Owner) fatal(err error) bool {
	return streams.AsRefusal(err) != nil || errors.Is(err, ErrNotOwner)
}

// fail notes why a step failed, and waits before the next. After a failure the owner
// trusts nothing that it knew of the shard: it takes the shard over anew.
func (p *Owner) fail(ctx context.Context, err error, failures int) {
	p.tenure.taken, p.tenure.failed = false, time.Now()
	p.abandon(err)
	if errors.Is(err, store.ErrDamaged) {
		p.tenure.damage = err
	}
	fenced := errors.Is(err, store.ErrFenced)
	if fenced {
		p.Metrics.Fenced.Inc()
	}
	if !fenced || failures > 1 { // once is usual when another owner takes over
		p.Status.trouble(err)
	}
	backoff.Wait(ctx, backoff.AfterFailures(failures, p.Shard, p.Shards))
}

// runOnce does the next thing, traffic first: it applies messages that have arrived, reaps some documents that are due,
// warns of some that will be, and verifies the stored state. worked reports that there may be more to do at once. A
// step that has begun ends, although stop is done.
func (p *Owner) runOnce(stop context.Context) (worked bool, err error) {
	ctx := context.WithoutCancel(stop)
	if p.Lease != nil {
		end := p.Status.Works("waiting for NATS (lease)")
		err := p.Lease.OK(ctx)
		if end(); err != nil {
			return false, err
		}
	}
	if why := p.Queue.Truncated(); why != nil && p.tenure.taken {
		return false, p.failed(fmt.Errorf("it is taken over anew: %v", why)) // not its kind: the takeover judges that
	}
	if p.again.Swap(false) {
		p.tenure.taken = false
		p.abandon(errAgain)
	}
	if !p.tenure.taken {
		end := p.Status.Works("taking the shard over, with NATS and Redis")
		_, err := p.takeOver(stop, ctx)
		if end(); err != nil {
			return false, err
		}
		// After a failure the owner reaps first, once: if Redis is full, that makes room.
		if p.tenure.loads == nil {
			if err := p.reapNow(ctx); err != nil {
				return false, err
			}
		}
	}
	if p.tenure.loads != nil {
		return true, p.load(stop)
	}
	read := p.Queue.ReadUpTo() // before Next: no message is missing up to there
	var all bool
	if p.pending, all = p.Queue.Next(fold.BatchMessages, fold.BatchBytes); !all {
		read = fold.Position{}
	}
	var batch []*fold.Message
	if len(p.pending) > 0 && p.pending[0].IsControl() {
		if err := p.control(ctx, p.pending[0]); err != nil {
			return false, err
		}
		worked = true
	} else {
		batch = fold.Batch(p.pending)
	}
	stepped, err := p.step(ctx, batch, read)
	if err != nil {
		return false, err
	}
	warned := false
	if p.nextWarning() <= p.progress.Watermark {
		if warned, err = p.warn(ctx); err != nil {
			return false, err
		}
	}
	tidied, err := p.Tidy(ctx, time.Now())
	if err != nil {
		return false, err
	}
	if err := p.record(ctx); err != nil {
		return false, err
	}
	if worked || stepped || warned || tidied {
		_, err := p.makeIndexes(ctx, true)
		return true, err
	}
	if due, err := p.keep(ctx); err != nil || due {
		return due, err
	}
	return p.makeIndexes(ctx, false)
}

// keep is what the owner does when there is nothing else to do: it asks to be woken when
// the next document is due, settles collections, and once a second commits its progress
// and verifies what is stored. due reports that a document is due by now.
func (p *Owner) keep(ctx context.Context) (due bool, err error) {
	next := p.firstDue()
	p.Status.FirstDue.Store(p.firstDueKnown())
	next = min(next, p.nextWarning())
	p.Ticker.WakeAt(next)
	if read := p.Queue.ReadUpTo(); read.Time >= next && read.Seq > p.progress.Offset {
		return true, nil // since the last step
	}
	if settled, err := p.settle(ctx); err != nil || settled {
		return settled, err
	}
	if p.progress.Rebuild != 0 && p.progress.Offset >= p.progress.Rebuild {
		return false, p.commit(ctx, p.progress.Here(), nil, nil)
	}
	if time.Since(p.duties.heartbeat) < HeartbeatEvery {
		return false, nil
	}
	p.duties.heartbeat = time.Now()
	if !p.progress.IsCommitted() {
		if err := p.commit(ctx, p.progress.Here(), nil, nil); err != nil {
			return false, err
		}
	} else {
		p.judge() // a commit may have taken effect whose reply was lost
	}
	return false, p.verify(ctx, p.collections.ToVerify(verifyAtOnce))
}

// Verify returns an error unless the shard is still this process's.
func (p *Owner) Verify(ctx context.Context) error { return p.verify(ctx, nil) }

// Verified is when this process was the owner for certain.
func (p *Owner) Verified() time.Time { return p.tenure.verified }

// verify makes sure that the shard is this process's, and that some collections are as they were left.
func (p *Owner) verify(ctx context.Context, collections []string) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (verify)")()
	began := time.Now()
	if err := p.Store.Verify(ctx, p.progress.Version, collections,
		p.collections.IndexesOf(collections)...); err != nil {
		return err
	}
	p.tenure.verified = began
	return nil
}

// judge tells others whether a document is due. If none is, nor is to be warned of, all outputs up to
// the committed position are published.
func (p *Owner) judge() {
	known := p.firstDueKnown()
	p.Status.FirstDue.Store(known)
	p.Status.Paused.Store(int64(p.collections.Paused()))
	p.Status.Making.Store(int64(p.collections.IndexesMade()))
	switch {
	case p.firstDue() <= p.progress.CommittedWatermark:
		p.Status.Due.Store(min(known, p.progress.CommittedWatermark))
	case p.collections.FirstWarning() > p.progress.CommittedWatermark:
		p.announcer.Settle(&Checkpoint{
			Log: p.Log.ID(), Seq: p.progress.CommittedOffset, Watermark: p.progress.CommittedWatermark,
			Stamp: p.progress.Stamp.String(),
		})
		fallthrough
	default:
		p.Status.Due.Store(0)
	}
}

func (p *Owner) failed(err error) error { return fmt.Errorf("shard %d: %w", p.Shard, err) }

// Collections are the collections of the shard; nil before the first takeover. Tests read them.
func (p *Owner) Collections() *fold.Collections { return p.collections }
