package sink_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG1_FencedCommit: a commit takes effect once, and only on the version that it
// was computed from; what is refused leaves no trace (P1, P2).
//
// Goes red if commit.lua writes anything before it compares the version, or does
// not compare it.
func TestG1_FencedCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		p := r.store.Partition(0)
		h := sink.Header{Ts: far, Etag: 1}
		config := []sink.ConfigChange{{Collection: "orders", Config: &sink.Config{NoIndex: true}}}
		changes := []sink.CollectionChanges{{Collection: "orders", Changes: []sink.Change{{ID: "a", New: &h, Body: []byte("{}")}}}}
		first := r.progress(0)
		r.commit(0, config, changes...)
		before := r.dump()
		other := h
		other.Etag = 2
		changes[0].Changes[0].New = &other
		wantErr(t, p.Commit(ctx, first, nil, changes), sink.ErrFenced, "the same commit again")
		stale := r.progress(0)
		stale.Version = "v99"
		wantErr(t, p.Commit(ctx, stale, []sink.ConfigChange{{Collection: "orders"}}, changes), sink.ErrFenced, "a commit on a version that is to come")
		wantErr(t, p.Commit(ctx, stale, nil, []sink.CollectionChanges{{Collection: "orders", Drop: sink.DropAll}}), sink.ErrFenced, "a drop")
		_, err := p.Read(ctx, "v0", []sink.Want{{Collection: "orders", Whole: []string{"a"}}})
		wantErr(t, err, sink.ErrFenced, "read")
		_, err = p.Due(ctx, "v0", nil, 1, 1, true)
		wantErr(t, err, sink.ErrFenced, "due")
		_, _, _, err = p.Scan(ctx, "v0", "orders", "0", 10)
		wantErr(t, err, sink.ErrFenced, "scan")
		if diff := cmp.Diff(before, r.dump()); diff != "" {
			t.Errorf("what was refused has left a trace:\n%s", diff)
		}
		missing := sink.NewStore(s.client, "none", 1).Partition(0)
		wantErr(t, missing.Commit(ctx, first, nil, changes), sink.ErrFenced, "a commit to what is not there")
		wantErr(t, missing.Verify(ctx, "v0", nil), sink.ErrFenced, "a verification of what is not there")
	})
}

// stored reads a document and where it stands in the two indexes: "-" if it does not.
func (r *rig) stored(p int, collection, id string) (doc *sink.Stored, inherit, own string) {
	r.t.Helper()
	found, err := r.store.Partition(p).Read(ctx, r.state[p].Version, []sink.Want{{Collection: collection, Whole: []string{id}}})
	if err != nil {
		r.t.Fatalf("read: %v", err)
	}
	score := func(kind string) string {
		f, err := r.client.ZScore(ctx, r.key(p, kind+":"+collection), id).Result()
		if err == redis.Nil {
			return "-"
		}
		if err != nil {
			r.t.Fatalf("score: %v", err)
		}
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return found[0][0], score("inherit"), score("own")
}

// TestChanges takes one document through every change of its class, by writes and
// by renewals of its header, and looks at what is stored after each.
func TestChanges(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	steps := []struct {
		name    string
		ttl     ttlrules.TTL
		trace   string
		body    string // "" keeps it
		delete  bool
		noIndex bool
		inherit string
		own     string
	}{
		{name: "created, inherits", body: `{"v":1}`, inherit: "1000"},
		{name: "renewed", inherit: "1001"},
		{name: "own by a renewal", ttl: 7, trace: trace, own: "8002"},
		{name: "own, rewritten", ttl: 8, body: `{"v": 2}`, own: "9003"},
		{name: "never by a write", ttl: -1, body: `{"v":3}`},
		{name: "never, renewed", ttl: -1, trace: trace},
		{name: "own from never", ttl: ttlrules.MaxSeconds, body: "{}", own: "2147483648006"},
		{name: "inherits from own, with a trace", trace: trace, body: "\x00\xff{\r\n}", inherit: "1007"},
		{name: "the trace goes, the body stays", inherit: "1008"},
		{name: "never from inherit", ttl: -1, inherit: "-"},
		{name: "inherits from never", inherit: "1010"},
		{name: "deleted", delete: true},
		{name: "created with its own", ttl: 1, body: strings.Repeat("x", 100_000), own: "2012"},
		{name: "deleted from own", delete: true},
		{name: "created, never", ttl: -1, body: "{}"},
		{name: "deleted from never", delete: true},
		{name: "without an index", body: "{}", noIndex: true},
		{name: "without an index, own", ttl: 5, noIndex: true},
		{name: "without an index, deleted", delete: true, noIndex: true},
	}
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		r.put("orders", "other", sink.Header{Ts: 5, Etag: 1}, "{}")
		for i, step := range steps {
			ch := r.change("orders", "é/1", &sink.Header{Ts: int64(1000 + i), Etag: uint64(1<<40 + i), TTL: step.ttl, Trace: step.trace}, []byte(step.body))
			if step.body == "" {
				ch.Body = nil
			}
			if step.delete {
				ch.New = nil
			}
			r.commit(0, nil, sink.CollectionChanges{Collection: "orders", NoIndex: step.noIndex, Changes: []sink.Change{ch}})
			got, inherit, own := r.stored(0, "orders", "é/1")
			var want *sink.Stored
			if d, ok := r.docs["orders"]["é/1"]; ok {
				want = &d
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: stored is\n%s", step.name, diff)
			}
			wantInherit, wantOwn := max(step.inherit, "-"), max(step.own, "-")
			if inherit != wantInherit || own != wantOwn {
				t.Errorf("%s: it stands at %s and %s in the indexes, want %s and %s", step.name, inherit, own, wantInherit, wantOwn)
			}
			if err := r.store.Partition(0).Verify(ctx, r.state[0].Version, []string{"orders"}); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
		}
	})
}

