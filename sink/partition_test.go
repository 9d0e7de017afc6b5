package sink_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

func TestTakeAndLoad(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		p := sink.NewStore(s.client, "lapse", 4).Partition(2)
		none, err := p.Load(ctx)
		if diff := cmp.Diff(sink.State{}, none); err != nil || diff != "" {
			t.Fatalf("load what is not there: %v\n%s", err, diff)
		}
		none.Log, none.Offset, none.Watermark = "log", 41, 1_790_000_000_123
		if err := p.Take(ctx, none, "a-0", 99); err != nil {
			t.Fatal(err)
		}
		wantErr(t, p.Take(ctx, none, "b-0", 99), sink.ErrFenced, "take what another has taken")
		want := sink.State{Version: "a-0", Log: "log", Offset: 41, Watermark: 1_790_000_000_123, Rebuild: 99, Configs: map[string]sink.Config{}}
		got, err := p.Load(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("load: %v\n%s", err, diff)
		}
		// A second owner takes over from what it has read, and the first is fenced off.
		if err := p.Take(ctx, got, "b-0", 0); err != nil {
			t.Fatal(err)
		}
		wantErr(t, p.Take(ctx, got, "c-0", 0), sink.ErrFenced, "take from an old state")
		wantErr(t, p.Verify(ctx, "a-0", nil), sink.ErrFenced, "verify an old version")
		if err := p.Verify(ctx, "b-0", nil); err != nil {
			t.Errorf("verify: %v", err)
		}
		config := sink.Config{History: ttlrules.History{}.With(5, 7, 60).With(9, 8, ttlrules.NoDefault), Building: true}
		header := sink.Header{Ts: 1, Etag: 2}
		err = p.Commit(ctx, sink.Progress{Version: "b-0", Next: "b-1", Offset: 50, Watermark: 1_790_000_000_124},
			[]sink.ConfigChange{{Collection: "orders", Config: &config}, {Collection: "gone"}, {Collection: "plain", Config: &sink.Config{NoIndex: true}}},
			[]sink.CollectionChanges{{Collection: "b", Changes: []sink.Change{{ID: "1", New: &header, Body: []byte("{}")}}},
				{Collection: "a", Changes: []sink.Change{{ID: "1", New: &header, Body: []byte("{}")}}}})
		if err != nil {
			t.Fatal(err)
		}
		want = sink.State{Version: "b-1", Log: "log", Offset: 50, Watermark: 1_790_000_000_124,
			Configs: map[string]sink.Config{"orders": config, "plain": {NoIndex: true}}, Collections: []string{"a", "b"}}
		got, err = p.Load(ctx)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("load after a commit: %v\n%s", err, diff)
		}
	})
}

func TestClearAndLeftovers(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 4, far)
		r.withDefault("orders", 0, 60)
		for i := range 8 {
			r.put("orders", string(rune('a'+i)), sink.Header{Ts: far, Etag: 1}, "{}")
		}
		others := r.dump()
		base := r.key(1, "")
		maps.DeleteFunc(others, func(k, _ string) bool { return strings.HasPrefix(k, base) })
		var want []string
		for k := range r.dump() {
			if strings.HasPrefix(k, base) {
				want = append(want, k)
			}
		}
		slices.Sort(want)
		if len(want) < 3 {
			t.Fatalf("the partition has but the keys %v", want)
		}
		found, err := r.store.Partition(1).Leftovers(ctx)
		slices.Sort(found)
		if diff := cmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("leftovers: %v\n%s", err, diff)
		}
		if err := r.store.Partition(1).Clear(ctx); err != nil {
			t.Fatal(err)
		}
		if found, err := r.store.Partition(1).Leftovers(ctx); err != nil || len(found) > 0 {
			t.Errorf("leftovers after clear: %v, %v", found, err)
		}
		if diff := cmp.Diff(others, r.dump()); diff != "" {
			t.Errorf("clear touched what is not the partition's:\n%s", diff)
		}
	})
}

