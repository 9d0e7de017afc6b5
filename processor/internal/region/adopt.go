package region

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// cut is what the first region has had.
type cut struct {
	asked  time.Time // when the ends were asked for, by this process's clock
	first  uint64    // sequence of the log, from before all else
	values map[string][]byte
	ends   ends
	log    *jetstream.StreamInfo
	config *jetstream.StreamInfo // nil if there is one shard
	events *jetstream.StreamInfo // nil unless this follower compares it, as snapshots
	snaps  *jetstream.StreamInfo
}

// ends are the last messages of the streams.
type ends struct{ log, events, snapshots uint64 }

// reach reports whether these are at or behind others.
func (e ends) reach(other ends) bool {
	return e.log >= other.log && e.events >= other.events && e.snapshots >= other.snapshots
}

// takeCut asks the first region. The order matters: the beginning of the log comes before the records of the
// snapshots behind which it was truncated, and the ends come after all that names messages before them.
func (f *Follower) takeCut(ctx context.Context) (*cut, error) {
	c := &cut{values: map[string][]byte{}}
	before, err := f.Origin.Info(ctx, f.Names.Stream())
	if err != nil {
		return nil, err
	}
	c.first = before.State.FirstSeq
	keys := f.keys()
	found := make([][]byte, len(keys))
	all, asking := errgroup.WithContext(ctx)
	p := f.Names.Prefix
	for i, key := range keys {
		all.Go(func() error {
			m, err := f.Origin.Get(asking, p.CheckpointStream(), map[string]any{"last_by_subj": p.CheckpointSubject(key)})
			if m != nil && !bytes.Contains(m.Header, []byte("KV-Operation:")) {
				found[i] = m.Data
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	for i, key := range keys {
		if found[i] != nil {
			c.values[key] = found[i]
		}
	}
	c.asked = time.Now()
	if c.log, err = f.Origin.Info(ctx, f.Names.Stream()); err != nil {
		return nil, err
	}
	if f.Log.Streams.Configs != nil {
		if c.config, err = f.Origin.Info(ctx, f.Names.Prefix.ConfigStream()); err != nil {
			return nil, err
		}
	}
	if f.Names.Shard == 0 {
		if c.events, err = f.Origin.Info(ctx, f.Names.Prefix.EventsStream()); err != nil {
			return nil, err
		}
		if f.Log.Streams.Snapshots != nil {
			if c.snaps, err = f.Origin.Info(ctx, f.Names.Prefix.SnapshotStream()); err != nil {
				return nil, err
			}
		}
	}
	c.ends, err = f.askEnds(ctx, f.Origin.Get)
	return c, err
}

// keys are those of the values that are adopted: the checkpoint, and the record of the snapshots.
func (f *Follower) keys() []string {
	return []string{shard.CheckpointKey(f.Names.Shard), wire.SnapshotKey(f.Names.Shard)}
}

// askEnds asks for the last messages of the streams. What was removed at the end of a stream, as lapse does to end
// a file, is in no mirror of it, so the last sequence does not count.
func (f *Follower) askEnds(ctx context.Context, get func(context.Context, string, any) (*events.Stored,
	error)) (e ends, err error) {
	last := func(name string) uint64 {
		if err != nil {
			return 0
		}
		m, failure := get(ctx, name, map[string]any{"last_by_subj": ">"})
		if err = failure; m == nil {
			return 0
		}
		return m.Seq
	}
	e.log, e.events = last(f.Names.Stream()), last(f.Names.Prefix.EventsStream())
	if f.Log.Streams.Snapshots != nil {
		e.snapshots = last(f.Names.Prefix.SnapshotStream())
	}
	return e, err
}

// adopt stores the checkpoints and records of a cut here, truncates the log, and removes what the records no
// longer name.
func (f *Follower) adopt(ctx context.Context, c *cut) error {
	point, err := f.checkpoint(c.values)
	if err != nil {
		return err
	}
	key := shard.CheckpointKey(f.Names.Shard)
	if err := f.put(ctx, wire.SnapshotKey(f.Names.Shard), c.values[wire.SnapshotKey(f.Names.Shard)]); err != nil {
		return err
	}
	switch {
	case f.running && point.Anew == f.anew:
		if f.later == nil {
			f.later = &later{point.Seq, c.values[key]}
		}
	default:
		if err := f.put(ctx, key, c.values[key]); err != nil {
			return err
		}
		begun := f.running
		if f.anew = point.Anew; begun {
			return fmt.Errorf("%w: a person has begun the shard anew in the first region", errAnew)
		}
	}
	f.waits.advance(&point)
	f.Tail.Forget(point.From.Seq)
	if err := f.truncate(ctx, c); err != nil {
		return err
	}
	if f.Snapshots == nil || c.ends.snapshots == f.swept {
		return nil
	}
	if err := f.Snapshots.Sweep(ctx); err != nil {
		return err
	}
	if err := f.Log.Streams.RemoveFillings(ctx); err != nil {
		return err
	}
	f.swept = c.ends.snapshots
	return nil
}

// later is a checkpoint that was adopted before the shard here has applied the log up to it. Who reads the documents
// here and then the events behind the checkpoint would miss what lies between.
type later struct {
	seq   uint64
	value []byte
}

// storeLater stores it once the shard has.
func (f *Follower) storeLater(ctx context.Context) error {
	if f.later == nil || !f.applied(f.later.seq) {
		return nil
	}
	if err := f.put(ctx, shard.CheckpointKey(f.Names.Shard), f.later.value); err != nil {
		return err
	}
	f.later = nil
	return f.storeLater(ctx)
}

// checkpoint is the checkpoint among the values of a cut; it is zero if there is none.
func (f *Follower) checkpoint(values map[string][]byte) (point shard.Checkpoint, err error) {
	if value := values[shard.CheckpointKey(f.Names.Shard)]; value != nil {
		if err = json.Unmarshal(value, &point); err != nil {
			err = fmt.Errorf("the checkpoint of shard %d in the first region: %w", f.Names.Shard, err)
		}
	}
	return point, err
}

// put stores a value that is not stored yet.
func (f *Follower) put(ctx context.Context, key string, value []byte) error {
	if value == nil || bytes.Equal(f.stored[key], value) {
		return nil
	}
	have, revision, err := f.Log.Value(ctx, key)
	if err == nil && !bytes.Equal(have, value) {
		_, err = f.Log.Update(ctx, key, value, revision)
	}
	if err != nil {
		return fmt.Errorf("store %s of the first region: %w", key, err)
	}
	f.stored[key] = value
	return nil
}

// truncate purges the mirror of the log up to where the first region has truncated its own (M3).
func (f *Follower) truncate(ctx context.Context, c *cut) error {
	here, err := f.Log.Info(ctx)
	if err != nil || c.first <= here.State.FirstSeq {
		return err
	}
	if !f.applied(c.first - 1) {
		if f.Snapshots == nil {
			return nil // later
		}
		if ok, err := f.continues(ctx, c.first); err != nil || !ok {
			return err
		}
	}
	if err := f.Log.Streams.Log.Purge(ctx, jetstream.WithPurgeSequence(c.first)); err != nil {
		return fmt.Errorf("truncate the log as the first region has: %w", err)
	}
	return nil
}

// applied reports whether Redis has what follows from the log up to a sequence.
func (f *Follower) applied(seq uint64) bool { return f.Status.Committed.Load() >= seq }

// continues reports whether a snapshot, which is whole here, continues a log that begins at a sequence.
func (f *Follower) continues(ctx context.Context, first uint64) (bool, error) {
	all, err := f.Snapshots.Generations(ctx)
	if err != nil && !errors.Is(err, snapshot.ErrDamaged) {
		return false, err
	}
	for _, m := range all {
		if m.Offset+1 < first {
			continue
		}
		err := f.Snapshots.Verify(ctx, m)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, snapshot.ErrDamaged) {
			return false, err
		}
	}
	return false, nil
}

// waits lets the owner wait until the first region has published an output. It implements
// [shard.Mirror].
type waits struct {
	mu      sync.Mutex
	point   *shard.Checkpoint // that was adopted; nil if none was
	news    chan struct{}     // closed when a checkpoint is adopted
	reached atomic.Bool
	ended   context.Context // done when the session ends
	role    func(context.Context) error
}

// Published is the newest checkpoint that was adopted; nil if none was. news is closed when there
// may be a newer one.
func (w *waits) Published() (c *shard.Checkpoint, news <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return w.point, w.news
}

// Reached reports whether the mirrors have reached a cut of the first region in this session.
func (w *waits) Reached() bool { return w.reached.Load() }

// Ended is done when nobody is to wait any longer.
func (w *waits) Ended() context.Context { return w.ended }

// Follows returns an error if this region may have a log of its own by now.
func (w *waits) Follows(ctx context.Context) error { return w.role(ctx) }

func (w *waits) advance(c *shard.Checkpoint) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := w.point; have != nil && have.Seq >= c.Seq && have.Watermark >= c.Watermark {
		return
	}
	w.point = c
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
}

var _ shard.Mirror = (*waits)(nil)
