package store_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

func TestTakeAndLoad(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		p := store.New(s.Client, "lapse", 2, 4)
		none, err := p.Load(ctx)
		if diff := cmp.Diff(store.State{}, none); err != nil || diff != "" {
			t.Fatalf("load what is not there: %v\n%s", err, diff)
		}
		none.Log, none.Offset, none.Watermark, none.Stamp = "log", 41, 1_790_000_000_123,
			store.Stamp{Seq: 40, At: 1_790_000_000_122_999_999}
		if err := p.Take(ctx, none, "a-0", 99); err != nil {
			t.Fatal(err)
		}
		wantErr(t, p.Take(ctx, none, "b-0", 99), store.ErrFenced, "take what another has taken")
		want := store.State{Version: "a-0", Log: "log", Offset: 41, Watermark: 1_790_000_000_123, Stamp: none.Stamp,
			Rebuild: 99, Configs: map[string]store.Config{}}
		got, err := p.Load(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("load: %v\n%s", err, diff)
		}
		// A second owner takes over from what it has read, and the first is fenced off.
		if err := p.Take(ctx, got, "b-0", 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, p.Take(ctx, got, "c-0", 0), store.ErrFenced, "take from an old state")
		wantErr(t, p.Verify(ctx, "a-0", nil), store.ErrFenced, "verify an old version")
		if err := p.Verify(ctx, "b-0", nil); err != nil {
			t.Errorf("verify: %v", err)
		}
		config := store.Config{History: ttlrules.History{}.With(5, 7, 60).With(9, 8, ttlrules.NoDefault), Lazy: true}
		header := store.Header{Ts: 1, Etag: 2}
		err = p.Commit(ctx, store.Progress{Version: "b-0", Next: "b-1", Offset: 50, Watermark: 1_790_000_000_124,
			Stamp: store.Stamp{Seq: 50, At: 7}},
			[]store.ConfigChange{{Collection: "orders", Config: &config}, {Collection: "gone"},
				{Collection: "plain", Config: &store.Config{NoIndex: true}}},
			[]store.CollectionChanges{{Collection: "b", Changes: []store.Change{{ID: "1", New: &header, Body: []byte("{}")}}},
				{Collection: "a", Changes: []store.Change{{ID: "1", New: &header, Body: []byte("{}")}}}})
		if err != nil {
			t.Fatal(err)
		}
		want = store.State{Version: "b-1", Log: "log", Offset: 50, Watermark: 1_790_000_000_124, Stamp: store.Stamp{Seq: 50,
			At: 7},
			Configs: map[string]store.Config{"orders": config, "plain": {NoIndex: true}}, Collections: []string{"a", "b"}}
		got, err = p.Load(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("load after a commit: %v\n%s", err, diff)
		}
	})
}

// TestG12_TheStateNamesAPlaceOfTheEvents: a state keeps its place in the stream of events until a commit or a
// new state names another one. It fails if a takeover or a commit without outputs forgets it.
func TestG12_TheStateNamesAPlaceOfTheEvents(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		p := store.New(s.Client, "lapse", 2, 4)
		state := store.State{Log: "log", Events: "7:e3"}
		want := func(doing, events string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", doing, err)
			}
			if state, err = p.Load(ctx); err != nil || state.Events != events {
				t.Errorf("%s: the state names %q (%v), want %q", doing, state.Events, err, events)
			}
		}
		commit := func(next string, offset uint64, events string) error {
			return p.Commit(ctx, store.Progress{Version: state.Version, Next: next, Offset: offset, Events: events}, nil, nil)
		}
		want("take what is not there", "7:e3", p.Take(ctx, state, "a-0", 0))
		want("commit outputs", "9:r5", commit("a-1", 5, "9:r5"))
		want("commit no outputs", "9:r5", commit("a-2", 6, ""))
		want("take over", "9:r5", p.Take(ctx, state, "b-0", 0))
		want("clear", "4:e1", p.Clear(ctx, "b-0", store.State{Version: "b-1", Log: "log", Events: "4:e1"}, 0))
		want("clear, and no place is known", "", p.Clear(ctx, "b-1", store.State{Version: "b-2", Log: "log"}, 0))
	})
}

