package sink_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// collections reads all pages, and counts them.
func (r *rig) collections(reader *sink.Reader, limit int) (all []wire.Collection, pages int) {
	r.T.Helper()
	opts := sink.CollectionsOptions{Limit: limit}
	for {
		page, err := reader.Collections(ctx, opts)
		if err != nil {
			r.T.Fatalf("collections: %v", err)
		}
		pages++
		all = append(all, page.Collections...)
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			return all, pages
		}
	}
}

// TestCollections: the list has every collection that is configured or has documents, in any
// shard, once and in order, with the same values as Config and Count. It has none of lapse's
// own.
//
// Goes red if the names come from one shard alone, if expired documents count as live, or
// if the list shows a name with a dot.
func TestCollections(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 5, far)
		if all, pages := r.collections(r.Reader, 10); len(all) != 0 || pages != 1 {
			t.Errorf("of nothing there is %+v, on %d pages", all, pages)
		}
		for i := range 7 { // documents alone, in some of the shards
			r.Put("docs-"+fmt.Sprint(i), "a", store.Header{Ts: far, Etag: 1}, "{}")
		}
		r.Configure("empty", &store.Config{Etag: 7, Lazy: true, History: ttlrules.History{}.With(0, 7, ttlrules.NoDefault)})
		r.Configure("none", &store.Config{Etag: 8, NoIndex: true})
		r.Write("none", r.Change("none", "x", &store.Header{Ts: 1, Etag: 1}, []byte("{}")))
		r.Configure("orders", &store.Config{Etag: 9, History: ttlrules.History{}.With(0, 9, 60)})
		for i := range 40 {
			ts := int64(far)
			if i%4 == 0 {
				ts -= 100_000
			}
			r.Put("orders", fmt.Sprint("i", i), store.Header{Ts: ts, Etag: 1}, "{}")
			r.Put("orders", fmt.Sprint("o", i), store.Header{Ts: ts, Etag: 1, TTL: 70}, "{}")
		}
		r.Put("gone", "a", store.Header{Ts: far, Etag: 1}, "{}")
		r.Write("gone", r.Change("gone", "a", nil, nil))
		r.Commit(3, nil, store.CollectionChanges{Collection: "orders.17",
			Changes: []store.Change{{ID: "a", New: &store.Header{Ts: far, Etag: 1}, Body: []byte("{}")}}})

		var want []wire.Collection
		for _, name := range []string{"docs-0", "docs-1", "docs-2", "docs-3", "docs-4", "docs-5", "docs-6", "empty", "none",
			"orders"} {
			config, err := r.Reader.Config(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			count, err := r.Reader.Count(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, wire.Collection{Name: name, DefaultTTL: config.DefaultTTL, IndexingMode: config.IndexingMode,
				Etag: config.Etag, Live: count.Live, Expired: count.Expired})
		}
		if orders := want[9]; orders.Live != 60 || orders.Expired != 20 || orders.Etag != 9 ||
			want[7].IndexingMode != wire.Lazy {
			t.Fatalf("the other reads say %+v", want)
		}
		for _, limit := range []int{1, 3, 9, 10, 11, 1000} {
			all, pages := r.collections(r.NewReader(), limit)
			if diff := cmp.Diff(want, all); diff != "" || pages != (len(want)+limit-1)/limit {
				t.Errorf("limit %d: %d pages, (-want +got):\n%s", limit, pages, diff)
			}
		}
		if _, err := r.Reader.Count(ctx, "orders.17"); err == nil {
			t.Error("a name with a dot can be counted")
		}
	})
}

// TestCollectionsMeanwhile: a collection that exists from the first page to the last is in one of
// them, whatever other collections come and go, and whichever reader answers.
func TestCollectionsMeanwhile(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 3, far)
		name := func(i int) string { return fmt.Sprintf("c%03d", i) }
		for i := 0; i < 60; i += 2 {
			r.Put(name(i), "a", store.Header{Ts: far, Etag: 1}, "{}")
		}
		readers := []*sink.Reader{r.Reader, r.NewReader()}
		if _, err := readers[1].Collections(ctx, sink.CollectionsOptions{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		r.Put("c001", "a", store.Header{Ts: far, Etag: 1}, "{}") // what the second reader has kept lacks it
		opts := sink.CollectionsOptions{Limit: 1}
		times := map[string]int{}
		for i := 0; ; i++ {
			page, err := readers[i%2].Collections(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page.Collections {
				times[c.Name]++
			}
			if opts.Continuation = page.Continuation; opts.Continuation == "" {
				break
			}
			r.Put(name(2*i+3), "a", store.Header{Ts: far, Etag: 1}, "{}")
			if i >= 30 {
				r.Write(name(2*i+3), r.Change(name(2*i+3), "a", nil, nil))
			}
		}
		for i := 0; i < 60; i += 2 {
			if times[name(i)] != 1 {
				t.Errorf("%s is in %d pages", name(i), times[name(i)])
			}
		}
		if times["c001"] != 1 {
			t.Errorf("c001 is in %d pages", times["c001"])
		}
		for c, n := range times {
			if n != 1 {
				t.Errorf("%s is in %d pages", c, n)
			}
		}
	})
}

