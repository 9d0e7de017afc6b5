package sink_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestForeign replaces each of a shard's keys with a string: every read that uses the key
// returns ErrForeign, and writes nothing.
func TestForeign(t *testing.T) {
	type call struct {
		name string
		do   func(r *rig) error
	}
	get := call{"get", func(r *rig) error { _, err := r.Reader.Get(ctx, "orders", "a"); return err }}
	list := call{"list", func(r *rig) error { _, err := r.Reader.List(ctx, "orders", sink.ListOptions{}); return err }}
	count := call{"count", func(r *rig) error { _, err := r.Reader.Count(ctx, "orders"); return err }}
	collections := call{"collections", func(r *rig) error {
		_, err := r.Reader.Collections(ctx,
			sink.CollectionsOptions{})
		return err
	}}
	forecast := call{"forecast", func(r *rig) error {
		_, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Buckets: 2})
		return err
	}}
	tests := []struct {
		kind  string
		calls []call
	}{
		{"state", []call{get, list, count, forecast, collections}},
		{"config", []call{get, list, count, forecast, collections}},
		{"docs:orders", []call{get, list, count, forecast, collections}},
		{"inherit:orders", []call{list, count, forecast, collections}},
		{"own:orders", []call{list, count, forecast, collections}},
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
				wantErr(t, c.do(r), sink.ErrForeign, c.name+" with a string as "+tt.kind)
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
		{"config", "orders", "{"},
		{"config", "orders", `{"epochs":[[0,1,-2]]}`},
		{"config", "orders", `{"epochs":[[5,1,1],[4,2,2]]}`},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			s.Client.HSet(ctx, r.Key(0, tt.kind), tt.field, tt.value)
			_, err := r.Reader.Get(ctx, "orders", "a")
			wantErr(t, err, sink.ErrForeign, "get with "+tt.field+" "+tt.value)
		}
	})
}

// TestForeignMaking changes what a shard says about the making of its indexes to a value that lapse does not store:
// before a query, or after one of its scripts. The query returns ErrForeign, whichever script finds it.
func TestForeignMaking(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.put(map[string]string{"1": `{"a":1}`})
		r.declare("/a")
		k := layout.NewKeys(r.Prefix, 0, 1)
		const scripts = 3 // the configuration, the indexes, the entries
		for at := range scripts + 1 {
			r.making(0, layout.Making{})
			done := 0
			change := func() {
				if done == at {
					s.Client.HSet(ctx, k.State(), layout.MakingPrefix+"orders", `{"slots":[-1]}`)
				}
				done++
			}
			change()
			_, err := r.readerMeanwhile(t, change).Query(ctx, "orders", sink.QueryOptions{Where: r.where("a=1")})
			if at < scripts {
				wantErr(t, err, sink.ErrForeign, fmt.Sprintf("changed after %d scripts", at))
			} else if err != nil || done != scripts+1 {
				t.Errorf("changed behind the query, which has %d scripts: %v", done-1, err)
			}
		}
	})
}

