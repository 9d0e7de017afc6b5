package sink_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// bodyValues are what documents have at a pointer. The last are in no index.
var bodyValues = []string{`null`, `true`, `false`, `0`, `1`, `2.5`, `-3`, `10`, `""`, `"a"`, `"ab"`, `"b"`, `"\u0000"`,
	`[]`, `[1,"a"]`, `["b","a","b"]`, `[2.5,10,null]`, `{"x":1}`, `[[1]]`, `[{"x":1}]`}

// randomBody has values at some of a, b and c.
func randomBody(t *rapid.T) string {
	var members []string
	for _, name := range []string{"a", "b", "c"} {
		if rapid.IntRange(0, 5).Draw(t, "has "+name) > 0 {
			members = append(members, fmt.Sprintf("%q:%s", name, rapid.SampledFrom(bodyValues).Draw(t, name)))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// randomWhere draws up to three conditions.
func (r *rig) randomWhere(t *rapid.T) []entries.Condition {
	texts := map[string][]byte{}
	for _, pointer := range []string{"/a", "/b", "/c"} {
		if rapid.Bool().Draw(t, "condition on "+pointer) {
			texts[pointer] = []byte(rapid.SampledFrom([]string{`"a"`, `1`, `null`, `{"in":[1,"a",null,2.5,10,"b",true]}`,
				`{"in":[1,"a",null,2.5]}`, `{"in":["b","ab","c"]}`, `{"gt":0}`,
				`{"gte":1,"lt":10}`, `{"gte":"a"}`, `{"lte":"a"}`, `{"lt":2.5}`, `{"prefix":"a"}`, `{"prefix":""}`,
				`{"gt":5,"lt":4}`}).Draw(t, pointer))
		}
	}
	where, err := entries.ParseWhere(texts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return where
}

// randomQuery draws a query that an index serves, or that may scan.
func (r *rig) randomQuery(t *rapid.T, indexes []string) sink.QueryOptions {
	indexed := func(c entries.Condition) bool { return slices.Contains(indexes, c.Pointer) }
	opts := sink.QueryOptions{Limit: rapid.SampledFrom([]int{1, 2, 7, 1000}).Draw(t, "limit"),
		MaxBytes: rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "bytes"),
		Where:    r.randomWhere(t)}
	orders := []entries.Order{{ByDeadline: true}}
	if len(opts.Where) > 0 {
		orders = append(orders, entries.Order{}, entries.Order{})
		opts.Scan = !slices.ContainsFunc(opts.Where, indexed)
	}
	for _, pointer := range indexes {
		orders = append(orders, entries.Order{Pointer: pointer}, entries.Order{Pointer: pointer, Descending: true})
	}
	if slices.ContainsFunc(opts.Where, func(c entries.Condition) bool { return c.In != nil && indexed(c) }) {
		orders = append(orders, entries.Order{ByID: true}, entries.Order{ByID: true})
	}
	opts.Order = rapid.SampledFrom(orders).Draw(t, "order")
	if opts.Order.ByDeadline && rapid.Bool().Draw(t, "limited") {
		opts.Until = new(wire.Time)
		*opts.Until = wire.Time(far + 1000*rapid.Int64Range(0, 20).Draw(t, "until"))
	}
	return opts
}

// randomOrders writes documents with random bodies and TTLs under random indexes.
func (r *rig) randomOrders(t *rapid.T, n int) (indexes []string) {
	r.randomDefault(t)
	for _, pointer := range []string{"/c", "/a", "/b"} {
		if rapid.IntRange(0, 3).Draw(t, "index "+pointer) > 0 {
			indexes = append(indexes, pointer)
		}
	}
	var changes []store.Change
	for i := range n {
		h := store.Header{Ts: far - 1000*rapid.Int64Range(0, 8).Draw(t, "age"), Etag: uint64(i + 1),
			TTL: ttlrules.TTL(rapid.SampledFrom([]int{0, 0, -1, 2, 5, 9, 12}).Draw(t, "ttl"))}
		id := fmt.Sprintf("s%s%d", rapid.SampledFrom([]string{"", "a", "é", "\x00", "~"}).Draw(t, "name"), i)
		changes = append(changes, r.Change("orders", id, &h, []byte(randomBody(t))))
	}
	r.Write("orders", changes...)
	r.declare(indexes...)
	return indexes
}

// TestG2_Query: a query has each live document exactly once for which all conditions hold, in its order, and no other,
// whichever index serves it, with arrays, over several shards. A count has as many.
//
// It fails if a document with an array is returned at each of its entries, or a page goes on at another place.
func TestG2_Query(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			r := newRig(t, s, rapid.IntRange(1, 4).Draw(t, "shards"), far)
			indexes := r.randomOrders(t, rapid.SampledFrom([]int{0, 30, 60}).Draw(t, "documents"))
			for range 6 {
				r.wantQuery(r.randomQuery(t, indexes), far)
			}
		})
	})
}

