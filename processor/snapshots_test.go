package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// snapshotPoints are the points of taking snapshots, of truncating the log behind them, and of
// loading one.
var snapshotPoints = []crash.Point{
	crash.AfterCopy, crash.BeforeSnapshot, crash.BeforeChunk, crash.AfterChunk, crash.BeforeManifest, crash.AfterManifest,
	crash.BeforeRecord, crash.AfterRecord,
	crash.BeforePurge, crash.AfterPurge, crash.AfterClear, crash.AfterFill, crash.BeforeLoaded, crash.AfterLoaded,
}

// loadPoints are those of loading a snapshot.
var loadPoints = []crash.Point{crash.AfterClear, crash.AfterFill, crash.BeforeLoaded, crash.AfterLoaded}

// askSnapshot asks the process that runs for a snapshot of each shard.
func (r *rig) askSnapshot() {
	r.t.Helper()
	if err := r.nc.Publish(prefix.Snapshot(0), nil); err != nil {
		r.t.Fatal(err)
	}
}

// truncated waits until the log was truncated behind two snapshots of each shard that were
// begun after now. It asks for them. Processes may die meanwhile, each at some point of that.
func (r *rig) truncated(alive func() bool) {
	r.t.Helper()
	r.flush()
	upTo := r.logInfo().State.LastSeq
	if err := poll.Met(2*limit, "the log is truncated", func() bool {
		alive()
		r.askSnapshot()
		return r.logInfo().State.FirstSeq >= upTo
	}); err != nil {
		r.t.Fatal(err)
	}
}

// TestG1_G3_G7_CrashWithSnapshots lets processes die, stop or fail at every named point of taking
// snapshots, truncating the log and loading, over and over, during a random history in which
// Redis is wiped too, and compares all events and all documents with the model at the end. It fails if the
// log is truncated before what a shard needs is recorded, if a snapshot is not the state at
// its offset, or if a load that was interrupted counts as a state.
func TestG1_G3_G7_CrashWithSnapshots(t *testing.T) {
	t.Parallel()
	type fate struct {
		name string
		err  error
		nth  int
	}
	for i, at := range snapshotPoints {
		fates := []fate{{"dies at once", errDead, 1}, {"dies later", errDead, 3}, {"stops", errStop, 2},
			{"fails", errFail, 2}}
		for n, how := range append(fates[:1:1], fates[1+i%3]) {
			if !chosen(i, n) {
				continue
			}
			if slices.Contains(loadPoints, at) {
				how.nth = 1 // one process loads a small snapshot in one part
			}
			t.Run(fmt.Sprintf("%s/%s", at, how.name), func(t *testing.T) {
				t.Parallel()
				r := newRigOn(t, backends[(i+n)%2], Options{})
				s := &survivor{r: r, at: at, nth: how.nth, err: how.err, times: 4, asks: true, wipes: true}
				s.alive()
				r.copyAll()
				s.history(uint64(i), 8)
				r.truncated(s.alive)
				s.history(uint64(100+i), 4)
				s.wipe()
				eventually(t, "a fault has happened there", func() bool {
					if s.alive() && !s.hit.Load() { // the log grows, so that there is something to truncate
						r.send(prefix.Write(wire.Upsert, "a", "more"), `{}`)
					}
					return s.hit.Load()
				})
				s.settles()
				r.agrees()
			})
		}
	}
}

// TestG7_LoadedFromSnapshots: the log is truncated, Redis is wiped, and the shards are loaded from
// their snapshots, again and again.
func TestG7_LoadedFromSnapshots(t *testing.T) {
	t.Parallel()
	for _, b := range withMiniredis {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, b, Options{})
			s := &survivor{r: r, asks: true}
			s.alive()
			r.copyAll()
			for i := range 3 {
				s.history(uint64(300+i), 4)
				r.truncated(s.alive)
				s.wipe()
			}
			s.settles()
			r.agrees()
			s.p.stop(t)
			s.wipe()
			s.settles()
			r.agrees()
		})
	}
}