// TestDrops: what goes with a drop goes before the changes of the same step.
func TestDrops(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		fill := func() {
			for i := range 5 {
				r.put("orders", "i"+strconv.Itoa(i), sink.Header{Ts: 1, Etag: 1}, "{}")
				r.put("orders", "o"+strconv.Itoa(i), sink.Header{Ts: 1, Etag: 1, TTL: 2}, "{}")
			}
			r.put("others", "x", sink.Header{Ts: 1, Etag: 1}, "{}")
		}
		sizes := func() string {
			return r.client.HGet(ctx, r.key(0, "state"), "size:orders").Val() + ", " + r.client.HGet(ctx, r.key(0, "state"), "size:others").Val()
		}
		expect := func(after, want string) {
			t.Helper()
			if got := sizes(); got != want {
				t.Errorf("after %s the sizes are %q, want %q", after, got, want)
			}
			if err := r.store.Partition(0).Verify(ctx, r.state[0].Version, []string{"orders", "others"}); err != nil {
				t.Errorf("after %s: %v", after, err)
			}
		}
		fill()
		expect("writes", "10 5 5, 1 1 0")
		// A document that goes with the drop and comes again in the same step.
		r.commit(0, nil, sink.CollectionChanges{Collection: "orders", Drop: sink.DropAll,
			Changes: []sink.Change{r.change("orders", "i1", &sink.Header{Ts: 9, Etag: 9, TTL: 3}, []byte("{}"))}})
		expect("a drop and a write", "1 0 1, 1 1 0")
		fill()
		r.commit(0, []sink.ConfigChange{{Collection: "orders", Config: &sink.Config{NoIndex: true}}},
			sink.CollectionChanges{Collection: "orders", Drop: sink.DropIndex})
		expect("the drop of the index", "10 0 0, 1 1 0")
		r.commit(0, nil, sink.CollectionChanges{Collection: "orders", NoIndex: true,
			Changes: []sink.Change{r.change("orders", "i2", &sink.Header{Ts: 9, Etag: 9, TTL: 3}, nil)}})
		expect("a renewal without an index", "10 0 0, 1 1 0")
		r.commit(0, []sink.ConfigChange{{Collection: "orders"}}, sink.CollectionChanges{Collection: "orders", Drop: sink.DropAll})
		expect("a drop", ", 1 1 0")
		if state, err := r.store.Partition(0).Load(ctx); err != nil || !slices.Equal(state.Collections, []string{"others"}) || len(state.Configs) > 0 {
			t.Errorf("after a drop there are %v, %v, %v", state.Collections, state.Configs, err)
		}
		// A body that is to stay cannot, if it goes with the drop: refused, not applied by half.
		fill()
		before := r.dump()
		err := r.store.Partition(0).Commit(ctx, r.progress(0), nil, []sink.CollectionChanges{{Collection: "orders", Drop: sink.DropAll,
			Changes: []sink.Change{r.change("orders", "i1", &sink.Header{Ts: 9, Etag: 9}, nil)}}})
		wantErr(t, err, sink.ErrDamaged, "a renewal of what is dropped")
		if diff := cmp.Diff(before, r.dump()); diff != "" {
			t.Errorf("it has left a trace:\n%s", diff)
		}
	})
}