// TestG2_QueryMeanwhile: a document that nobody changes is on exactly one page, whatever others do between the pages.
// What is returned was live and selected at that moment.
func TestG2_QueryMeanwhile(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			r := newRig(t, s, rapid.IntRange(1, 3).Draw(t, "shards"), far)
			indexes := r.randomOrders(t, 20)
			now := int64(far)
			opts := r.randomQuery(t, indexes)
			before := r.selected(opts, now)
			times := map[string]int{}
			r.queryPages(r.Reader, opts, func(n int, page sink.QueryPage) {
				selected := r.selected(opts, now)
				for _, d := range page.Documents {
					if times[d.ID]++; !slices.Contains(selected, d.ID) {
						t.Errorf("%s: %s is returned, and is not live or not selected", show(opts), d.ID)
					}
				}
				if n > 5 {
					return
				}
				now += rapid.Int64Range(0, 1500).Draw(t, "passes")
				for p := range r.N {
					r.At[p].Watermark = now
					r.Commit(p, nil)
				}
				var changes []store.Change
				for i := range rapid.IntRange(0, 5).Draw(t, "changes") {
					h := &store.Header{Ts: now, Etag: uint64(1000 + 10*n + i),
						TTL: ttlrules.TTL(rapid.SampledFrom([]int{0, -1, 5}).Draw(t, "ttl"))}
					changes = append(changes, r.Change("orders", fmt.Sprintf("o%d-%d", rapid.IntRange(0, 9).Draw(t, "id"), i), h,
						[]byte(randomBody(t))))
				}
				r.Write("orders", changes...)
				r.makeIndexes()
			})
			after := r.selected(opts, now)
			for _, id := range before {
				if id[0] == 's' && slices.Contains(after, id) && times[id] != 1 || times[id] > 1 && id[0] == 's' {
					t.Errorf("%s: %s is returned %d times", show(opts), id, times[id])
				}
			}
		})
	})
}

