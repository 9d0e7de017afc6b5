package shard

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_TheOrderOfAStep pins what an owner asks of Redis, and when it publishes: outputs before the commit, nothing
// that is not needed, and a look at the fence before outputs for which nothing was read.
func TestG3_TheOrderOfAStep(t *testing.T) {
	const publishes, commits = "before outputs are published, after outputs were published, ",
		"before the commit, commit, after the commit"
	expired := func(r *rig) {
		r.write(start, "a", `{}`)
		r.idle()
	}
	for name, tt := range map[string]struct {
		before, step func(r *rig)
		want         string
	}{
		"nothing":       {nil, func(r *rig) {}, ""},
		"only log time": {nil, func(r *rig) { r.passTime(start + 1) }, ""},
		"a write":       {nil, func(r *rig) { r.write(start, "a", `{}`) }, "read, " + commits},
		"a write that is bad": {nil, func(r *rig) { r.send(start, prefix.Write("frob", "c", "a"), `{}`) }, "read, " +
			publishes + commits},
		"a message that is bad": {nil, func(r *rig) { r.send(start, "lapse.write.upsert.c", `{}`) }, "verify, " +
			publishes + commits},
		"a configuration": {nil, func(r *rig) { r.send(start, prefix.Config("d"), `{}`) }, commits +
			", after the commit of a configuration"},
		"a bad configuration": {nil, func(r *rig) { r.send(start, prefix.Config("c"), `{"indexingMode":"none"}`) },
			"verify, " + publishes + commits + ", after the commit of a configuration"},
		"a document is due": {expired, func(r *rig) { r.passTime(start + 1000) },
			"due, after a reap found what is due, " + publishes + commits},
		"a document will be due": {expired, func(r *rig) { r.passTime(start + 990) },
			"due, after a reap found what is due"},
		"a write meets it": {expired, func(r *rig) { r.write(start+1000, "a", `{}`) },
			"read, read, due, after a reap found what is due, " + publishes + commits},
		"a patch of it": {expired, func(r *rig) {
			r.send(start+1, prefix.Write(wire.Patch, "c", "a"),
				`{"b":1}`)
		}, "read, " + commits},
		"a second has passed": {nil, func(r *rig) { r.duties.heartbeat = time.Time{} }, "verify"},
		"epochs are settled": {func(r *rig) {
			r.send(start, prefix.Config("c"), `{"defaultTtl":2}`)
			r.handOut()
			_ = r.control(r.t.Context(), r.pending[0])
		}, func(r *rig) {}, commits},
		"and log time in between": {func(r *rig) { r.passTime(start + 1); r.idle() },
			func(r *rig) { r.duties.heartbeat = time.Time{} }, commits + ", verify"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.idle()
			if tt.before != nil {
				tt.before(r)
			}
			tt.step(r)
			r.passed = nil
			r.idle()
			got := slices.DeleteFunc(r.passed, func(what string) bool { return what == string(crash.AfterRead) })
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestG11_WhatAnOwnerCounts: the metrics of messages, events and commits.
func TestG11_WhatAnOwnerCounts(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.write(start, "b", `{}`)
	r.send(start, prefix.Write(wire.Replace, "c", "none"), `{}`)
	r.passTime(start + 1000) // and is a message too
	r.idle()
	m := r.Metrics
	got := []float64{value(t, m.Applied), value(t, m.Rejected.WithLabelValues("404")), value(t, m.Expired),
		value(t, m.Lateness), value(t, m.Commits), float64(r.Status.Reaped.Load())}
	if want := []float64{4, 1, 2, 2, float64(r.calls("commit")), 2}; !slices.Equal(got, want) {
		t.Errorf("applied, rejected, expired, late, commits, reaped: %v, want %v", got, want)
	}
}

// TestG7_TheEndOfARebuild: once all that was missing is applied, the owner commits that at once, and not before.
func TestG7_TheEndOfARebuild(t *testing.T) {
	for _, tt := range []struct {
		rebuild uint64
		ends    bool
	}{{0, false}, {1, true}, {7, true}, {8, true}, {9, false}} {
		r := newRig(t)
		r.idle()
		r.progress.Resume(store.State{Offset: 8, Watermark: start}, r.progress.Version, tt.rebuild)
		r.passed = nil
		if due, err := r.keep(t.Context()); due || err != nil || (r.calls("commit") == 1) != tt.ends ||
			r.Status.FirstDue.Load() != math.MaxInt64 {
			t.Errorf("documents from below %d are missing at 8: %q, %t, %v", tt.rebuild, r.passed, due, err)
		}
		if tt.ends && r.progress.Rebuild != 0 {
			t.Errorf("documents from below %d are still missing", r.progress.Rebuild)
		}
	}
}

// TestG7_WhatVanishes: a document that is gone between the two reads of a step is damage, also where another one has
// its place, so that the sizes do not show it.
func TestG7_WhatVanishes(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.idle()
	reads := 0
	r.at["read"] = func() {
		if reads++; reads == 2 {
			keys, err := r.redis.Client.Keys(t.Context(), "*docs*").Result()
			if err != nil || r.redis.Client.HSet(t.Context(), keys[0], "z", r.redis.Client.HGet(t.Context(), keys[0],
				"a").Val()).Val() != 1 || r.redis.Client.HDel(t.Context(), keys[0], "a").Val() != 1 {
				t.Error(keys, err)
			}
		}
	}
	r.write(start+1000, "a", `{}`)
	if err := r.try(); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "c/a vanished") {
		t.Errorf("%d reads: %v", reads, err)
	}
}

// TestG3_ATakeoverKeepsWhatWasRead: the messages that were read are kept over a takeover, unless Redis has gone back to
// before them. Those that are applied by then are dropped.
func TestG3_ATakeoverKeepsWhatWasRead(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(r *rig)
		want   int
	}{
		"nothing has changed":  {func(*rig) {}, 2},
		"another owner was on": {func(r *rig) { r.moveTo(r.sent[1].Seq) }, 1},
		"Redis has gone back":  {func(r *rig) { r.moveTo(1) }, 0},
		"another process":      {func(r *rig) { r.restart() }, 0},
		"it is taken over once": {func(r *rig) {
			r.TakeOverAgain()
			_, _ = r.runOnce(r.t.Context())
			r.handOut()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.idle()
			r.write(start, "a", `{}`)
			r.write(start, "b", `{}`)
			r.handOut()
			tt.change(r)
			if err := r.takeOver(); err != nil {
				t.Fatal(err)
			}
			if n, _ := r.Queue.Waiting(); n != tt.want || n == 0 && r.Queue.Base() != r.progress.Offset {
				t.Errorf("%d messages are kept, after %d; the offset is %d", n, r.Queue.Base(), r.progress.Offset)
			}
			if r.Status.Applied.Load() != r.progress.Offset || !r.Status.Owned.Load() ||
				r.Status.Rebuild.Load() != r.progress.Rebuild || r.due.Len() != 0 {
				t.Errorf("others are told that %d is applied, and %d is missing", r.Status.Applied.Load(),
					r.Status.Rebuild.Load())
			}
		})
	}
}

// moveTo is what another owner does: it commits up to an offset.
func (r *rig) moveTo(offset uint64) {
	r.t.Helper()
	at := store.Progress{Version: r.progress.Version, Next: "another's", Offset: offset, Watermark: start}
	if err := store.New(r.redis.Client, prefix, 0, 1).Commit(r.t.Context(), at, nil, nil); err != nil {
		r.t.Fatal(err)
	}
}
