package store_test

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG1_FencedCommit: a commit takes effect once, and only on the version from which it was
// computed. A refused commit leaves no trace (P1, P2).
//
// Goes red if commit.lua writes anything before it compares the version, or does not compare
// it.
func TestG1_FencedCommit(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		p := r.Shards[0]
		h := store.Header{Ts: far, Etag: 1}
		config := []store.ConfigChange{{Collection: "orders", Config: &store.Config{NoIndex: true}}}
		changes := []store.CollectionChanges{{Collection: "orders",
			Changes: []store.Change{{ID: "a", New: &h, Body: []byte("{}")}}}}
		first := r.Next(0)
		r.Commit(0, config, changes...)
		before := r.Dump()
		other := h
		other.Etag = 2
		changes[0].Changes[0].New = &other
		wantErr(t, p.Commit(ctx, first, nil, changes), store.ErrFenced, "the same commit again")
		stale := r.Next(0)
		stale.Version = "v99"
		wantErr(t, p.Commit(ctx, stale, []store.ConfigChange{{Collection: "orders"}}, changes), store.ErrFenced,
			"a commit on a version that is to come")
		wantErr(t, p.Commit(ctx, stale, nil, []store.CollectionChanges{{Collection: "orders", Drop: store.DropAll}}),
			store.ErrFenced, "a drop")
		_, err := p.ReadDocuments(ctx, "v0", []store.Want{{Collection: "orders", Whole: []string{"a"}}})
		wantErr(t, err, store.ErrFenced, "read")
		_, err = p.Due(ctx, "v0", nil, 1, 1, true)
		wantErr(t, err, store.ErrFenced, "due")
		if diff := cmp.Diff(before, r.Dump()); diff != "" {
			t.Errorf("what was refused has left a trace:\n%s", diff)
		}
		missing := store.New(s.Client, "none", 0, 1)
		wantErr(t, missing.Commit(ctx, first, nil, changes), store.ErrFenced, "a commit to what is not there")
		wantErr(t, missing.Verify(ctx, "v0", nil), store.ErrFenced, "a verification of what is not there")
	})
}

