package retention

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	longestLook                = 5 * time.Second
	leastGrowth                = 64 << 20 // of the log, for a snapshot that nothing else asks for
	failurePause, longestPause = time.Second, 10 * time.Minute
	// shares of the time within which lapse forgets
	intervals, eventEdges = 5, 16
)

// Redis is what the keeper asks of the Redis servers.
type Redis interface {
	// Rewrite lets the servers write the files that they keep anew, and waits until they have. A
	// store.ErrDenied means that the user may not ask for it.
	Rewrite(ctx context.Context) error
}

// Parts are what a keeper works with.
type Parts struct {
	Names       wire.Log
	Log         *streams.Log
	JetStream   jetstream.JetStream
	Desk        *snapshot.Desk
	Checkpoints *shard.Checkpoints
	Status      *shard.Status
	Redis       Redis
	Logger      *slog.Logger
	Metrics     *Metrics
	Hook        crash.Hook
	Applying    func() error // nil once the log was applied
	Mirrored    bool         // accounts of readers mirror the events: their files end only by messages that stay
	// Sync is how long the NATS server may take to have on disk what it has acknowledged.
	Sync time.Duration
}

// Keeper lets go of what a shard need not keep. See the package doc.
type Keeper struct {
	Parts
	within time.Duration

	// Only the goroutine of Run changes these; the others read them under mu.
	mu          sync.Mutex
	kept        *kept
	generations []wire.Generation     // newest first
	seen        *jetstream.StreamInfo // of the log, last
	stirred     int64                 // when a document may have died last, Unix milliseconds
	oldest      uint64                // sequence of the oldest message of the stream of snapshots
	others      map[int]kept          // what the keepers of the other shards have done
	eventsAge   time.Duration
	failure     error     // why the last attempt has failed; nil if it has not
	failing     time.Time // since when the attempts fail; zero if the last one has not

	stored    kept      // as kept was stored last
	noted     time.Time // when noteRest has stored it last, by the clock of NATS
	othersAt  time.Time // when others were read, by that clock
	tries     tries
	synced    synced
	truncated uint64 // the log has nothing before it
	denied    bool   // Redis does not rewrite its files
	asked     atomic.Int64
	forget    atomic.Int64  // what has died before it may go at once, Unix milliseconds
	ordered   atomic.Int64  // when somebody has asked last how far an order to forget is, Unix milliseconds
	poke      chan struct{} // somebody has asked
}

// tries is how the snapshots go.
type tries struct {
	failures int       // one after the other
	until    time.Time // before which it is not tried again
	anew     int       // snapshots that are wanted in place of damaged ones
}

// New makes a keeper, which begins in Run. within is how long lapse may take to forget.
func New(parts Parts, within time.Duration) *Keeper {
	return &Keeper{Parts: parts, within: within, poke: make(chan struct{}, 1)}
}

// interval is the time between two snapshots, unless the log grows faster. The log is
// truncated only once the second of them is on disk.
func (k *Keeper) interval() time.Duration { return (k.within - k.Sync) / intervals }

// every is how often the keeper looks.
func (k *Keeper) every() time.Duration {
	return min(max(k.within/100, 50*time.Millisecond), longestLook)
}

// Run keeps the promise until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	failures, last := 0, ""
	for wait := k.every(); k.rest(ctx, wait); {
		if wait = k.every(); k.forgets() {
			wait = min(wait, forgetEvery)
		}
		if k.Applying() != nil {
			continue // what the shard lacks comes first
		}
		err := k.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		k.note(err, time.Now())
		if err == nil {
			failures = 0
			if k.failure == nil && last != "" {
				k.Logger.Info("snapshots and the truncation of the log go on")
				last = ""
			}
			continue
		}
		failures++
		wait = k.pauseAfter(failures)
		if text := err.Error(); text != last {
			last = text
			k.Logger.Warn("snapshots and the truncation of the log do not go on", slog.Any("error", err),
				slog.Duration("again_in", wait))
		}
	}
}

