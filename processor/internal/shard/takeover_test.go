package shard

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// takeOver takes the shard over, as at the start of a process.
func (r *rig) takeOver() error {
	r.t.Helper()
	r.passed = nil
	upTo, err := TakeOver(r.t.Context(), []*Owner{r.Owner})
	if upTo != 0 != (err == nil) {
		r.t.Errorf("up to %d, %v", upTo, err)
	}
	return err
}

// refused takes over, and returns the token of the refusal. Nothing may have been changed.
func (r *rig) refused(why error) (token string) {
	r.t.Helper()
	was := r.state()
	err := r.takeOver()
	if token = streams.Decision(err); !errors.Is(err, why) || token == "" {
		r.t.Fatalf("it is taken over: %v, want %v", err, why)
	}
	if now := r.state(); now.Version != was.Version || r.calls("take") > 0 || r.calls("before the stream of events is fenced") > 0 {
		r.t.Errorf("before the refusal it has changed something: %q", r.passed)
	}
	return token
}

// beginAnew carries out a decision, as another process. It returns what is refused nevertheless.
func (r *rig) beginAnew(token string, done int) (refused []error) {
	r.t.Helper()
	r.restart()
	r.passed = nil
	did, refused, err := BeginAnew(r.t.Context(), []*Owner{r.Owner}, token)
	if err != nil || len(did) != done {
		r.t.Fatalf("with the token %q: %q, %v, %v", token, did, refused, err)
	}
	return refused
}

// TestG7_BeginAnew: the log does not continue what Redis holds. Only by a person's decision the partition
// begins anew from where the log begins. While what was stored is set aside, readers get an error; what was
// published is not published again.
//
// It fails if another token does, or if the partition is taken over as if nothing was wrong.
func TestG7_BeginAnew(t *testing.T) {
	for name, tt := range map[string]struct{ empty, lost bool }{
		"Redis holds an older state": {}, "Redis is empty": {empty: true}, "so is the stream of events": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			empty := tt.empty
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.write(start, "old", `{"ttl":-1}`)
			r.write(start, "expired", `{}`)
			r.passTime(start + 1000)
			r.idle()
			if !empty {
				r.restart()
			}
			r.write(start+1000, "lost", `{"ttl":-1}`)
			first := r.write(start+1000, "new", `{}`)
			bad := r.send(start+1000, prefix.Write(wire.Replace, "c", "none"), `{}`)
			if empty {
				r.idle()
				r.wipe()
				r.restart()
			}
			r.truncate(first.Seq)
			events := []string{"expired"}
			if tt.lost {
				r.loseEvents()
				r.restart()
				events = nil
			}
			token := r.refused(streams.ErrLogTruncated)
			if refused := r.beginAnew("00000000", 0); len(refused) != 1 || streams.Decision(refused[0]) != token || r.calls("take")+r.calls("set aside") > 0 {
				t.Errorf("with another token: %v, after %q", refused, r.passed)
			}
			unreadable := false
			r.at["set aside"] = func() {
				s := r.state()
				unreadable = s.Refused || s.Rebuild == store.Clearing
			}
			if refused := r.beginAnew(token, 1); len(refused) > 0 {
				t.Error(refused)
			}
			point, err := r.Checkpoints.Load(t.Context())
			if s := r.state(); err != nil || !unreadable || s.Offset != first.Seq-1 || s.Rebuild < bad.Seq || point.Origin != first.Seq-1 {
				t.Errorf("it begins at %+v, and the checkpoint is %+v, %v; readers got an error before: %t", s, point, err, unreadable)
			}
			if !empty && r.calls("set aside") != 1 {
				t.Errorf("what was stored is not kept: %q", r.passed)
			}
			if refused := r.beginAnew(token, 0); len(refused) > 0 {
				t.Errorf("afterwards it is refused: %v", refused)
			}
			r.restart()
			var reads atomic.Int32 // of the stream of events, which may be long
			if _, err := r.js.Conn().Subscribe("$JS.API.DIRECT.GET."+prefix.EventsStream(), func(*nats.Msg) { reads.Add(1) }); err != nil {
				t.Fatal(err)
			}
			r.at[crash.AfterTake] = func() {
				if err := r.js.Conn().Flush(); err != nil || reads.Load() == 0 {
					t.Errorf("it is claimed before the stream of events is read: %v", err)
				}
			}
			if err := r.takeOver(); err != nil {
				t.Fatal(err)
			}
			if r.calls("clear") > 0 {
				t.Errorf("it is rebuilt as if it was damaged: %q", r.passed)
			}
			r.idle()
			same(t, "documents", r.documents(), []string{"new"})
			same(t, "events", r.expired(), events)
			if n := r.rejected(); n != 1 {
				t.Errorf("%d rejections, want 1", n)
			}
			r.passTime(start + 5000)
			r.idle()
			r.failAt, r.logged = len(r.passed), nil
			for range 3 { // it fails, it removes, there is nothing to remove
				r.RemoveAside(t.Context())
			}
			if len(r.logged) != 2 || !strings.Contains(r.logged[0], "could not be removed") || !strings.Contains(r.logged[1], "is removed") {
				t.Errorf("it says %q", r.logged)
			}
			if left, err := r.redis.Client.Keys(t.Context(), "*before*").Result(); err != nil || len(left) > 0 {
				t.Errorf("what was set aside is still there: %v, %v", left, err)
			}
		})
	}
}