// stored reads a document and its scores in the two indexes: "-" if it is not there.
func (r *rig) stored(p int, collection, id string) (doc *store.Stored, inherit, own string) {
	r.T.Helper()
	found, err := r.Shards[p].ReadDocuments(ctx, r.At[p].Version,
		[]store.Want{{Collection: collection, Whole: []string{id}}})
	if err != nil {
		r.T.Fatalf("read: %v", err)
	}
	score := func(kind string) string {
		f, err := r.Client.ZScore(ctx, r.Key(p, kind+":"+collection), id).Result()
		if err == redis.Nil {
			return "-"
		}
		if err != nil {
			r.T.Fatalf("score: %v", err)
		}
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return found[0][0], score("inherit"), score("own")
}

// TestChanges takes one document through every change of its index, by writes and by renewals of
// its header, and checks what is stored after each.
func TestChanges(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const never = "9007199254740991" // the score of what never expires
	steps := []struct {
		name    string
		ttl     ttlrules.TTL
		trace   string
		body    string // "" keeps it
		delete  bool
		inherit string
		own     string
	}{
		{name: "created, inherits", body: `{"v":1}`, inherit: "1000"},
		{name: "renewed", inherit: "1001"},
		{name: "own by a renewal", ttl: 7, trace: trace, own: "8002"},
		{name: "own, rewritten", ttl: 8, body: `{"v": 2}`, own: "9003"},
		{name: "never by a write", ttl: -1, body: `{"v":3}`, own: never},
		{name: "never, renewed", ttl: -1, trace: trace, own: never},
		{name: "own from never", ttl: ttlrules.MaxSeconds, body: "{}", own: "2147483648006"},
		{name: "inherits from own, with a trace", trace: trace, body: "\x00\xff{\r\n}", inherit: "1007"},
		{name: "the trace goes, the body stays", inherit: "1008"},
		{name: "never from inherit", ttl: -1, own: never},
		{name: "inherits from never", inherit: "1010"},
		{name: "deleted", delete: true},
		{name: "created with its own", ttl: 1, body: strings.Repeat("x", 100_000), own: "2012"},
		{name: "deleted from own", delete: true},
		{name: "created, never", ttl: -1, body: "{}", own: never},
		{name: "deleted from never", delete: true},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.Put("orders", "other", store.Header{Ts: 5, Etag: 1}, "{}")
		for i, step := range steps {
			ch := r.Change("orders", "é/1", &store.Header{Ts: int64(1000 + i), Etag: uint64(1<<40 + i), TTL: step.ttl,
				Trace: step.trace}, []byte(step.body))
			if step.body == "" {
				ch.Body = nil
			}
			if step.delete {
				ch.New = nil
			}
			r.Commit(0, nil, store.CollectionChanges{Collection: "orders", Changes: []store.Change{ch}})
			got, inherit, own := r.stored(0, "orders", "é/1")
			var want *store.Stored
			if d, ok := r.Docs["orders"]["é/1"]; ok {
				want = &d
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: stored is\n%s", step.name, diff)
			}
			wantInherit, wantOwn := max(step.inherit, "-"), max(step.own, "-")
			if inherit != wantInherit || own != wantOwn {
				t.Errorf("%s: it stands at %s and %s in the indexes, want %s and %s", step.name, inherit, own, wantInherit, wantOwn)
			}
			if err := r.Shards[0].Verify(ctx, r.At[0].Version, []string{"orders"}); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	})
}

// TestDrops: a drop removes documents before the changes of the same step are made.
func TestDrops(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		fill := func() {
			for i := range 5 {
				r.Put("orders", "i"+strconv.Itoa(i), store.Header{Ts: 1, Etag: 1}, "{}")
				r.Put("orders", "o"+strconv.Itoa(i), store.Header{Ts: 1, Etag: 1, TTL: 2}, "{}")
			}
			r.Put("others", "x", store.Header{Ts: 1, Etag: 1}, "{}")
		}
		sizes := func() string {
			return r.Client.HGet(ctx, r.Key(0, "state"), "size:orders").Val() + ", " + r.Client.HGet(ctx, r.Key(0, "state"),
				"size:others").Val()
		}
		expect := func(after, want string) {
			t.Helper()
			if got := sizes(); got != want {
				t.Errorf("after %s the sizes are %q, want %q", after, got, want)
			}
			if err := r.Shards[0].Verify(ctx, r.At[0].Version, []string{"orders", "others"}); err != nil {
				t.Errorf("after %s: %v", after, err)
			}
		}
		fill()
		expect("writes", "10 5 5, 1 1 0")
		// A document that goes with the drop and comes again in the same step.
		r.Commit(0, nil, store.CollectionChanges{Collection: "orders", Drop: store.DropAll,
			Changes: []store.Change{r.Change("orders", "i1", &store.Header{Ts: 9, Etag: 9, TTL: 3}, []byte("{}"))}})
		expect("a drop and a write", "1 0 1, 1 1 0")
		fill()
		expect("more writes", "10 5 5, 1 1 0")
		r.Commit(0, []store.ConfigChange{{Collection: "orders"}}, store.CollectionChanges{Collection: "orders",
			Drop: store.DropAll})
		expect("a drop", ", 1 1 0")
		if state, err := r.Shards[0].Load(ctx); err != nil || !slices.Equal(state.Collections, []string{"others"}) ||
			len(state.Configs) > 0 {
			t.Errorf("after a drop there are %v, %v, %v", state.Collections, state.Configs, err)
		}
		// A body that is to stay cannot, if it goes with the drop: refused, not applied by half.
		fill()
		before := r.Dump()
		err := r.Shards[0].Commit(ctx, r.Next(0), nil, []store.CollectionChanges{{Collection: "orders", Drop: store.DropAll,
			Changes: []store.Change{r.Change("orders", "i1", &store.Header{Ts: 9, Etag: 9}, nil)}}})
		wantErr(t, err, store.ErrDamaged, "a renewal of what is dropped")
		if diff := cmp.Diff(before, r.Dump()); diff != "" {
			t.Errorf("it has left a trace:\n%s", diff)
		}
	})
}