// TestIndexBuild builds an index by scans while documents are written, and finds
// it as complete as one that was kept all along.
func TestIndexBuild(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		none := sink.Config{NoIndex: true}
		r.configure("orders", &none)
		header := func(i int) *sink.Header {
			return &sink.Header{Ts: int64(i), Etag: uint64(i + 1), TTL: ttlrules.TTL(i%3 - 1)}
		}
		var changes []sink.Change
		for i := range 1200 {
			changes = append(changes, r.change("orders", strconv.Itoa(i), header(i), []byte("{}")))
		}
		r.write("orders", changes...)
		if size := s.client.HGet(ctx, r.key(0, "state"), "size:orders").Val(); size != "1200 0 0" {
			t.Fatalf("without an index the size is %q", size)
		}
		r.configure("orders", &sink.Config{Building: true})
		for cursor, i := "0", 0; ; i++ {
			found, next, server, err := r.store.Partition(0).Scan(ctx, r.state[0].Version, "orders", cursor, 100)
			if err != nil {
				t.Fatal(err)
			}
			if (server == "") != (s.mini != nil) {
				t.Errorf("the server is named %q", server)
			}
			r.commit(0, nil, sink.CollectionChanges{Collection: "orders", Index: found})
			// Meanwhile some change their class, come, and go.
			r.write("orders",
				r.change("orders", strconv.Itoa(i), header(i+1), nil),
				r.change("orders", "new"+strconv.Itoa(i), header(i), []byte("{}")),
				r.change("orders", strconv.Itoa(1199-i), nil, nil))
			if cursor = next; cursor == "0" {
				break
			}
		}
		r.configure("orders", &sink.Config{})
		inherit, own := 0, 0
		for id, d := range r.docs["orders"] {
			_, i, o := r.stored(0, "orders", id)
			wantI, wantO := "-", "-"
			switch {
			case d.Header.TTL == ttlrules.Inherit:
				inherit++
				wantI = strconv.FormatInt(d.Header.Ts, 10)
			case d.Header.TTL > 0:
				own++
				wantO = strconv.FormatInt(d.Header.Ts+int64(d.Header.TTL)*1000, 10)
			}
			if i != wantI || o != wantO {
				t.Errorf("%s stands at %s and %s in the indexes, want %s and %s", id, i, o, wantI, wantO)
			}
		}
		want := fmt.Sprint(len(r.docs["orders"]), inherit, own)
		if size := s.client.HGet(ctx, r.key(0, "state"), "size:orders").Val(); size != want {
			t.Errorf("the size is %q, want %q", size, want)
		}
	})
}