func TestClearAndLeftovers(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 4, far)
		r.WithDefault("orders", 0, 60)
		for i := range 8 {
			r.Put("orders", string(rune('a'+i)), store.Header{Ts: far, Etag: 1}, "{}")
		}
		others := r.Dump()
		base := r.Key(1, "")
		maps.DeleteFunc(others, func(k, _ string) bool { return strings.HasPrefix(k, base) })
		var want []string
		for k := range r.Dump() {
			if strings.HasPrefix(k, base) {
				want = append(want, k)
			}
		}
		slices.Sort(want)
		if len(want) < 3 {
			t.Fatalf("the shard has but the keys %v", want)
		}
		found, err := r.Shards[1].Leftovers(ctx)
		slices.Sort(found)
		if diff := cmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("leftovers: %v\n%s", err, diff)
		}
		p := r.Shards[1]
		next := store.State{Version: "new-0", Log: "log", Offset: 7}
		wantErr(t, p.Clear(ctx, "another", next, 99), store.ErrFenced, "clear what another owns")
		if found, err := p.Leftovers(ctx); err != nil || len(found) != len(want) {
			t.Errorf("a clear that was refused left %v (%v), want %v", found, err, want)
		}
		if err := p.Clear(ctx, r.At[1].Version, next, 99); err != nil {
			t.Fatal(err)
		}
		if found, err := p.Leftovers(ctx); err != nil || len(found) != 1 {
			t.Errorf("leftovers after clear: %v, %v, want the new state", found, err)
		}
		next.Rebuild, next.Configs = 99, map[string]store.Config{}
		got, err := p.Load(ctx)
		if diff := cmp.Diff(next, got); err != nil || diff != "" {
			t.Errorf("the state after clear: %v\n%s", err, diff)
		}
		after := r.Dump()
		maps.DeleteFunc(after, func(k, _ string) bool { return strings.HasPrefix(k, base) })
		if diff := cmp.Diff(others, after); diff != "" {
			t.Errorf("clear touched what is not the shard's:\n%s", diff)
		}
	})
}

// TestG7_FailoverDuringClear: a replica that becomes the master lacks a step. Fails if the next
// one is accepted, because what was not removed there would be taken for rebuilt in the end.
func TestG7_FailoverDuringClear(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.WithDefault("orders", 0, 60)
		r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
		failover := &afterStep{do: func() {
			s.Client.HSet(ctx, r.Key(0, "docs:orders"), "a", "{}")
			s.Client.HSet(ctx, r.Key(0, "state"), "version", r.At[0].Version)
		}}
		s.Client.AddHook(failover)
		err := r.Shards[0].Clear(ctx, r.At[0].Version, store.State{Version: "new-0", Log: "log"}, 9)
		wantErr(t, err, store.ErrFenced, "the step after the failover")
		if n := s.Client.HLen(ctx, r.Key(0, "docs:orders")).Val(); n != 1 {
			t.Errorf("%d documents are left, want 1", n)
		}
	})
}

// afterStep calls do once, after the first script.
type afterStep struct {
	redis.Hook
	do func()
}

func (h *afterStep) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *afterStep) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *afterStep) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if do := h.do; do != nil && err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			h.do = nil
			do()
		}
		return err
	}
}

// TestForeign replaces each of a shard's keys with a string: every call that uses the key
// returns ErrForeign, and writes nothing.
func TestForeign(t *testing.T) {
	type call struct {
		name string
		do   func(r *rig) error
	}
	header := store.Header{Ts: far, Etag: 9}
	commit := call{"commit", func(r *rig) error {
		return r.Shards[0].Commit(ctx, r.Next(0), []store.ConfigChange{{Collection: "orders", Config: &store.Config{}}},
			[]store.CollectionChanges{{Collection: "orders",
				Changes: []store.Change{{ID: "b", New: &header, Body: []byte("{}")}}}})
	}}
	load := call{"load", func(r *rig) error { _, err := r.Shards[0].Load(ctx); return err }}
	take := call{"take", func(r *rig) error {
		return r.Shards[0].Take(ctx, store.State{Version: r.At[0].Version}, "other", 0)
	}}
	verify := call{"verify", func(r *rig) error {
		return r.Shards[0].Verify(ctx, r.At[0].Version, []string{"orders"})
	}}
	read := call{"read", func(r *rig) error {
		_, err := r.Shards[0].ReadDocuments(ctx, r.At[0].Version,
			[]store.Want{{Collection: "orders", Headers: []string{"a"}}})
		return err
	}}
	due := call{"due", func(r *rig) error {
		_, err := r.Shards[0].Due(ctx, r.At[0].Version,
			[]store.Cut{{Collection: "orders", Cuts: ttlrules.Cuts{Inherit: far, Own: far}}}, 10, 1<<20, true)
		return err
	}}
	tests := []struct {
		kind  string
		calls []call
	}{
		{"state", []call{load, take, verify, commit, read, due}},
		{"config", []call{load, commit}},
		{"docs:orders", []call{verify, commit, read, due}},
		{"inherit:orders", []call{verify, commit, due}},
		{"own:orders", []call{verify, commit, due}},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.WithDefault("orders", 0, 60)
			r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
			r.Put("orders", "b", store.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			key := r.Key(0, tt.kind)
			s.Client.Del(ctx, key)
			s.Client.Set(ctx, key, "not lapse's", 0)
			before := r.Dump()
			for _, c := range tt.calls {
				wantErr(t, c.do(r), store.ErrForeign, c.name+" with a string as "+tt.kind)
			}
			if diff := cmp.Diff(before, r.Dump()); diff != "" {
				t.Errorf("something was written, with a string as %s:\n%s", tt.kind, diff)
			}
		}
	})
}

