package retention

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/announce"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/partition"
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
	Checkpoints *announce.Checkpoints
	Statuses    *partition.Statuses
	Redis       Redis
	Logger      *slog.Logger
	Metrics     *Metrics
	Hook        crash.Hook
	Applying    func() error // nil once the log was applied
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
	generations [][]snapshot.Generation // of each partition, newest first
	seen        *jetstream.StreamInfo   // of the log, last
	stirred     int64                   // when a document may have died last, Unix milliseconds
	eventsAge   time.Duration
	failure     error     // why the last attempt has failed; nil if it has not
	failing     time.Time // since when the attempts fail; zero if the last one has not

	tries     []tries  // of each partition
	synced    []synced // of each partition
	truncated uint64   // the log has nothing before it
	denied    bool     // Redis does not rewrite its files
	asked     atomic.Int64
	poke      chan struct{} // somebody has asked
}

// tries is how the snapshots of a partition go.
type tries struct {
	failures int       // one after the other
	until    time.Time // before which it is not tried again
	anew     int       // snapshots that are wanted in place of damaged ones
}

// New makes a keeper, which begins in Run. within is how long lapse may take to forget.
func New(parts Parts, within time.Duration) *Keeper {
	n := len(parts.Statuses.Partitions)
	return &Keeper{Parts: parts, within: within, tries: make([]tries, n), synced: make([]synced, n), poke: make(chan struct{}, 1)}
}

// interval is the time between two snapshots of a partition, unless the log grows faster. The log is
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
		wait = k.every()
		if k.Applying() != nil {
			continue // what a partition lacks comes first
		}
		took, err := k.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		k.note(err, time.Now())
		if took {
			wait = 0 // the next partition
		}
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
			k.Logger.Warn("snapshots and the truncation of the log do not go on", slog.Any("error", err), slog.Duration("again_in", wait))
		}
	}
}

// rest waits for a time, if there is any, or until somebody asks, and reports whether ctx is not done
// yet.
func (k *Keeper) rest(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.poke:
	}
	return ctx.Err() == nil
}