// TestG5_CollectionsConfiguredMeanwhile: a collection gets another configuration between the two
// questions about it. It is listed with that one, and counted by it.
//
// Goes red if it is counted by the configuration before.
func TestG5_CollectionsConfiguredMeanwhile(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		before := ttlrules.History{}.With(0, 7, ttlrules.NoDefault)
		r.Configure("orders", &store.Config{Etag: 7, History: before})
		for i := range 3 {
			r.Put("orders", fmt.Sprint(i), store.Header{Ts: far - 100_000, Etag: 1}, "{}")
		}
		r.Put("orders", "young", store.Header{Ts: far, Etag: 1}, "{}")
		r.collections(r.Reader, 10)     // the scripts are known to the server
		reader, l := r.lateReader(t, 3) // after the names in the state, and those of the configurations
		listed := make(chan []wire.Collection, 1)
		go func() { all, _ := r.collections(reader, 10); listed <- all }()
		<-l.arrived
		r.Configure("orders", &store.Config{Etag: 9, History: before.With(far, 9, 60)})
		close(l.release)
		want := []wire.Collection{{Name: "orders", DefaultTTL: new(int32(60)), IndexingMode: wire.Consistent, Etag: 9,
			Live: 1, Expired: 3}}
		if diff := cmp.Diff(want, <-listed); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n := l.replies.Load(); n != 5 {
			t.Errorf("Redis was asked %d times, want 5: else the configuration has not come between two questions", n)
		}
	})
}

// TestCollectionsSendLittle: Redis sends the names of all collections only for the first page.
//
// Goes red if the reader reads the names for each page.
func TestCollectionsSendLittle(t *testing.T) {
	const n, limit, shards = 3000, 100, 4
	server := redistest.Start(t)
	client := server.Client
	r := newRig(t, server, shards, far)
	long := strings.Repeat("x", 100)
	for p := range shards {
		var changes []store.CollectionChanges
		for i := range n {
			changes = append(changes, store.CollectionChanges{Collection: fmt.Sprintf("%s-%04d", long, i),
				Changes: []store.Change{
					{ID: fmt.Sprint("p", p), New: &store.Header{Ts: far, Etag: 1}, Body: []byte("{}")}}})
		}
		for some := range slices.Chunk(changes, 100) {
			r.Commit(p, nil, some...)
		}
	}
	before := infoNumber(t, client, "stats", "total_net_output_bytes")
	all, pages := r.collections(r.Reader, limit)
	sent := infoNumber(t, client, "stats", "total_net_output_bytes") - before
	if len(all) != n || pages != n/limit {
		t.Fatalf("%d collections on %d pages", len(all), pages)
	}
	for i, c := range all {
		if want := fmt.Sprintf("%s-%04d", long, i); c.Name != want || c.Live != shards {
			t.Fatalf("collection %d is %+v", i, c)
		}
	}
	names := int64(n * shards * (len(long) + 6))
	if most := 3 * names; sent > most {
		t.Errorf("Redis sent %d bytes for %d bytes of names: allowed are %d", sent, names, most)
	}
	t.Logf("Redis sent %d bytes for %d bytes of names", sent, names)
}

func TestCollectionsInvalid(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for _, bad := range []sink.CollectionsOptions{{Limit: -1}, {Limit: wire.MaxListLimit + 1}, {Continuation: "x"},
			{Continuation: encode("{}")},
			{Continuation: encode(`{"a":"x"}`)}, {Continuation: encode(`{"a":"x.y","t":1}`)},
			{Continuation: encode(`{"a":1,"t":1}`)}} {
			_, err := r.Reader.Collections(ctx, bad)
			wantErr(t, err, sink.ErrInvalidRequest, fmt.Sprintf("%+v", bad))
		}
		// Names that one has not seen yet are read anew, whatever the continuation says.
		r.Put("b", "x", store.Header{Ts: far, Etag: 1}, "{}")
		page, err := r.Reader.Collections(ctx, sink.CollectionsOptions{Continuation: encode(`{"a":"a","t":9999999999999}`)})
		if err != nil || len(page.Collections) != 1 {
			t.Errorf("%+v, %v", page, err)
		}
	})
}