// TestQueryBounds: a page examines at most 1,000 entries, and its continuation goes on behind them, in each of the ways
// to make a page, also if another one makes the next.
func TestQueryBounds(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.WithDefault("orders", 0, 1000)
		bodies := map[string]string{}
		for i := range 2600 {
			bodies[fmt.Sprintf("%04d", i*7919%10_000)] = fmt.Sprintf(`{"kind":%d,"n":%d,"rare":%d,"every":[1,2]}`, i%2, i,
				i%1300)
		}
		r.put(bodies)
		orders := []string{"", "/n", "-/n", "deadline", "id"}
		if onMiniredis(t) {
			orders = []string{"", "-/n"}
		}
		for i, indexes := range [][]string{{"/kind", "/n", "/rare", "/every"}, {"/kind", "/n"}} {
			if i > 0 && onMiniredis(t) {
				continue
			}
			r.declare(indexes...)
			for _, texts := range [][]string{{"kind=1", "rare=7"}, {"kind=0", "rare=7"}, {"kind=0,1", "rare<100"},
				{"n>=5", "kind=1"}} {
				for _, order := range orders {
					by, err := entries.ParseOrder(order)
					if err != nil {
						t.Fatal(err)
					}
					opts := sink.QueryOptions{Limit: 100, Where: r.where(texts...), Order: by}
					r.wantQuery(opts, far)
				}
			}
			r.wantQuery(sink.QueryOptions{Limit: 1000, Where: r.where("rare=7"), Scan: true}, far)
		}
		opts := sink.QueryOptions{Limit: 40, Where: r.where("rare<600", "kind=1"), Order: entries.Order{Pointer: "/n"}}
		want := r.selected(opts, far)
		var got []string
		r.queryPages(r.Reader, opts, func(n int, page sink.QueryPage) {
			for _, d := range page.Documents {
				got = append(got, d.ID)
			}
			if n == 1 { // then few documents are left of the kind, so that they are sorted
				var changes []store.Change
				for id, body := range bodies {
					if strings.Contains(body, `"kind":1`) && !slices.Contains(want, id) {
						changes = append(changes, r.Change("orders", id, nil, nil))
					}
				}
				r.Write("orders", changes...)
				r.makeIndexes()
			}
		})
		if !slices.Equal(got, want) {
			t.Errorf("found %d documents, want %d", len(got), len(want))
		}
	})
}

// TestQueryRefused: a query that no index serves, and options that do not fit, are refused with a sentence.
func TestQueryRefused(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.WithDefault("orders", 0, 1000)
		r.put(map[string]string{"1": `{"a":1,"b":2}`, "2": `{"a":1}`, "3": `{"a":1}`})
		r.declare("/a", "/c d")
		within, until := time.Second, wire.Time(far)
		pointer, id, deadline := entries.Order{Pointer: "/b"}, entries.Order{ByID: true}, entries.Order{ByDeadline: true}
		first, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Limit: 1, Where: r.where("a=1")})
		if err != nil || first.Continuation == "" {
			t.Fatalf("the first page: %+v, %v", first, err)
		}
		next := first.Continuation
		for _, tt := range []struct {
			opts sink.QueryOptions
			want error
			text string
		}{
			{sink.QueryOptions{Where: r.where("b=1")}, sink.ErrNoIndex, "lapse config orders --index /a --index '/c d' " +
				"--index /b"},
			{sink.QueryOptions{Where: r.where("a=1"), Order: pointer}, sink.ErrNoIndex, "--index /b"},
			{sink.QueryOptions{Where: r.where("a=1"), Order: pointer, Scan: true}, sink.ErrNoIndex, "--index /b"},
			{sink.QueryOptions{Where: r.where("b=1"), Order: id, Scan: true}, sink.ErrNoIndex, "--index /b"},
			{sink.QueryOptions{Where: r.where("a>1"), Order: id}, sink.ErrInvalidRequest, "is equal to one"},
			{sink.QueryOptions{}, sink.ErrInvalidRequest, "no condition and no order"},
			{sink.QueryOptions{Scan: true}, sink.ErrInvalidRequest, "no condition and no order"},
			{sink.QueryOptions{Where: r.where("a=1"), Within: within}, sink.ErrInvalidRequest, "deadline"},
			{sink.QueryOptions{Order: deadline, Within: within, Until: &until}, sink.ErrInvalidRequest, "use one of them"},
			{sink.QueryOptions{Where: []entries.Condition{{Pointer: "/a"}}}, sink.ErrInvalidRequest, "empty object"},
			{sink.QueryOptions{Where: append(r.where("a=1"), r.where("a=2")...)}, sink.ErrInvalidRequest, "two conditions"},
			{sink.QueryOptions{Where: r.where("a=1"), Limit: 1001}, sink.ErrInvalidRequest, "limit"},
			{sink.QueryOptions{Continuation: next, Where: r.where("a=2")}, sink.ErrInvalidRequest, "another query"},
			{sink.QueryOptions{Continuation: next, Order: deadline}, sink.ErrInvalidRequest, "another query"},
			{sink.QueryOptions{Continuation: next, Count: true}, sink.ErrInvalidRequest, "another query"},
			{sink.QueryOptions{Continuation: next, Scan: true}, sink.ErrInvalidRequest, "another query"},
			{sink.QueryOptions{Continuation: next, Within: within}, sink.ErrInvalidRequest, "deadline"},
		} {
			_, err := r.Reader.Query(ctx, "orders", tt.opts)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%+v: %v, want %q", tt.opts, err, tt.text)
			}
		}
		for _, opts := range []sink.QueryOptions{{Continuation: next}, {Continuation: next, Where: r.where("a=1")}} {
			if page, err := r.Reader.Query(ctx, "orders", opts); err != nil || len(page.Documents) != 2 {
				t.Errorf("the second page: %+v, %v", page, err)
			}
		}
		r.declare("/b", "/c d")
		if _, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Continuation: next}); !errors.Is(err, sink.ErrNoIndex) {
			t.Errorf("the index went between the pages: %v", err)
		}
		r.declare("/b", "/c d", "/a") // in another slot
		if page, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Continuation: next}); err != nil ||
			len(page.Documents) != 2 {
			t.Errorf("the index went and came between the pages: %+v, %v", page, err)
		}
	})
}

