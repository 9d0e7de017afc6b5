package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	upTo, err := r.TakeOver(r.t.Context())
	if upTo != 0 != (err == nil) {
		r.t.Errorf("up to %d, %v", upTo, err)
	}
	return err
}

// refused takes over, and returns the refusal. Nothing may have been changed.
func (r *rig) refused(why error) *streams.Refusal {
	r.t.Helper()
	was := r.state()
	err := r.takeOver()
	refusal := streams.AsRefusal(err)
	if refusal == nil || refusal.Kind != why || refusal.Accept == "" {
		r.t.Fatalf("it is taken over: %v, want %v", err, why)
	}
	if now := r.state(); now.Version != was.Version || r.calls("take") > 0 ||
		r.calls("before the stream of events is fenced") > 0 {
		r.t.Errorf("before the refusal it has changed something: %q", r.passed)
	}
	return refusal
}

// beginAnew carries out a decision, as another process. It returns what is refused nevertheless.
func (r *rig) beginAnew(accepted Accepted, done int) *streams.Refusal {
	r.t.Helper()
	r.restart()
	r.passed = nil
	did, left, err := r.BeginAnew(r.t.Context(), accepted)
	if err != nil || len(did) != done {
		r.t.Fatalf("with %v: %q, %v, %v", accepted, did, left, err)
	}
	return left
}

// TestG7_BeginAnew: the log does not continue what Redis holds. Only by a person's decision the shard
// begins anew from where the log begins, and only once Redis is saved, if it holds something. What was
// published is not published again.
//
// It fails if another decision does, or if the shard is taken over as if nothing was wrong.
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
			r.snapshot()
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
			if got := r.refused(streams.ErrLogTruncated); got.Accept != streams.LostLogBeginning ||
				got.Removes == empty {
				t.Errorf("it can be given up by %s, and that removes something from Redis: %v", got.Accept, got.Removes)
			}
			version := r.state().Version
			others := Accepted{Losses: []streams.Loss{streams.LostLogEnd, streams.LostEvents, streams.LostDocuments,
				streams.LostLogMessages}, RedisIsSaved: true}
			unsaved := Accepted{Losses: streams.Losses}
			for _, accepted := range []Accepted{{}, others, unsaved} {
				if empty && accepted.Losses != nil && !accepted.RedisIsSaved {
					continue
				}
				if left := r.beginAnew(accepted, 0); left == nil || left.Kind != streams.ErrLogTruncated ||
					r.state().Version != version || len(r.passed) > r.calls("load")+r.calls("verify")+
					r.calls("leftovers") {
					t.Errorf("with %v: %v, after %q", accepted, left, r.passed)
				}
			}
			accepted := Accepted{Losses: []streams.Loss{streams.LostLogBeginning}, RedisIsSaved: !empty}
			if left := r.beginAnew(accepted, 1); left != nil {
				t.Error(left)
			}
			point, err := r.Checkpoints.Load(t.Context())
			if s := r.state(); err != nil || s.Version != version || point.Origin != first.Seq-1 ||
				point.Anew != point.Last.Seq || point.Anew == 0 {
				t.Errorf("Redis holds %+v, and the checkpoint is %+v, %v", s, point, err)
			}
			for range 2 {
				if left := r.beginAnew(accepted, 0); left != nil {
					t.Errorf("afterwards it is refused: %v", left)
				}
			}
			r.restart()
			var reads atomic.Int32 // of the stream of events, which may be long
			if _, err := r.js.Conn().Subscribe("$JS.API.DIRECT.GET."+prefix.EventsStream(),
				func(*nats.Msg) { reads.Add(1) }); err != nil {
				t.Fatal(err)
			}
			r.at[crash.AfterTake] = func() {
				if err := r.js.Conn().Flush(); err != nil || reads.Load() == 0 {
					t.Errorf("it is claimed before the stream of events is read: %v", err)
				}
				if s := r.state(); s.Rebuild != store.Clearing {
					t.Errorf("readers may see a shard that is going to be cleared: %+v", s)
				}
			}
			if err := r.takeOver(); err != nil {
				t.Fatal(err)
			}
			if s := r.state(); s.Offset != first.Seq-1 || s.Rebuild < bad.Seq {
				t.Errorf("it begins at %+v", s)
			}
			if all, err := r.Desk.Store().Recorded(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("snapshots of before: %v, %v", all, err)
			}
			r.idle()
			same(t, "documents", r.documents(), []string{"new"})
			same(t, "events", r.expired(), events)
			if n := r.rejected(); n != 1 {
				t.Errorf("%d rejections, want 1", n)
			}
			delete(r.at, crash.AfterTake)
			r.restart()
			if err := r.takeOver(); err != nil || r.calls("clear") > 0 {
				t.Errorf("the next takeover begins anew once more: %v, after %q", err, r.passed)
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
// shard and its claim. That takeover fails; the next one finds the loss, and publishes the events again.
//
// It fails if the shard goes on from what was examined.
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
			t.Errorf("readers may see a shard that is going to be cleared: %+v", s)
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
// examined, the shard publishes again what came after it alone.
//
// It fails if the shard goes on without a checkpoint: what the limits of the stream have removed would be
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
	if err := r.try(); err == nil || !strings.Contains(err.Error(), "lost since the examination") ||
		r.calls("clear") > 0 {
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

// TestG7_SnapshotsThatCannotBeUsed: Redis is emptied, and a part of the snapshot is gone. The shard is built from the
// log, and people hear why.
func TestG7_SnapshotsThatCannotBeUsed(t *testing.T) {
	for _, whole := range []bool{true, false} {
		r := newRig(t)
		r.idle()
		r.send(start, "lapse.config.c", `{}`)
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
		warned := slices.ContainsFunc(r.logged, func(line string) bool {
			return strings.Contains(line,
				"snapshots cannot be used")
		})
		rebuilds := slices.Contains(r.logged, "the shard is being rebuilt from the log")
		if loaded := r.calls("fill") > 0; loaded != whole || warned == whole || !rebuilds {
			t.Errorf("it is loaded from the snapshot: %t; it says %q", loaded, r.logged)
		}
	}
}

// TestG7_TruncatedSinceTheExamination: the same of the log, which is truncated before what the shard still
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
	if err == nil || streams.AsRefusal(err) != nil || !strings.Contains(err.Error(),
		"truncated since the examination") {
		t.Fatalf("it is taken over: %v", err)
	}
	r.recover(err)
	if err := r.try(); !errors.Is(err, streams.ErrLogTruncated) || !r.fatal(err) {
		t.Errorf("the next takeover: %v", err)
	}
}

// TestG12_GivenUp: the stream of events has lost an event that cannot be published again. By a person's
// decision the shard goes on from what is stored, and the checkpoint names what was given up.
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
	r.truncate(r.progress.Offset + 1)
	r.restart()
	if got := r.refused(events.ErrLost); got.Accept != streams.LostEvents || got.Removes {
		t.Errorf("it can be given up by %s, and that removes something from Redis: %v", got.Accept, got.Removes)
	}
	others := Accepted{Losses: []streams.Loss{streams.LostLogEnd, streams.LostLogBeginning, streams.LostDocuments,
		streams.LostLogMessages}, RedisIsSaved: true}
	if left := r.beginAnew(others, 0); left == nil || r.calls("take") > 0 {
		t.Errorf("with another decision: %v, after %q", left, r.passed)
	}
	if left := r.beginAnew(Accepted{Losses: []streams.Loss{streams.LostEvents}}, 1); left != nil {
		t.Fatal(left)
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
			t.Errorf("a usual takeover keeps readers from the shard: %+v", s)
		}
	}
	if err := r.takeOver(); err != nil {
		t.Errorf("what was given up is missed later: %v", err)
	}
	same(t, "collections", r.Collections().Names(), []string{"c"})
}