// TestForeign has something else stored under each of a partition's keys: it is
// said to be foreign, and nothing is written.
func TestForeign(t *testing.T) {
	type call struct {
		name string
		do   func(r *rig) error
	}
	header := sink.Header{Ts: far, Etag: 9}
	commit := call{"commit", func(r *rig) error {
		return r.store.Partition(0).Commit(ctx, r.progress(0), []sink.ConfigChange{{Collection: "orders", Config: &sink.Config{}}},
			[]sink.CollectionChanges{{Collection: "orders", Changes: []sink.Change{{ID: "b", New: &header, Body: []byte("{}")}}}})
	}}
	load := call{"load", func(r *rig) error { _, err := r.store.Partition(0).Load(ctx); return err }}
	take := call{"take", func(r *rig) error {
		return r.store.Partition(0).Take(ctx, sink.State{Version: r.state[0].Version}, "other", 0)
	}}
	verify := call{"verify", func(r *rig) error {
		return r.store.Partition(0).Verify(ctx, r.state[0].Version, []string{"orders"})
	}}
	read := call{"read", func(r *rig) error {
		_, err := r.store.Partition(0).Read(ctx, r.state[0].Version, []sink.Want{{Collection: "orders", Headers: []string{"a"}}})
		return err
	}}
	due := call{"due", func(r *rig) error {
		_, err := r.store.Partition(0).Due(ctx, r.state[0].Version, []sink.Cut{{Collection: "orders", Cuts: ttlrules.Cuts{Inherit: far, Own: far}}}, 10, 1<<20, true)
		return err
	}}
	scan := call{"scan", func(r *rig) error {
		_, _, _, err := r.store.Partition(0).Scan(ctx, r.state[0].Version, "orders", "0", 10)
		return err
	}}
	get := call{"get", func(r *rig) error { _, err := r.reader.Get(ctx, "orders", "a"); return err }}
	list := call{"list", func(r *rig) error { _, err := r.reader.List(ctx, "orders", sink.ListOptions{}); return err }}
	count := call{"count", func(r *rig) error { _, err := r.reader.Count(ctx, "orders"); return err }}
	forecast := call{"forecast", func(r *rig) error { _, err := r.reader.Forecast(ctx, "orders", 2, time.Hour); return err }}
	tests := []struct {
		kind  string
		calls []call
	}{
		{"state", []call{load, take, verify, commit, read, due, scan, get, list, count, forecast}},
		{"config", []call{load, commit, get, list, count, forecast}},
		{"docs:orders", []call{verify, commit, read, due, scan, get, list, count, forecast}},
		{"inherit:orders", []call{verify, commit, due, count, forecast}},
		{"own:orders", []call{verify, commit, due, count, forecast}},
	}
	onBoth(t, func(t *testing.T, s server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.withDefault("orders", 0, 60)
			r.put("orders", "a", sink.Header{Ts: far, Etag: 1}, "{}")
			r.put("orders", "b", sink.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			key := r.key(0, tt.kind)
			s.client.Del(ctx, key)
			s.client.Set(ctx, key, "not lapse's", 0)
			before := r.dump()
			for _, c := range tt.calls {
				wantErr(t, c.do(r), sink.ErrForeign, c.name+" with a string as "+tt.kind)
			}
			if diff := cmp.Diff(before, r.dump()); diff != "" {
				t.Errorf("something was written, with a string as %s:\n%s", tt.kind, diff)
			}
		}
	})
}

// TestForeignContent has fields under a partition's keys that are not lapse's, or
// of another lapse.
func TestForeignContent(t *testing.T) {
	tests := []struct{ kind, field, value string }{
		{"state", "format", "2"},
		{"state", "format", ""},
		{"state", "partitions", "5"},
		{"state", "version", ""},
		{"state", "offset", "x"},
		{"state", "watermark", "-1"},
		{"state", "rebuild", "soon"},
		{"config", "orders", "{"},
		{"config", "orders", `{"epochs":[[0,1,-2]]}`},
		{"config", "orders", `{"epochs":[[5,1,1],[4,2,2]]}`},
	}
	onBoth(t, func(t *testing.T, s server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			s.client.HSet(ctx, r.key(0, tt.kind), tt.field, tt.value)
			_, err := r.store.Partition(0).Load(ctx)
			wantErr(t, err, sink.ErrForeign, "load with "+tt.field+" "+tt.value)
			if tt.field == "format" || tt.field == "partitions" || tt.kind == "config" {
				_, err = r.reader.Get(ctx, "orders", "a")
				wantErr(t, err, sink.ErrForeign, "get with "+tt.field+" "+tt.value)
			}
		}
		r := newRig(t, s, 1, far)
		r.withDefault("orders", 0, 60)
		s.client.Del(ctx, r.key(0, "state"))
		// The state is gone, so its name is that of the configuration's.
		_, err := r.store.Partition(0).Load(ctx)
		wantErr(t, err, sink.ErrDamaged, "load a configuration without a state")
	})
}