// TestUnavailable: if a shard lacks something, reads that need it return ErrUnavailable, and
// never ErrNotFound.
func TestUnavailable(t *testing.T) {
	reads := map[string]func(r *sink.Reader) error{
		"get":      func(r *sink.Reader) error { _, err := r.Get(ctx, "orders", "a"); return err },
		"get many": func(r *sink.Reader) error { _, err := r.GetMany(ctx, "orders", []string{"a", "b"}); return err },
		"list":     func(r *sink.Reader) error { _, err := r.List(ctx, "orders", sink.ListOptions{}); return err },
		"count":    func(r *sink.Reader) error { _, err := r.Count(ctx, "orders"); return err },
		"forecast": func(r *sink.Reader) error {
			_, err := r.Forecast(ctx, "orders", sink.ForecastOptions{Buckets: 1})
			return err
		},
		"config": func(r *sink.Reader) error { _, err := r.Config(ctx, "orders"); return err },
		"list by deadline": func(r *sink.Reader) error {
			_, err := r.List(ctx, "orders", sink.ListOptions{Order: wire.ByDeadline})
			return err
		},
		"collections": func(r *sink.Reader) error {
			_, err := r.Collections(ctx, sink.CollectionsOptions{})
			return err
		},
	}
	all := slices.Sorted(maps.Keys(reads))
	counts := []string{"count", "forecast", "collections", "list", "list by deadline"}
	tests := []struct {
		name  string
		after func(t *testing.T, r *rig)
		reads []string
	}{
		{"never initialised", func(_ *testing.T, r *rig) { r.Client.FlushAll(ctx) }, all},
		{"rebuilding", func(t *testing.T, r *rig) {
			if err := r.Shards[0].Take(ctx, store.State{Version: r.At[0].Version}, "other", 1000); err != nil {
				t.Fatal(err)
			}
		}, all},
		{"refused", func(_ *testing.T, r *rig) { r.Client.HSet(ctx, r.Key(0, "state"), "rebuild", "refused") }, all},
		{"gone back to an older state", func(t *testing.T, r *rig) {
			if _, err := r.Reader.Get(ctx, "orders", "a"); err != nil {
				t.Fatal(err)
			}
			r.Client.HSet(ctx, r.Key(0, "state"), "offset", 0)
		}, all},
		{"the documents are gone", func(_ *testing.T, r *rig) { r.Client.Del(ctx, r.Key(0, "docs:orders")) }, all},
		{"the configuration is gone", func(_ *testing.T, r *rig) { r.Client.Del(ctx, r.Key(0, "config")) }, all},
		{"a document is gone", func(_ *testing.T, r *rig) { r.Client.HDel(ctx, r.Key(0, "docs:orders"), "b") }, all},
		{"a document is too many", func(_ *testing.T, r *rig) { r.Client.HSet(ctx, r.Key(0, "docs:orders"), "x", "y") }, all},
		{"an index is gone", func(_ *testing.T, r *rig) { r.Client.Del(ctx, r.Key(0, "inherit:orders")) }, counts},
		{"a member of an index is gone", func(_ *testing.T, r *rig) { r.Client.ZRem(ctx, r.Key(0, "own:orders"), "b") },
			counts},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range tests {
			r := newRig(t, s, 1, far)
			r.WithDefault("orders", 0, 60)
			r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
			r.Put("orders", "b", store.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			for name, read := range reads {
				if err := read(r.Reader); err != nil {
					t.Errorf("%s before: %v", name, err)
				}
			}
			tt.after(t, r)
			for _, name := range all {
				if err := reads[name](r.Reader); slices.Contains(tt.reads, name) {
					wantErr(t, err, sink.ErrUnavailable, tt.name+": "+name)
				} else if err != nil {
					t.Errorf("%s: %s: %v", tt.name, name, err)
				}
			}
		}
	})
}

// TestInvalidNames: a Reader refuses malformed collections and ids, and options that are
// out of range.
func TestInvalidNames(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		errs := map[string]error{}
		for _, c := range []string{"", "a.b", "a b", "ä", strings.Repeat("a", wire.MaxCollection+1)} {
			_, errs["get "+c] = r.Reader.Get(ctx, c, "a")
			_, errs["many "+c] = r.Reader.GetMany(ctx, c, []string{"a"})
			_, errs["list "+c] = r.Reader.List(ctx, c, sink.ListOptions{})
			_, errs["count "+c] = r.Reader.Count(ctx, c)
			_, errs["forecast "+c] = r.Reader.Forecast(ctx, c, sink.ForecastOptions{})
			_, errs["config "+c] = r.Reader.Config(ctx, c)
		}
		for _, id := range []string{"", "\xff", strings.Repeat("a", wire.MaxID+1)} {
			_, errs["id "+id] = r.Reader.Get(ctx, "orders", id)
			_, errs["many ids "+id] = r.Reader.GetMany(ctx, "orders", []string{"a", id})
		}
		for name, err := range errs {
			wantErr(t, err, wire.ErrInvalidName, name)
		}
		for _, opts := range []sink.ReaderOptions{{Prefix: "a.b"}, {Shards: -1}, {Shards: wire.MaxShards + 1}} {
			if _, err := sink.NewReader(s.Client, opts); err == nil {
				t.Errorf("a reader was made with %+v", opts)
			}
		}
	})
}