// note keeps the last failure for the report, until no partition fails any more.
func (k *Keeper) note(err error, now time.Time) {
	for _, t := range k.tries {
		if err == nil && t.failures > 0 {
			return
		}
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

// runOnce takes one snapshot, if one is wanted, and lets go of what may go by then.
func (k *Keeper) runOnce(ctx context.Context) (took bool, err error) {
	info, err := k.look(ctx)
	if err != nil {
		return false, err
	}
	if i := k.next(info); i >= 0 {
		if err := k.take(ctx, i, info); err != nil {
			return false, err
		}
		took = true
	}
	if err := k.truncate(ctx); err != nil {
		return false, err
	}
	if k.Names.Shard != 0 {
		return took, nil // the events and Redis are for all shards
	}
	if err := k.endEvents(ctx, info.TimeStamp); err != nil {
		return false, err
	}
	return took, k.rewriteRedis(ctx, info)
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
	settled := k.seen != nil && k.seen.State.LastSeq == info.State.LastSeq
	for _, s := range k.Statuses.Partitions {
		settled = settled && s.Applied.Load() >= info.State.LastSeq && s.Due.Load() == 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = info
	if !settled {
		k.stirred = info.TimeStamp.UnixMilli()
	}
	return info, nil
}

// begin reads what the keeper has done before. What was left of a snapshot that was not finished goes
// with the next one of the partition, which is wanted at once.
func (k *Keeper) begin(ctx context.Context, info *jetstream.StreamInfo) error {
	done, err := k.load(ctx, info)
	if err != nil {
		return err
	}
	all := make([][]snapshot.Generation, len(k.Statuses.Partitions))
	for i := range all {
		if all[i], err = k.Desk.Store().Recorded(ctx, k.Statuses.Number(i)); err != nil {
			return err
		}
		left, err := k.Desk.Store().Leftovers(ctx, k.Statuses.Number(i))
		if err != nil {
			return err
		}
		if left {
			k.tries[i].anew = 1
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.generations = done, all
	for i := range all {
		k.synced[i].note(all[i], time.Now())
	}
	return nil
}

// next is the partition of which a snapshot is wanted most, -1 if none is.
func (k *Keeper) next(info *jetstream.StreamInfo) int {
	now, asked := info.TimeStamp, k.asked.Load()
	best, first := -1, int64(math.MaxInt64)
	cost := uint64(leastGrowth)
	for _, all := range k.generations {
		if len(all) > 0 {
			cost += all[0].Bytes
		}
	}
	clean := k.clean(info)
	for i, all := range k.generations {
		begun, offset := info.Created.UnixMilli(), uint64(0)
		if len(all) > 0 {
			begun, offset = all[0].Begun, all[0].Offset
		}
		aged := now.Sub(time.UnixMilli(begun)) >= k.interval() && !clean
		wanted := aged || k.tries[i].anew > 0 || begun < asked || grown(info.State, offset) > cost
		if wanted && begun < first && !now.Before(k.tries[i].until) && k.onDisk(i) {
			best, first = i, begun
		}
	}
	return best
}

// grown is about by how many bytes a log has grown since an offset.
func grown(log jetstream.StreamState, offset uint64) uint64 {
	from := max(offset+1, log.FirstSeq)
	if log.Msgs == 0 || log.LastSeq < from {
		return 0
	}
	return uint64(float64(log.Bytes) / float64(log.Msgs) * float64(log.LastSeq-from+1))
}

// take takes a snapshot of the i-th partition.
func (k *Keeper) take(ctx context.Context, i int, info *jetstream.StreamInfo) error {
	if err := k.endFiles(ctx, info); err != nil {
		return err
	}
	number, began := k.Statuses.Number(i), time.Now()
	// Another owner may have taken one meanwhile, which must not replace one that is on disk (T4).
	all, err := k.Desk.Store().Recorded(ctx, number)
	if err != nil {
		return err
	}
	if k.synced[i].note(all, began); !k.onDisk(i) {
		return nil
	}
	g, err := k.Desk.Take(ctx, number, info.TimeStamp)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t := &k.tries[i]
		t.failures, t.anew = t.failures+1, max(t.anew, 1)
		t.until = info.TimeStamp.Add(time.Since(began) + k.pauseAfter(t.failures))
		k.Metrics.failures.Inc()
		// It is not known whether the record has changed.
		if all, err := k.Desk.Store().Recorded(ctx, number); err == nil {
			k.put(i, all)
		}
		return fmt.Errorf("snapshot of partition %d: %w", number, err)
	}
	k.tries[i] = tries{anew: max(0, k.tries[i].anew-1)}
	k.put(i, append([]snapshot.Generation{g}, k.generations[i][:min(len(k.generations[i]), 1)]...))
	k.Metrics.taken.Inc()
	k.Metrics.bytes.Add(float64(g.Bytes))
	k.Metrics.seconds.Observe(time.Since(began).Seconds())
	k.Logger.Info("took a snapshot", slog.Int("partition", number), slog.Uint64("generation", g.Generation), slog.Uint64("offset", g.Offset),
		slog.Uint64("documents", g.Documents), slog.Uint64("bytes", g.Bytes), slog.Duration("took", time.Since(began)))
	return nil
}

// put keeps the generations of the i-th partition.
func (k *Keeper) put(i int, all []snapshot.Generation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generations[i] = all
	k.synced[i].note(all, time.Now())
}

// endFiles ends the files of the log and of the snapshots, unless that was done not long ago.
func (k *Keeper) endFiles(ctx context.Context, info *jetstream.StreamInfo) error {
	s, now, next := k.Log.Streams, info.TimeStamp, *k.kept
	var err error
	if f := s.LogFilling(k.Names); !f.Fits(info) {
		next.turn(info)
	} else if next.Log, err = k.end(ctx, k.kept.Log, now, info, f, k.interval()/2); err != nil {
		return err
	} else {
		next.Turn = edge{}
	}
	if s.Snapshots != nil {
		objects, err := s.Snapshots.Stream().Info(ctx)
		if err != nil {
			return streams.Gone(err, s.Snapshots.Stream().CachedInfo().Config.Name)
		}
		if next.Objects, err = k.end(ctx, k.kept.Objects, now, objects, s.ObjectsFilling(), k.interval()/2); err != nil {
			return err
		}
	}
	return k.save(ctx, next)
}

// end ends the file of a stream, unless that was done not long ago.
func (k *Keeper) end(ctx context.Context, had edges, now time.Time, info *jetstream.StreamInfo, f streams.Filling, every time.Duration) (edges, error) {
	if len(had) == 0 {
		had = edges{{At: info.Created.UnixMilli()}} // no file has anything from before
	}
	next := edge{At: now.UnixMilli(), Seq: info.State.LastSeq}
	last := had.last()
	if next.At-last.At < every.Milliseconds() {
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