// TestQueryContinuation: Query refuses a continuation that it has not returned.
func TestQueryContinuation(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.WithDefault("orders", 0, 1000)
		r.put(map[string]string{"1": `{"a":1}`})
		r.declare("/a")
		list, err := r.Reader.List(ctx, "orders", sink.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
		member := text(entries.Member(entries.Value{Kind: entries.Number, Number: 1}, "1"))
		left := text(entries.Member(entries.Value{}, "1"))
		for _, bad := range []string{
			"x", "%", list.Continuation, strings.Repeat("A", 200_000), text("null"), text("{}"), text(`{"o":"/a"}`),
			text(`{"o":"/a","m":"` + left + `"}`),
			text(`{"o":"/a","m":"AwAA"}`), text(`{"o":"/a","m":"` + member + `","i":"1"}`), text(`{"o":"/a","d":"/a","m":"` +
				member + `"}`),
			text(`{"w":{"/a":1},"m":"` + member + `"}`), text(`{"w":{"/a":1},"d":"/b","m":"` + member + `"}`),
			text(`{"w":{"/a":{}},"d":"/a","m":"` + member + `"}`),
			text(`{"w":{"/a":1},"l":{"p":0,"i":1}}`), text(`{"w":{"/a":1},"s":true,"l":{"p":2,"i":1}}`),
			text(`{"w":{"/a":1},"s":true,"l":{"p":1,"i":1,"f":"x"}}`),
			text(`{"o":"deadline"}`), text(`{"o":"deadline","t":{"u":-1,"w":-1}}`), text(`{"o":"id","w":{"/a":1}}`),
			text(`{"o":"id","w":{"/a":1},"t":{}}`),
			text(`{"o":"up","t":{}}`), text(`{"w":{"a":1},"d":"a","m":"` + member + `"}`),
		} {
			if _, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Continuation: bad}); !errors.Is(err,
				sink.ErrInvalidRequest) || errors.Is(err, sink.ErrNoIndex) {
				t.Errorf("continuation %.60s: %v", bad, err)
			}
		}
		if _, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Continuation: text(`{"w":{"/a":1},"d":"/a","m":"` +
			member + `"}`)}); err != nil {
			t.Errorf("a good continuation: %v", err)
		}
	})
}