// TestUnavailable: what is not known is never a document not found.
func TestUnavailable(t *testing.T) {
	reads := map[string]func(r *sink.Reader) error{
		"get":      func(r *sink.Reader) error { _, err := r.Get(ctx, "orders", "a"); return err },
		"get many": func(r *sink.Reader) error { _, err := r.GetMany(ctx, "orders", []string{"a", "b"}); return err },
		"list":     func(r *sink.Reader) error { _, err := r.List(ctx, "orders", sink.ListOptions{}); return err },
		"count":    func(r *sink.Reader) error { _, err := r.Count(ctx, "orders"); return err },
		"forecast": func(r *sink.Reader) error { _, err := r.Forecast(ctx, "orders", 1, time.Hour); return err },
		"config":   func(r *sink.Reader) error { _, err := r.Config(ctx, "orders"); return err },
	}
	all := slices.Sorted(maps.Keys(reads))
	tests := []struct {
		name  string
		after func(t *testing.T, r *rig)
		reads []string
	}{
		{"never initialised", func(_ *testing.T, r *rig) { r.client.FlushAll(ctx) }, all},
		{"rebuilding", func(t *testing.T, r *rig) {
			if err := r.store.Partition(0).Take(ctx, sink.State{Version: r.state[0].Version}, "other", 1000); err != nil {
				t.Fatal(err)
			}
		}, all},
		{"gone back to an older state", func(t *testing.T, r *rig) {
			if _, err := r.reader.Get(ctx, "orders", "a"); err != nil {
				t.Fatal(err)
			}
			r.client.HIncrBy(ctx, r.key(0, "state"), "offset", -1)
		}, all},
		{"the documents are gone", func(_ *testing.T, r *rig) { r.client.Del(ctx, r.key(0, "docs:orders")) }, all},
		{"the configuration is gone", func(_ *testing.T, r *rig) { r.client.Del(ctx, r.key(0, "config")) }, all},
		{"a document is gone", func(_ *testing.T, r *rig) { r.client.HDel(ctx, r.key(0, "docs:orders"), "b") }, all},
		{"a document is too many", func(_ *testing.T, r *rig) { r.client.HSet(ctx, r.key(0, "docs:orders"), "x", "y") }, all},
		{"an index is gone", func(_ *testing.T, r *rig) { r.client.Del(ctx, r.key(0, "inherit:orders")) }, []string{"count", "forecast"}},
		{"a member of an index is gone", func(_ *testing.T, r *rig) { r.client.ZRem(ctx, r.key(0, "own:orders"), "b") }, []string{"count", "forecast"}},
		{"the index is being built", func(_ *testing.T, r *rig) {
			c := r.configs["orders"]
			c.Building = true
			r.configure("orders", &c)
		}, []string{"count", "forecast"}},
	}
	onBoth(t, func(t *testing.T, s server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.withDefault("orders", 0, 60)
			r.put("orders", "a", sink.Header{Ts: far, Etag: 1}, "{}")
			r.put("orders", "b", sink.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			for name, read := range reads {
				if err := read(r.reader); err != nil {
					t.Errorf("%s before: %v", name, err)
				}
			}
			tt.after(t, r)
			for _, name := range all {
				if err := reads[name](r.reader); slices.Contains(tt.reads, name) {
					wantErr(t, err, sink.ErrUnavailable, tt.name+": "+name)
				} else if err != nil {
					t.Errorf("%s: %s: %v", tt.name, name, err)
				}
			}
		}
	})
}