// rejected is how many rejections the stream of events has.
func (r *rig) rejected() (n int) {
	r.t.Helper()
	last, err := r.streams.Events.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := last.State.FirstSeq; seq <= last.State.LastSeq; seq++ {
		if m, err := r.streams.Events.GetMsg(r.t.Context(), seq); err == nil && m.Header.Get(wire.HeaderCode) != "" {
			n++
		}
	}
	return n
}

// loseEvents makes the stream of events anew, as it is after it has lost everything.
func (r *rig) loseEvents() {
	r.t.Helper()
	if err := r.js.DeleteStream(r.t.Context(), prefix.EventsStream()); err != nil {
		r.t.Fatal(err)
	}
	r.provision()
}

// TestG12_LostSinceTheExamination: the stream of events, or the log, loses something between the examination of a
// partition and its claim. That takeover fails; the next one finds the loss, and publishes the events again.
//
// It fails if the partition goes on from what was examined.
func TestG12_LostSinceTheExamination(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.passTime(start + 1000)
	r.idle()
	r.checkpoint()
	r.at[crash.AfterTake] = func() { delete(r.at, crash.AfterTake); r.loseEvents() }
	r.TakeOverAgain()
	err := r.try()
	if err == nil || !errors.Is(err, events.ErrLost) || !strings.Contains(err.Error(), "lost since the examination") {
		t.Fatalf("it is taken over: %v", err)
	}
	r.recover(err)
	r.passed = nil
	r.at[crash.AfterTake] = func() {
		if s := r.state(); s.Rebuild != store.Clearing {
			t.Errorf("readers may see a partition that is going to be cleared: %+v", s)
		}
	}
	r.idle()
	same(t, "events", r.expired(), []string{"a"})
	point, err := r.Checkpoints.Load(t.Context())
	if err != nil || point.Seq != 0 || r.calls("clear") != 1 || value(t, r.Metrics.Rebuilds) != 1 {
		t.Errorf("the checkpoint that names what is lost is %+v, %v, after %q", point, err, r.passed)
	}
	r.checkpoint() // of what is published again
	if point, err = r.Checkpoints.Load(t.Context()); err != nil || point.Seq == 0 || point.Last.Seq == 0 {
		t.Errorf("the checkpoint is %+v, %v", point, err)
	}
}

// TestG12_ACheckpointComesAfterTheExamination: a former owner stores a checkpoint between the examination and the
// claim, and it names an event that the stream has lost. That takeover fails: with the checkpoint that was
// examined, the partition publishes again what came after it alone.
//
// It fails if the partition goes on without a checkpoint: what the limits of the stream have removed would be
// published again.
func TestG12_ACheckpointComesAfterTheExamination(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.idle()
	r.checkpoint()
	r.passTime(start + 1000)
	r.idle()
	later := *r.announcer.Settled()
	if later.Last.Seq == 0 {
		t.Fatalf("the checkpoint names no event: %+v", later)
	}
	r.loseEvents()
	r.TakeOverAgain()
	r.at[crash.AfterTake] = func() {
		if err := r.Checkpoints.Replace(t.Context(), later); err != nil {
			t.Error(err)
		}
	}
	if err := r.try(); err == nil || !strings.Contains(err.Error(), "lost since the examination") || r.calls("clear") > 0 {
		t.Errorf("it is taken over: %v", err)
	}
}