// TestQueryIndexState: an index that is being made serves no query, and one that has lost entries neither. A count says
// so.
func TestQueryIndexState(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.put(map[string]string{"1": `{"a":1,"b":{}}`, "2": `{"a":[1,2],"b":"x"}`, "3": `{"b":2}`})
		r.declare("/a", "/b")
		r.making(1, layout.Making{Slots: []int{0}, Index: layout.ByInherit, Made: 0})
		made := func() int64 {
			return r.Client.HLen(ctx, layout.NewKeys(r.Prefix, 0, 2).Docs("orders")).Val()
		}
		_, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Where: r.where("a=1")})
		if want := fmt.Sprintf("%d of 3 documents", made()); !errors.Is(err, sink.ErrIndexMade) ||
			!errors.Is(err, sink.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("while the index is made: %v, want %q", err, want)
		}
		_, err = r.Reader.Query(ctx, "orders", sink.QueryOptions{Order: entries.Order{Pointer: "/a"}, Where: r.where("b=x")})
		wantErr(t, err, sink.ErrIndexMade, "in the order of an index that is made")
		r.wantQuery(sink.QueryOptions{Where: r.where("a=1", "b=x")}, far)
		r.wantQuery(sink.QueryOptions{Where: r.where("a=1"), Scan: true}, far)
		count, err := r.Reader.Count(ctx, "orders")
		if err != nil || count.Live != 3 || len(count.Indexes) != 2 || count.Indexes[0].Making == nil ||
			*count.Indexes[0].Making != (wire.IndexMaking{Made: made(), Of: 3}) {
			t.Errorf("count: %+v, %v", count, err)
		}
		r.making(1, layout.Making{})
		r.wantQuery(sink.QueryOptions{Where: r.where("a=1")}, far)
		count, err = r.Reader.Count(ctx, "orders")
		if want := []wire.IndexCount{{Pointer: "/a", Entries: 3}, {Pointer: "/b", Entries: 2, NotIndexed: 1}}; err != nil ||
			!slices.Equal(count.Indexes, want) {
			t.Errorf("count: %+v, %v, want %+v", count, err, want)
		}
		p := wire.ShardOf(2, "orders", "2")
		k := layout.NewKeys(r.Prefix, p, 2)
		if err := r.Client.ZRem(ctx, k.By(0, "orders"), entries.Member(entries.Value{Kind: entries.Number, Number: 2},
			"2")).Err(); err != nil {
			t.Fatal(err)
		}
		_, err = r.Reader.Query(ctx, "orders", sink.QueryOptions{Where: r.where("a=1")})
		if wantErr(t, err, sink.ErrUnavailable, "an index with a lost entry"); errors.Is(err, sink.ErrIndexMade) {
			t.Errorf("an index with a lost entry: %v", err)
		}
	})
}

// TestQueryDear: a query is dear if it may examine more than it returns, also by its continuation.
func TestQueryDear(t *testing.T) {
	r := newRig(t, redistest.StartMini(t), 1, far)
	r.put(map[string]string{"1": `{"a":1,"b":1}`, "2": `{"a":1,"b":1}`})
	r.declare("/a")
	for _, tt := range []struct {
		opts sink.QueryOptions
		want bool
	}{
		{sink.QueryOptions{Where: r.where("a=1")}, false},
		{sink.QueryOptions{Where: r.where("a=1"), Order: entries.Order{Pointer: "/a"}}, false},
		{sink.QueryOptions{Order: entries.Order{Pointer: "/a"}}, false},
		{sink.QueryOptions{Order: entries.Order{ByDeadline: true}}, false},
		{sink.QueryOptions{Where: r.where("a=1"), Order: entries.Order{ByDeadline: true}}, true},
		{sink.QueryOptions{Where: r.where("a=1"), Order: entries.Order{Pointer: "/b"}}, true},
		{sink.QueryOptions{Where: r.where("a=1", "b=1")}, true},
		{sink.QueryOptions{Where: r.where("a=1"), Count: true}, true},
		{sink.QueryOptions{Where: r.where("a=1"), Scan: true}, true},
	} {
		if got := tt.opts.Dear(); got != tt.want {
			t.Errorf("%s is dear: %t", show(tt.opts), got)
		}
	}
	page, err := r.Reader.Query(ctx, "orders", sink.QueryOptions{Limit: 1, Where: r.where("a=1", "b=1")})
	if next := (sink.QueryOptions{Continuation: page.Continuation}); err != nil || page.Continuation == "" ||
		!next.Dear() {
		t.Errorf("the second page of a dear query is not dear: %+v, %v", page, err)
	}
}