// TestDropMoves: a collection is renamed as a whole, and a collection that is created under the
// old name has nothing of it. Nothing that exists is overwritten.
//
// Goes red if commit.lua forgets a key or a size, or does not check the new name.
func TestDropMoves(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, kinds := range [][]ttlrules.TTL{{0, 1, -1}, {-1}, {5}, {}} {
			r := newRig(t, s, 1, far)
			r.Configure("orders", &store.Config{History: ttlrules.History{}.With(1, 1, 10)})
			before := map[string]string{}
			for i, ttl := range kinds {
				r.Put("orders", strconv.Itoa(i), store.Header{Ts: 1, Etag: 1, TTL: ttl}, "{}")
			}
			for _, kind := range []string{"docs:", "inherit:", "own:"} {
				if v, ok := r.Dump()[r.Key(0, kind+"orders")]; ok {
					before[r.Key(0, kind+"orders.7")] = v
				}
			}
			size := r.Client.HGet(ctx, r.Key(0, "state"), "size:orders").Val()
			moves := []store.CollectionChanges{{Collection: "orders", Drop: store.DropMoves}, {Collection: "orders.7"}}
			r.Commit(0, []store.ConfigChange{{Collection: "orders"}, {Collection: "orders.7", Config: &store.Config{}}},
				moves...)
			if !moves[0].Emptied || moves[1].Emptied != (len(kinds) == 0) {
				t.Errorf("%v: emptied are %v, %v", kinds, moves[0].Emptied, moves[1].Emptied)
			}
			after := r.Dump()
			delete(after, r.Key(0, "state"))
			delete(after, r.Key(0, "config"))
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%v: the collection has become:\n%s", kinds, diff)
			}
			state := r.Client.HGetAll(ctx, r.Key(0, "state")).Val()
			if _, there := state["size:orders"]; there || state["size:orders.7"] != size {
				t.Errorf("%v: the sizes are %v, want %q", kinds, state, size)
			}
			r.Docs["orders"] = nil
			r.Put("orders", "0", store.Header{Ts: 2, Etag: 2}, "{}")
			if err := r.Shards[0].Verify(ctx, r.At[0].Version, []string{"orders", "orders.7"}); err != nil {
				t.Errorf("%v: %v", kinds, err)
			}
			// Somebody else's key is in the place.
			if err := r.Client.HSet(ctx, r.Key(0, "docs:orders.8"), "x", "y").Err(); err != nil {
				t.Fatal(err)
			}
			untouched := r.Dump()
			err := r.Shards[0].Commit(ctx, r.Next(0), nil, []store.CollectionChanges{
				{Collection: "orders", Drop: store.DropMoves}, {Collection: "orders.8"}})
			wantErr(t, err, store.ErrDamaged, "a move to where something is")
			if diff := cmp.Diff(untouched, r.Dump()); diff != "" {
				t.Errorf("it has left a trace:\n%s", diff)
			}
		}
	})
}

// TestMany has more values in one commit and one read than Lua's unpack accepts.
func TestMany(t *testing.T) {
	const n = 10_500
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.Open()
		var ids []string
		each := func(h func(i int) *store.Header, body []byte) {
			t.Helper()
			ids = ids[:0]
			var changes []store.Change
			for i := range n {
				ids = append(ids, strconv.Itoa(i))
				changes = append(changes, r.Change("orders", ids[i], h(i), body))
			}
			r.Write("orders", changes...)
		}
		check := func(headers, whole int, want string) {
			t.Helper()
			found, err := r.Shards[0].ReadDocuments(ctx, r.At[0].Version, []store.Want{
				{Collection: "none", Headers: []string{"a"}},
				{Collection: "orders", Headers: ids[:headers], Whole: ids[headers : headers+whole]},
				{Collection: "orders"},
				{Collection: "orders", Whole: ids[:1], Headers: []string{"missing"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 4 || len(found[0]) != 1 || found[0][0] != nil || len(found[2]) != 0 || len(found[3]) != 2 ||
				found[3][0] != nil {
				t.Fatalf("what was found has the wrong shape")
			}
			for i, got := range append(found[1], found[3][1]) {
				id := ids[i%(headers+whole)]
				model, ok := r.Docs["orders"][id]
				if i < headers {
					model.Body = ""
				}
				if ok != (got != nil) || ok && *got != model {
					t.Fatalf("document %s is %+v, want %+v, %t", id, got, model, ok)
				}
			}
			if size := s.Client.HGet(ctx, r.Key(0, "state"), "size:orders").Val(); size != want {
				t.Errorf("the size is %q, want %q", size, want)
			}
		}
		each(func(i int) *store.Header { return &store.Header{Ts: int64(i), Etag: 1} }, []byte("{}"))
		check(5000, 5500, "10500 10500 0")
		each(func(i int) *store.Header { return &store.Header{Ts: int64(i), Etag: 2, TTL: 9} }, nil)
		check(0, 10_500, "10500 0 10500")
		check(10_500, 0, "10500 0 10500")
		due, err := r.Shards[0].Due(ctx, r.At[0].Version,
			[]store.Cut{{Collection: "orders", Cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: math.MaxInt64}}}, n+1,
			math.MaxInt32, true)
		if err != nil || len(due[0].IDs) != n {
			t.Fatalf("due: %v", err)
		}
		found, err := r.Reader.GetMany(ctx, "orders", ids)
		if err != nil || len(found) != n || found[n-1].ID != ids[n-1] {
			t.Errorf("get many found %d, %v", len(found), err)
		}
		each(func(int) *store.Header { return nil }, nil)
		check(3, 3, "")
	})
}