// TestG7_DamagedSnapshots: where the newest snapshot of a shard is damaged, the one before is
// loaded. Where that is damaged too, the shard is refused by name, and nothing is removed.
func TestG7_DamagedSnapshots(t *testing.T) {
	t.Parallel()
	for i, how := range []string{"changed", "missing", "cut", "without a manifest"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			objects := &ObjectsInMemory{}
			opts := Options{Objects: objects}
			r := newRigOn(t, backends[i%2], opts)
			p := r.run()
			r.copyAll()
			ctx := context.Background()
			for i := range 200 {
				r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"v":1}`)
			}
			r.truncated(func() bool { return true })
			for i := range 20 {
				r.put("c", fmt.Sprint(i), `{"v":2}`)
			}
			r.caughtUp(p)
			p.stop(t)
			log := p.session.keeper.Log
			records := snapshot.NewStore(objects, withoutLink{log.Streams, log}, 0, log.ID(), nil) // the processor has ended
			// damage damages the n-th newest generation.
			damage := func(n int) {
				all, err := records.Recorded(ctx)
				if err != nil || len(all) != 2 {
					t.Fatalf("the snapshots are %v, %v", all, err)
				}
				of := fmt.Sprintf("0.%d", all[n].Generation)
				data, manifest := must(objects.Get(ctx, of+".0")), must(objects.Get(ctx, all[n].Manifest))
				if data == nil || manifest == nil {
					t.Fatalf("generation %d has no chunk or no manifest", all[n].Generation)
				}
				switch how {
				case "changed":
					data[len(data)/2]++
					err = objects.Put(ctx, of+".0", data)
				case "cut":
					err = objects.Put(ctx, of+".0", data[:len(data)/2])
				case "missing":
					err = errors.Join(objects.Remove(ctx, of), objects.Put(ctx, all[n].Manifest, manifest))
				case "without a manifest":
					err = objects.Remove(ctx, of)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			damage(0)
			if err := r.redis.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			p = r.start(nil)
			p.ready(t)
			p.stop(t)
			r.agrees()
			damage(1)
			if err := r.redis.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			first, names := r.logInfo().State.FirstSeq, len(must(objects.Names(ctx)))
			p = r.start(nil)
			p.ends(t, ErrLogTruncated)
			for _, part := range []string{"no snapshot can be used", "generation", "run lapse begin-anew"} {
				if !strings.Contains(p.err.Error(), part) {
					t.Errorf("the refusal does not say %q: %v", part, p.err)
				}
			}
			if !errors.Is(p.err, ErrLogTruncated) || r.logInfo().State.FirstSeq != first ||
				len(must(objects.Names(ctx))) != names {
				t.Errorf("something was removed: %v", p.err)
			}
			if keys := keysOf(t, r, "*"); len(keys) > 0 {
				t.Errorf("the refusal has left %v", keys)
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (r *rig) logInfo() *jetstream.StreamInfo {
	r.t.Helper()
	log, err := r.js.Stream(context.Background(), prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	return log.CachedInfo()
}

// TestG7_OlderThanTheLog: Redis goes back to a state that is whole, and from which the log no longer
// goes on. The shards are loaded from their snapshots. It fails if such a state is refused, or
// goes on with a hole.
func TestG7_OlderThanTheLog(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[1], Options{})
			s := &survivor{r: r}
			s.alive()
			r.copyAll()
			s.history(400, 3)
			first := r.dump()
			s.history(401, 3)
			r.truncated(s.alive)
			if !running {
				s.p.stop(t)
			}
			r.restore(first)
			s.settles()
			r.agrees()
			s.history(402, 3)
			r.agrees()
		})
	}
}

// TestG7_AnotherLogIsNotTruncated: somebody replaces the log while lapse verifies the snapshots with
// which it covers what it is about to remove.
// It fails if lapse removes messages of the new log.
func TestG7_AnotherLogIsNotTruncated(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	const n = 50
	write := func() {
		for i := range n {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		r.flush()
	}
	var once sync.Once
	p := r.start(func(here crash.Point) error {
		if here == crash.BeforePurge {
			once.Do(func() {
				config := r.logInfo().Config
				if err := r.js.DeleteStream(context.Background(), config.Name); err != nil {
					t.Error(err)
				}
				natstest.CreateStream(t, r.js, config)
				write()
			})
		}
		return nil
	})
	p.ready(t)
	write()
	eventually(t, "lapse finds the new log", func() bool {
		r.askSnapshot()
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	})
	if streams.AsRefusal(p.err) == nil {
		t.Errorf("run ended with %v", p.err)
	}
	if state := r.logInfo().State; state.FirstSeq != 1 || state.Msgs < n {
		t.Errorf("the new log begins at %d and has %d messages, want 1 and %d", state.FirstSeq, state.Msgs, n)
	}
}

// TestG7_BegunAnewWithoutSnapshots: a person gives up what was refused. From then on no snapshot of
// before is loaded, although there are some.
func TestG7_BegunAnewWithoutSnapshots(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	p := r.run()
	ctx := context.Background()
	for i := range 50 {
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"v":1}`)
	}
	r.truncated(func() bool { return true })
	for i := range 50 {
		r.put("c", fmt.Sprint(i), `{"v":2}`)
	}
	p.stop(t)
	if err := r.redis.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	log, err := r.js.Stream(ctx, prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Purge(ctx); err != nil { // also what comes after the snapshots
		t.Fatal(err)
	}
	r.send(prefix.Write(wire.Upsert, "c", "new"), `{"v":2}`)
	r.send(prefix.Write(wire.Upsert, "c", "newer"), `{"v":2}`)
	p = r.start(nil)
	p.ends(t, ErrLogTruncated)
	r.beginAnew(r.accepts(p.err))
	p = r.start(nil)
	p.ready(t)
	if got := r.body("c", "new"); got != `{"v":2}` {
		t.Errorf("of what the log has, it reads %q", got)
	}
	if all, err := p.session.keeper.Desk.Store().Recorded(ctx); err != nil || len(all) > 0 {
		t.Errorf("it still has the snapshots %v, %v", all, err)
	}
	p.stop(t)
}