// TestForeignContent changes fields of a shard to values that lapse does not store.
func TestForeignContent(t *testing.T) {
	tests := []struct{ kind, field, value string }{
		{"state", "format", "2"},
		{"state", "format", ""},
		{"state", "shards", "5"},
		{"state", "version", ""},
		{"state", "offset", "x"},
		{"state", "watermark", "-1"},
		{"state", "rebuild", "soon"},
		{"config", "orders", "{"},
		{"config", "orders", `{"epochs":[[0,1,-2]]}`},
		{"config", "orders", `{"epochs":[[5,1,1],[4,2,2]]}`},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			s.Client.HSet(ctx, r.Key(0, tt.kind), tt.field, tt.value)
			_, err := r.Shards[0].Load(ctx)
			wantErr(t, err, store.ErrForeign, "load with "+tt.field+" "+tt.value)
		}
		r := newRig(t, s, 1, far)
		r.WithDefault("orders", 0, 60)
		s.Client.Del(ctx, r.Key(0, "state"))
		_, err := r.Shards[0].Load(ctx)
		wantErr(t, err, store.ErrDamaged, "load a configuration without a state")
	})
}

// TestDamaged: if another program changed a shard's keys, the next commit and Verify return
// ErrDamaged, and nothing of the commit is applied.
func TestDamaged(t *testing.T) {
	header := store.Header{Ts: far, Etag: 9}
	tests := []struct {
		name string
		do   func(r *rig)
		ok   bool // a verification, which reads no document, finds nothing
	}{
		{"the documents are gone", func(r *rig) { r.Client.Del(ctx, r.Key(0, "docs:orders")) }, false},
		{"the configuration is gone", func(r *rig) { r.Client.Del(ctx, r.Key(0, "config")) }, false},
		{"a document is gone", func(r *rig) { r.Client.HDel(ctx, r.Key(0, "docs:orders"), "a") }, false},
		{"a document is too many", func(r *rig) { r.Client.HSet(ctx, r.Key(0, "docs:orders"), "x", "y") }, false},
		{"the index of inherit is gone", func(r *rig) { r.Client.Del(ctx, r.Key(0, "inherit:orders")) }, false},
		{"a member of own is gone", func(r *rig) { r.Client.ZRem(ctx, r.Key(0, "own:orders"), "b") }, false},
		{"its size is gone", func(r *rig) { r.Client.HDel(ctx, r.Key(0, "state"), "size:orders") }, false},
		{"the document is emptied", func(r *rig) { r.Client.HSet(ctx, r.Key(0, "docs:orders"), "a", "") }, true},
		{"the document is not one", func(r *rig) { r.Client.HSet(ctx, r.Key(0, "docs:orders"), "a", "\xffshort") }, true},
		{"the document is another", func(r *rig) {
			r.Client.HDel(ctx, r.Key(0, "docs:orders"), "a")
			r.Client.HSet(ctx, r.Key(0, "docs:orders"), "x", "y")
		}, true},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.WithDefault("orders", 0, 60)
			r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
			r.Put("orders", "b", store.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			tt.do(r)
			before := r.Dump()
			p := r.Shards[0]
			err := p.Commit(ctx, r.Next(0), []store.ConfigChange{{Collection: "other", Config: &store.Config{}}},
				[]store.CollectionChanges{
					{Collection: "fine", Changes: []store.Change{r.Change("fine", "c", &header, []byte("{}"))}},
					{Collection: "orders", Changes: []store.Change{r.Change("orders", "a", &header, nil)}},
				})
			wantErr(t, err, store.ErrDamaged, tt.name+": commit")
			if diff := cmp.Diff(before, r.Dump()); diff != "" {
				t.Errorf("%s: something of the commit was applied:\n%s", tt.name, diff)
			}
			if err := p.Verify(ctx, r.At[0].Version, []string{"fine", "orders"}); !tt.ok {
				wantErr(t, err, store.ErrDamaged, tt.name+": verify")
			} else if err != nil {
				t.Errorf("%s: verify: %v", tt.name, err)
			}
		}
	})
}

// TestReadOfLostDocuments: if Redis lost documents, Read returns ErrDamaged. It does not report
// them as absent, so that no event follows from that.
func TestReadOfLostDocuments(t *testing.T) {
	for name, lose := range map[string]func(r *rig){
		"all":      func(r *rig) { r.Client.Del(ctx, r.Key(0, "docs:orders")) },
		"one":      func(r *rig) { r.Client.HDel(ctx, r.Key(0, "docs:orders"), "a") },
		"the size": func(r *rig) { r.Client.HDel(ctx, r.Key(0, "state"), "size:orders") },
	} {
		t.Run(name, func(t *testing.T) {
			redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
				r := newRig(t, s, 1, far)
				r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
				r.Put("orders", "b", store.Header{Ts: far, Etag: 1}, "{}")
				lose(r)
				_, err := r.Shards[0].ReadDocuments(ctx, r.At[0].Version, []store.Want{
					{Collection: "fine", Headers: []string{"x"}}, {Collection: "orders", Headers: []string{"a"}},
				})
				wantErr(t, err, store.ErrDamaged, "read")
			})
		})
	}
}