// TestDamaged: what was changed behind lapse's back is refused by the next commit
// and by a verification, and nothing of the commit is applied.
func TestDamaged(t *testing.T) {
	header := sink.Header{Ts: far, Etag: 9}
	tests := []struct {
		name string
		do   func(r *rig)
		ok   bool // a verification, which reads no document, finds nothing
	}{
		{"the documents are gone", func(r *rig) { r.client.Del(ctx, r.key(0, "docs:orders")) }, false},
		{"the configuration is gone", func(r *rig) { r.client.Del(ctx, r.key(0, "config")) }, false},
		{"a document is gone", func(r *rig) { r.client.HDel(ctx, r.key(0, "docs:orders"), "a") }, false},
		{"a document is too many", func(r *rig) { r.client.HSet(ctx, r.key(0, "docs:orders"), "x", "y") }, false},
		{"the index of inherit is gone", func(r *rig) { r.client.Del(ctx, r.key(0, "inherit:orders")) }, false},
		{"a member of own is gone", func(r *rig) { r.client.ZRem(ctx, r.key(0, "own:orders"), "b") }, false},
		{"its size is gone", func(r *rig) { r.client.HDel(ctx, r.key(0, "state"), "size:orders") }, false},
		{"the document is emptied", func(r *rig) { r.client.HSet(ctx, r.key(0, "docs:orders"), "a", "") }, true},
		{"the document is not one", func(r *rig) { r.client.HSet(ctx, r.key(0, "docs:orders"), "a", "\xffshort") }, true},
		{"the document is another", func(r *rig) {
			r.client.HDel(ctx, r.key(0, "docs:orders"), "a")
			r.client.HSet(ctx, r.key(0, "docs:orders"), "x", "y")
		}, true},
	}
	onBoth(t, func(t *testing.T, s server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.withDefault("orders", 0, 60)
			r.put("orders", "a", sink.Header{Ts: far, Etag: 1}, "{}")
			r.put("orders", "b", sink.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			tt.do(r)
			before := r.dump()
			p := r.store.Partition(0)
			err := p.Commit(ctx, r.progress(0), []sink.ConfigChange{{Collection: "other", Config: &sink.Config{}}}, []sink.CollectionChanges{
				{Collection: "fine", Changes: []sink.Change{r.change("fine", "c", &header, []byte("{}"))}},
				{Collection: "orders", Changes: []sink.Change{r.change("orders", "a", &header, nil)}},
			})
			wantErr(t, err, sink.ErrDamaged, tt.name+": commit")
			if diff := cmp.Diff(before, r.dump()); diff != "" {
				t.Errorf("%s: something of the commit was applied:\n%s", tt.name, diff)
			}
			if err := p.Verify(ctx, r.state[0].Version, []string{"fine", "orders"}); !tt.ok {
				wantErr(t, err, sink.ErrDamaged, tt.name+": verify")
			} else if err != nil {
				t.Errorf("%s: verify: %v", tt.name, err)
			}
		}
	})
}

// A document that was lost is no document that does not exist: nothing is decided,
// and so nothing said, by what is left.
func TestReadOfLostDocuments(t *testing.T) {
	for name, lose := range map[string]func(r *rig){
		"all":      func(r *rig) { r.client.Del(ctx, r.key(0, "docs:orders")) },
		"one":      func(r *rig) { r.client.HDel(ctx, r.key(0, "docs:orders"), "a") },
		"the size": func(r *rig) { r.client.HDel(ctx, r.key(0, "state"), "size:orders") },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, s server) {
				r := newRig(t, s, 1, far)
				r.put("orders", "a", sink.Header{Ts: far, Etag: 1}, "{}")
				r.put("orders", "b", sink.Header{Ts: far, Etag: 1}, "{}")
				lose(r)
				_, err := r.store.Partition(0).Read(ctx, r.state[0].Version, []sink.Want{
					{Collection: "fine", Headers: []string{"x"}}, {Collection: "orders", Headers: []string{"a"}},
				})
				wantErr(t, err, sink.ErrDamaged, "read")
			})
		})
	}
}

func TestInvalidNames(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 2, far)
		errs := map[string]error{}
		for _, c := range []string{"", "a.b", "a b", "ä", strings.Repeat("a", wire.MaxCollection+1)} {
			_, errs["get "+c] = r.reader.Get(ctx, c, "a")
			_, errs["many "+c] = r.reader.GetMany(ctx, c, []string{"a"})
			_, errs["list "+c] = r.reader.List(ctx, c, sink.ListOptions{})
			_, errs["count "+c] = r.reader.Count(ctx, c)
			_, errs["forecast "+c] = r.reader.Forecast(ctx, c, 0, 0)
			_, errs["config "+c] = r.reader.Config(ctx, c)
		}
		for _, id := range []string{"", "\xff", strings.Repeat("a", wire.MaxID+1)} {
			_, errs["id "+id] = r.reader.Get(ctx, "orders", id)
			_, errs["many ids "+id] = r.reader.GetMany(ctx, "orders", []string{"a", id})
		}
		for name, err := range errs {
			wantErr(t, err, wire.ErrInvalidName, name)
		}
		for _, opts := range []sink.ReaderOptions{{Prefix: "a.b"}, {Partitions: -1}, {Partitions: sink.MaxPartitions + 1}} {
			if _, err := sink.NewReader(s.client, opts); err == nil {
				t.Errorf("a reader was made with %+v", opts)
			}
		}
	})
}