// TestMany has more values in one commit, one read and one build than Lua's unpack takes.
func TestMany(t *testing.T) {
	const n = 10_500
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		var ids []string
		each := func(h func(i int) *sink.Header, body []byte) {
			t.Helper()
			ids = ids[:0]
			var changes []sink.Change
			for i := range n {
				ids = append(ids, strconv.Itoa(i))
				changes = append(changes, r.change("orders", ids[i], h(i), body))
			}
			r.write("orders", changes...)
		}
		check := func(headers, whole int, want string) {
			t.Helper()
			found, err := r.store.Partition(0).Read(ctx, r.state[0].Version, []sink.Want{
				{Collection: "none", Headers: []string{"a"}},
				{Collection: "orders", Headers: ids[:headers], Whole: ids[headers : headers+whole]},
				{Collection: "orders"},
				{Collection: "orders", Whole: ids[:1], Headers: []string{"missing"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 4 || len(found[0]) != 1 || found[0][0] != nil || len(found[2]) != 0 || len(found[3]) != 2 || found[3][0] != nil {
				t.Fatalf("what was found has the wrong shape")
			}
			for i, got := range append(found[1], found[3][1]) {
				id := ids[i%(headers+whole)]
				model, ok := r.docs["orders"][id]
				if i < headers {
					model.Body = ""
				}
				if ok != (got != nil) || ok && *got != model {
					t.Fatalf("document %s is %+v, want %+v, %t", id, got, model, ok)
				}
			}
			if size := s.client.HGet(ctx, r.key(0, "state"), "size:orders").Val(); size != want {
				t.Errorf("the size is %q, want %q", size, want)
			}
		}
		each(func(i int) *sink.Header { return &sink.Header{Ts: int64(i), Etag: 1} }, []byte("{}"))
		check(5000, 5500, "10500 10500 0")
		each(func(i int) *sink.Header { return &sink.Header{Ts: int64(i), Etag: 2, TTL: 9} }, nil)
		check(0, 10_500, "10500 0 10500")
		check(10_500, 0, "10500 0 10500")
		r.configure("orders", &sink.Config{NoIndex: true})
		r.commit(0, nil, sink.CollectionChanges{Collection: "orders", Drop: sink.DropIndex})
		var all []sink.Change
		for i := range n {
			d := r.docs["orders"][ids[i]]
			all = append(all, sink.Change{ID: ids[i], Old: &d.Header})
		}
		r.commit(0, nil, sink.CollectionChanges{Collection: "orders", Index: all})
		r.configure("orders", &sink.Config{})
		check(1, 1, "10500 0 10500")
		due, err := r.store.Partition(0).Due(ctx, r.state[0].Version,
			[]sink.Cut{{Collection: "orders", Cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: math.MaxInt64}}}, n+1, math.MaxInt32, true)
		if err != nil || len(due[0].IDs) != n {
			t.Fatalf("due: %v", err)
		}
		found, err := r.reader.GetMany(ctx, "orders", ids)
		if err != nil || len(found) != n || found[n-1].ID != ids[n-1] {
			t.Errorf("get many found %d, %v", len(found), err)
		}
		each(func(int) *sink.Header { return nil }, nil)
		check(3, 3, "")
	})
}

// TestG1_FreshOrNothing: a commit that goes by the guess that documents are new takes
// effect only if they are.
//
// Goes red if commit.lua does not look, or looks after the first write.
func TestG1_FreshOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, 1000)
		put := func(fresh bool, ids ...string) []sink.CollectionChanges {
			c := sink.CollectionChanges{Collection: "orders", Fresh: fresh}
			for _, id := range ids {
				c.Changes = append(c.Changes, sink.Change{ID: id, New: &sink.Header{Ts: 1, Etag: 1}, Body: []byte(`{"id":"` + id + `"}`)})
			}
			return []sink.CollectionChanges{c}
		}
		r.commit(0, nil, put(true, "a", "b")...) // in an empty collection
		var many, more []string
		for i := range 4500 { // more than are looked for at a time
			many, more = append(many, fmt.Sprint("m", i)), append(more, fmt.Sprint("n", i))
		}
		r.commit(0, nil, put(true, many...)...)
		before := r.dump()
		p := r.store.Partition(0)
		for _, ids := range [][]string{{"a"}, {"c", "a"}, append(more, "a"), append([]string{"m4499"}, more...)} {
			wantErr(t, p.Commit(ctx, r.progress(0), nil, put(true, ids...)), sink.ErrExists, fmt.Sprint(len(ids), " of which one is there"))
		}
		two := append(put(true, "c"), put(true, "a")...)
		two[0].Collection = "others"
		wantErr(t, p.Commit(ctx, r.progress(0), nil, two), sink.ErrExists, "in the second collection")
		if diff := cmp.Diff(before, r.dump()); diff != "" {
			t.Errorf("what was refused has left a trace:\n%s", diff)
		}
		r.commit(0, nil, put(true, "c", "d")...)
		// A document that goes in the same step is of no account.
		step := put(true, "e")
		step[0].Changes = append(step[0].Changes, sink.Change{ID: "a", Old: &sink.Header{Ts: 1, Etag: 1}})
		r.commit(0, nil, step...)
	})
}