// TestG7_ADamagedShardIsKept: a shard is damaged, and the log does not reach back. It is marked, once, so
// that readers get an error; nothing of it is removed, and nothing else is refused.
func TestG7_ADamagedShardIsKept(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{"ttl":-1}`)
	r.write(start, "b", `{"ttl":-1}`)
	r.idle()
	r.truncate(r.progress.Offset + 1)
	keys, err := r.redis.Client.Keys(t.Context(), "*docs*").Result()
	if err != nil || len(keys) != 1 || r.redis.Client.HDel(t.Context(), keys[0], "a").Val() != 1 {
		t.Fatal(keys, err)
	}
	r.restart()
	last := must(r.streams.Log.Info(t.Context())).State.LastSeq
	for range 2 {
		if refusal := streams.AsRefusal(r.try()); refusal == nil || refusal.Kind != streams.ErrRefused ||
			refusal.Accept != streams.LostDocuments || !refusal.Removes || r.tenure.taken {
			t.Fatalf("it is taken over: %v", refusal)
		}
	}
	if now := must(r.streams.Log.Info(t.Context())).State.LastSeq; now != last {
		t.Errorf("an owner that is refused appends ticks: the log ended at %d, and ends at %d", last, now)
	}
	if s := r.state(); !s.Refused || r.calls("refuse") != 1 || r.redis.Client.Exists(t.Context(), keys[0]).Val() != 1 {
		t.Errorf("what is left is %+v, after %q", s, r.passed)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestG7_AFollowerWaitsForASnapshot: Redis is emptied in a region that follows another one, and the first region has
// replaced the snapshots that the record here names. The owner tries again: the next record names others.
func TestG7_AFollowerWaitsForASnapshot(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.write(start, "a", `{}`)
	r.idle()
	r.snapshot()
	r.idle()
	r.truncate(r.progress.Offset + 1)
	if err := r.objects.Remove(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	r.wipe()
	r.TakeOverAgain()
	r.Mirror = nothingPublished{}
	if err := r.try(); err == nil || r.fatal(err) || !strings.Contains(err.Error(), "waiting for a snapshot") {
		t.Errorf("in a region that follows another one: %v", err)
	}
	r.Mirror = nil
	if err := r.try(); !errors.Is(err, streams.ErrLogTruncated) || !r.fatal(err) {
		t.Errorf("in the first region: %v", err)
	}
}

// nothingPublished is a Mirror of a region of which nothing is known.
type nothingPublished struct{}

func (nothingPublished) Published() (*Checkpoint, <-chan struct{}) { return nil, nil }
func (nothingPublished) Reached() bool                             { return true }
func (nothingPublished) Follows(context.Context) error             { return nil }
func (nothingPublished) Ended() context.Context                    { return context.Background() }