// rest waits for a time, or until somebody asks, and reports whether ctx is not done yet.
func (k *Keeper) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.poke:
	}
	return ctx.Err() == nil
}

// note keeps the last failure for the report, until a snapshot succeeds.
func (k *Keeper) note(err error, now time.Time) {
	if err == nil && k.tries.failures > 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failure = err
	switch {
	case err == nil:
		k.failing = time.Time{}
	case k.failing.IsZero():
		k.failing = now
	}
}

// pauseAfter is how long to wait after so many failures.
func (k *Keeper) pauseAfter(failures int) time.Duration {
	return min(failurePause<<min(failures-1, 16), longestPause, max(k.interval()/4, k.every()))
}

// runOnce takes a snapshot, if one is wanted, and lets go of what may go by then.
func (k *Keeper) runOnce(ctx context.Context) error {
	info, err := k.look(ctx)
	if err != nil {
		return err
	}
	if err := k.noteRest(ctx, info.TimeStamp); err != nil {
		return err
	}
	if k.wants(info) {
		if err := k.take(ctx, info); err != nil {
			return err
		}
	}
	if err := k.truncate(ctx); err != nil {
		return err
	}
	if k.Names.Shard != 0 {
		return nil // the events and Redis are for all shards
	}
	if err := k.endEvents(ctx, info.TimeStamp); err != nil {
		return err
	}
	return k.rewriteRedis(ctx, info)
}