// slowObjects are slow enough to be read that the load of a snapshot is interrupted after each batch.
type slowObjects struct{ ObjectsInMemory }

func (o *slowObjects) Get(ctx context.Context, name string) ([]byte, error) {
	backoff.Wait(ctx, 60*time.Millisecond)
	return o.ObjectsInMemory.Get(ctx, name)
}

// TestG7_ALoadThatAlwaysFailsIsTriedLessOften: a shard whose load always fails at its end is
// taken over less and less often, and its trouble shows meanwhile. When loads succeed again, so does
// the shard.
//
// Goes red if a takeover, or a part of a load, counts as progress.
func TestG7_ALoadThatAlwaysFailsIsTriedLessOften(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{Objects: &slowObjects{}})
	p := r.run()
	for i := range 3000 { // several batches: the load takes more than one call
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"v":1}`)
	}
	r.truncated(func() bool { return true })
	p.stop(t)
	if err := r.redis.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	const tries = 8 // the last are 0.8 s and more after the one before
	var mu sync.Mutex
	var at []time.Time
	p = r.start(func(here crash.Point) error {
		mu.Lock()
		defer mu.Unlock()
		if here != crash.BeforeLoaded || len(at) >= tries {
			return nil
		}
		at = append(at, time.Now())
		return errFail
	})
	p.ready(t)
	for i := tries - 2; i < tries; i++ {
		if after := at[i].Sub(at[i-1]); after < 700*time.Millisecond {
			t.Errorf("try %d was %v after the one before", i+1, after)
		}
	}
	if doc, err := r.reader.Get(context.Background(), "c", "1"); err != nil || string(doc.Body) != `{"v":1}` {
		t.Errorf("the document is %v, %v", doc, err)
	}
}

// withoutLink are the records of snapshots, read without the link of a processor that has ended.
type withoutLink struct {
	*streams.Streams
	log *streams.Log
}

func (w withoutLink) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return w.Checkpoints.Update(ctx, key, value, revision)
}

func (w withoutLink) Is(log string, offset uint64) bool { return w.log.Is(log, offset) }