// TestG12_ACheckpointOfWhatIsLost: the checkpoint that names lost outputs cannot be replaced. Then nothing is removed.
func TestG12_ACheckpointOfWhatIsLost(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.passTime(start + 1000)
	r.idle()
	r.checkpoint()
	r.loseEvents()
	r.TakeOverAgain()
	r.at[crash.AfterTake] = func() {
		bucket, err := r.js.Stream(t.Context(), "KV_"+prefix.CheckpointBucket())
		if err != nil {
			t.Error(err)
			return
		}
		config := bucket.CachedInfo().Config
		config.MaxMsgSize = 10
		if _, err := r.js.UpdateStream(t.Context(), config); err != nil {
			t.Error(err)
		}
	}
	if err := r.try(); err == nil || !strings.Contains(err.Error(), "store the checkpoint") || r.calls("clear") > 0 {
		t.Errorf("%v, after %q", err, r.passed)
	}
}

// TestG7_NoTick: without the tick that follows the fence nobody knows what a former owner has published.
func TestG7_NoTick(t *testing.T) {
	for name, takeOver := range map[string]func(*rig) error{"at the start": (*rig).takeOver, "later": (*rig).try} {
		r := newRig(t)
		r.at[crash.AfterFence] = func() {
			if err := r.js.DeleteStream(t.Context(), prefix.LogStream()); err != nil {
				t.Error(err)
			}
		}
		if err := takeOver(r); err == nil || !strings.Contains(err.Error(), "append a tick") || r.tenure.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestG7_SnapshotsThatCannotBeUsed: Redis is emptied, and a part of the snapshot is gone. The partition is built from the
// log, and people hear why.
func TestG7_SnapshotsThatCannotBeUsed(t *testing.T) {
	for _, whole := range []bool{true, false} {
		r := newRig(t)
		r.idle()
		r.write(start, "a", `{}`)
		r.idle()
		r.snapshot()
		r.idle()
		r.checkpoint()
		if !whole {
			if err := r.objects.Remove(t.Context(), "0"); err != nil {
				t.Fatal(err)
			}
		}
		r.wipe()
		r.passed, r.logged = nil, nil
		for err := r.try(); err != nil; err = r.try() {
			r.recover(err)
		}
		same(t, "documents", r.documents(), []string{"a"})
		warned := slices.ContainsFunc(r.logged, func(line string) bool { return strings.Contains(line, "snapshots cannot be used") })
		rebuilds := slices.Contains(r.logged, "the partition is being rebuilt from the log")
		if loaded := r.calls("fill") > 0; loaded != whole || warned == whole || !rebuilds {
			t.Errorf("it is loaded from the snapshot: %t; it says %q", loaded, r.logged)
		}
	}
}

// TestG7_TruncatedSinceTheExamination: the same of the log, which is truncated before what the partition still
// needs. That is no reason to end: the next examination finds a snapshot, or refuses.
func TestG7_TruncatedSinceTheExamination(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.idle()
	last := r.write(start, "a", `{}`)
	if _, err := r.js.Publish(t.Context(), prefix.Write(wire.Upsert, "c", "b"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	r.at[crash.AfterTake] = func() { delete(r.at, crash.AfterTake); r.truncate(last.Seq + 1) }
	r.sent = nil
	r.TakeOverAgain()
	err := r.try()
	if err == nil || streams.MustStop(err) || !strings.Contains(err.Error(), "truncated since the examination") {
		t.Fatalf("it is taken over: %v", err)
	}
	r.recover(err)
	if err := r.try(); !errors.Is(err, streams.ErrLogTruncated) || !r.fatal(err) {
		t.Errorf("the next takeover: %v", err)
	}
}

// TestG12_GivenUp: the stream of events has lost an event that cannot be published again. By a person's
// decision the partition goes on from what is stored, and the checkpoint names what was given up.
func TestG12_GivenUp(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "kept", `{"ttl":-1}`)
	r.write(start, "a", `{}`)
	r.passTime(start + 1000)
	r.idle()
	r.checkpoint()
	r.loseEvents()
	r.truncate(r.progress.Offset() + 1)
	r.restart()
	err := r.takeOver()
	if err != nil {
		t.Fatalf("a loss of events ends the process: %v", err)
	}
	token := streams.Decision(r.try())
	if refused := r.beginAnew("00000000", 0); len(refused) != 1 || r.calls("take") > 0 {
		t.Errorf("with another token: %v, after %q", refused, r.passed)
	}
	if refused := r.beginAnew(token, 1); len(refused) > 0 || token == "" {
		t.Fatalf("with the token %q: %v", token, refused)
	}
	upTo, fence := must(r.streams.Log.Info(t.Context())).State.LastSeq, r.announcer.FencePlace()
	point, err := r.Checkpoints.Load(t.Context())
	if err != nil || point.GivenUp != upTo || point.Last != fence {
		t.Errorf("the checkpoint is %+v, %v", point, err)
	}
	r.restart()
	if err := r.takeOver(); err != nil {
		t.Fatal(err)
	}
	r.write(start+2000, "new", `{}`)
	r.passTime(start + 3000)
	r.idle()
	same(t, "documents", r.documents(), []string{"kept"})
	same(t, "events", r.expired(), []string{"new"})
	r.restart()
	r.at[crash.AfterTake] = func() {
		if s := r.state(); s.Refused || s.Rebuild != 0 {
			t.Errorf("a usual takeover keeps readers from the partition: %+v", s)
		}
	}
	if err := r.takeOver(); err != nil {
		t.Errorf("what was given up is missed later: %v", err)
	}
	same(t, "collections", r.Collections().Names(), []string{"c"})
}

// TestG7_ADamagedPartitionIsKept: a partition is damaged, and the log does not reach back. It is marked, once, so
// that readers get an error; nothing of it is removed, and nothing else is refused.
func TestG7_ADamagedPartitionIsKept(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{"ttl":-1}`)
	r.write(start, "b", `{"ttl":-1}`)
	r.idle()
	r.truncate(r.progress.Offset() + 1)
	keys, err := r.redis.Client.Keys(t.Context(), "*docs*").Result()
	if err != nil || len(keys) != 1 || r.redis.Client.HDel(t.Context(), keys[0], "a").Val() != 1 {
		t.Fatal(keys, err)
	}
	r.restart()
	if err := r.takeOver(); err != nil {
		t.Fatalf("a damaged partition ends the process: %v", err)
	}
	last := must(r.streams.Log.Info(t.Context())).State.LastSeq
	for range 2 {
		if err := r.try(); !errors.Is(err, streams.ErrRefused) || r.tenure.taken {
			t.Fatalf("it is taken over: %v", err)
		}
	}
	if now := must(r.streams.Log.Info(t.Context())).State.LastSeq; now != last {
		t.Errorf("an owner that is refused appends ticks: the log ended at %d, and ends at %d", last, now)
	}
	if s := r.state(); !s.Refused || r.calls("refuse") != 1 || r.redis.Client.Exists(t.Context(), keys[0]).Val() != 1 {
		t.Errorf("what is left is %+v, after %q", s, r.passed)
	}
}

// TestG7_ExaminedBeforeAnythingIsChanged: where a takeover only fails now, the process goes on, and the owner tries
// again. Where it would be wrong to go on, nothing is changed from there on: no tick is appended, and no key of others
// is touched.
func TestG7_ExaminedBeforeAnythingIsChanged(t *testing.T) {
	r := newRig(t)
	r.failAt = 0
	if err := r.takeOver(); err != nil || r.tenure.taken || r.faults != 1 {
		t.Fatalf("it fails: %v, and it is taken over: %t", err, r.tenure.taken)
	}
	r.restart()
	if err := r.takeOver(); err != nil || !r.tenure.taken {
		t.Fatalf("nothing fails: %v, and it is taken over: %t", err, r.tenure.taken)
	}
	r.write(start, "a", `{}`)
	r.idle()
	r.restart()
	r.fault = ErrNotOwner
	var once sync.Once
	r.at["take"] = func() { once.Do(func() { r.mu.Lock(); r.failAt = 0; r.mu.Unlock() }) }
	log := func() uint64 { return must(r.streams.Log.Info(t.Context())).State.LastSeq }
	before := log()
	if err := r.takeOver(); !errors.Is(err, ErrNotOwner) || r.calls("take") == 0 || r.tenure.taken || log() != before {
		t.Errorf("a claim fails for good: %v, after %q; the log ended at %d, and ends at %d", err, r.passed, before, log())
	}
	delete(r.at, "take")
	r.failAt = -1
	docs, err := r.redis.Client.Keys(t.Context(), "*docs*").Result()
	if err != nil || len(docs) != 1 || r.redis.Client.Del(t.Context(), strings.Split(docs[0], "docs")[0]+"state").Val() != 1 {
		t.Fatal(docs, err)
	}
	r.restart() // another process, which does not know whose documents these are
	if err := r.takeOver(); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), "shard 0") || r.tenure.taken || r.calls("take") > 0 || log() != before {
		t.Errorf("%v, and it is taken over: %t, after %q", err, r.tenure.taken, r.passed)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