// look reads the state of the log and, once, what the keeper has done before.
func (k *Keeper) look(ctx context.Context) (*jetstream.StreamInfo, error) {
	info, err := k.Log.Info(ctx)
	if err != nil {
		return nil, err
	}
	if k.kept == nil {
		if err := k.begin(ctx, info); err != nil {
			return nil, err
		}
	}
	settled := k.seen != nil && k.seen.State.LastSeq == info.State.LastSeq &&
		k.Status.Applied.Load() >= info.State.LastSeq && k.Status.Due.Load() == 0
	if err := k.readOthers(ctx, info.TimeStamp); err != nil {
		return nil, err
	}
	if err := k.readOldest(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.saw(info.TimeStamp, settled)
	k.seen = info
	return info, nil
}

// begin reads what the keeper has done before. What was left of a snapshot that was not finished goes
// with the next one, which is wanted at once.
func (k *Keeper) begin(ctx context.Context, info *jetstream.StreamInfo) error {
	done, err := k.load(ctx, info)
	if err != nil {
		return err
	}
	all, err := k.Desk.Store().Recorded(ctx)
	if err != nil {
		return err
	}
	left, err := k.Desk.Store().Leftovers(ctx)
	if err != nil {
		return err
	}
	if left {
		k.tries.anew = 1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.generations, k.stored = done, all, *done
	k.synced.note(all, time.Now())
	return nil
}

// wants reports whether a snapshot is wanted.
func (k *Keeper) wants(info *jetstream.StreamInfo) bool {
	now, cost := info.TimeStamp, uint64(leastGrowth)
	begun, offset := info.Created.UnixMilli(), uint64(0)
	if len(k.generations) > 0 {
		newest := k.generations[0]
		begun, offset = newest.Begun, newest.Offset
		cost += newest.Bytes
	}
	aged := now.Sub(time.UnixMilli(begun)) >= k.interval() && (!k.clean(info) || k.holds())
	wanted := aged || k.wantsForOrder() || k.tries.anew > 0 || begun < k.asked.Load() || grown(info.State, offset) > cost
	return wanted && !now.Before(k.tries.until) && k.onDisk()
}

// grown is about by how many bytes a log has grown since an offset.
func grown(log jetstream.StreamState, offset uint64) uint64 {
	from := max(offset+1, log.FirstSeq)
	if log.Msgs == 0 || log.LastSeq < from {
		return 0
	}
	return uint64(float64(log.Bytes) / float64(log.Msgs) * float64(log.LastSeq-from+1))
}

// take takes a snapshot.
func (k *Keeper) take(ctx context.Context, info *jetstream.StreamInfo) error {
	objects, err := k.endFiles(ctx, info)
	if err != nil {
		return err
	}
	began := time.Now()
	// Another owner may have taken one meanwhile, which must not replace one that is on disk (T4).
	all, err := k.Desk.Store().Recorded(ctx)
	if err != nil {
		return err
	}
	if k.synced.note(all, began); !k.onDisk() {
		return nil
	}
	g, err := k.Desk.Take(ctx, info.TimeStamp)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t := &k.tries
		t.failures, t.anew = t.failures+1, max(t.anew, 1)
		t.until = info.TimeStamp.Add(time.Since(began) + k.pauseAfter(t.failures))
		k.Metrics.failures.Inc()
		// It is not known whether the record has changed.
		if all, err := k.Desk.Store().Recorded(ctx); err == nil {
			k.put(all)
		}
		return fmt.Errorf("snapshot: %w", err)
	}
	k.tries = tries{anew: max(0, k.tries.anew-1)}
	k.put(append([]wire.Generation{g}, k.generations[:min(len(k.generations), 1)]...))
	k.Metrics.taken.Inc()
	k.Metrics.bytes.Add(float64(g.Bytes))
	k.Metrics.seconds.Observe(time.Since(began).Seconds())
	k.Logger.Info("took a snapshot", slog.Int("shard", k.Names.Shard), slog.Uint64("generation", g.Generation),
		slog.Uint64("offset", g.Offset),
		slog.Uint64("documents", g.Documents), slog.Uint64("bytes", g.Bytes), slog.Duration("took", time.Since(began)))
	if k.Names.Shards < 2 {
		return nil
	}
	next := *k.kept
	next.Floors = append([]floor{{g.Generation, objects}}, next.Floors[:min(len(next.Floors), snapshot.Kept-1)]...)
	return k.save(ctx, next)
}

// put keeps the generations.
func (k *Keeper) put(all []wire.Generation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generations = all
	k.synced.note(all, time.Now())
}

// endFiles ends the files of the log and of the snapshots, unless that was done not long ago. What is stored from then
// on is behind objects in the stream of snapshots.
func (k *Keeper) endFiles(ctx context.Context, info *jetstream.StreamInfo) (objects uint64, err error) {
	s, now, next := k.Log.Streams, info.TimeStamp, *k.kept
	if f := s.LogFilling(k.Names); !f.Fits(info) {
		next.turn(info)
	} else if next.Log, err = k.end(ctx, k.kept.Log, now, info, f, k.interval()/2); err != nil {
		return 0, err
	} else {
		next.Turn = edge{}
	}
	if s.Snapshots != nil {
		stored, err := s.Snapshots.Stream().Info(ctx)
		if err != nil {
			return 0, streams.Gone(err, s.Snapshots.Stream().CachedInfo().Config.Name)
		}
		if next.Objects, err = k.end(ctx, k.kept.Objects, now, stored, s.ObjectsFilling(), k.interval()/2); err != nil {
			return 0, err
		}
		objects = max(stored.State.LastSeq, next.Objects.last().Seq)
	}
	return objects, k.save(ctx, next)
}

// end ends the file of a stream, unless that was done not long ago.
func (k *Keeper) end(ctx context.Context, had edges, now time.Time, info *jetstream.StreamInfo, f streams.Filling,
	every time.Duration) (edges, error) {
	if len(had) == 0 {
		had = edges{{At: info.Created.UnixMilli()}} // no file has anything from before
	}
	next := edge{At: now.UnixMilli(), Seq: info.State.LastSeq}
	last := had.last()
	if next.At-last.At < every.Milliseconds() && last.At >= k.forget.Load() {
		return had, nil
	}
	if next.Seq > last.Seq { // else nothing was stored since
		var err error
		if next.Seq, err = f.Fill(ctx, k.JetStream); err != nil {
			return had, err
		}
	}
	return had.add(next), nil
}
