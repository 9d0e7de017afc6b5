package redismodel_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/harness/storetest"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

var ctx = context.Background()

var _ processor.Store = (*redismodel.Server)(nil)

// history is random operations of an owner, of readers and of faults, on the model and on a
// server.
type history struct {
	*testing.T
	*rand.Rand
	model *redismodel.Server
	rig   *storetest.Rig // nil: only on the model
	base  string         // of the keys
	at    store.Progress // after the last commit
	names []string       // of collections
}

func newHistory(t *testing.T, s *redistest.Server) *history {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed is %d", seed)
		}
	})
	h := &history{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), names: []string{"a", "b", "c"}}
	h.at = store.Progress{Version: "v0", Watermark: []int64{storetest.Far,
		time.Now().Add(-time.Hour).UnixMilli()}[h.IntN(2)]}
	h.model = redismodel.New(redismodel.Options{Now: time.Now})
	if err := h.model.Take(ctx, store.State{Log: "log", Watermark: h.at.Watermark}, h.at.Version, 0); err != nil {
		t.Fatal(err)
	}
	if s != nil {
		h.rig = storetest.New(t, *s, 1, h.at.Watermark)
		h.base = h.rig.Key(0, "")
	}
	return h
}

// TestConformance: the model answers as Redis and the embedded one do. It fails if any effect or
// error of sink/store is another in the model.
func TestConformance(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		histories := 20
		if s.Mini != nil { // which is slower
			histories = 6
		}
		for range histories {
			h := newHistory(t, &s)
			for range 100 {
				if h.step(); t.Failed() {
					return
				}
			}
			h.full(false)
		}
	})
}

// TestSaveAndRestore: a snapshot stays as it was, whatever happens after it, also to the
// server that it was restored to. It fails if a change does not copy what is shared.
func TestSaveAndRestore(t *testing.T) {
	type saved struct {
		redismodel.Snapshot
		store.Progress
		held []any
	}
	h := newHistory(t, nil)
	held := func() []any {
		state, there := h.model.State()
		keys, _ := h.model.Leftovers(ctx)
		cuts := []store.Cut{{Collection: "a", Cuts: ttlrules.Cuts{Inherit: math.MaxInt64, Own: math.MaxInt64}}}
		due, err := h.model.Due(ctx, state.Version, cuts, 100, 1<<20, true)
		return []any{state, there, keys, h.model.Documents(), due, fmt.Sprint(err)}
	}
	var all []saved
	for range 2000 {
		switch n := h.IntN(20); {
		case n < 2:
			all = append(all, saved{h.model.Save(), h.at, held()})
		case n < 4 && len(all) > 0:
			one := all[h.IntN(len(all))]
			h.model.Restore(one.Snapshot)
			h.at = one.Progress
			if diff := cmp.Diff(one.held, held()); diff != "" {
				t.Fatal(diff)
			}
		case n == 5:
			h.lose()
		case n == 6 && h.oneIn(4):
			h.rebuild()
		default:
			h.commit()
		}
	}
}

// TestRestart: a cursor means nothing to another process of the server. It fails if a copy goes on there.
func TestRestart(t *testing.T) {
	h := newHistory(t, nil)
	for docs := h.model.Documents(); len(docs) < 2 ||
		docs[0].Collection != docs[1].Collection; docs = h.model.Documents() {
		h.commit()
	}
	collections := []string{h.model.Documents()[0].Collection}
	first, err := h.model.Copy(ctx, h.at.Version, collections, store.CopyPlace{}, 1, 1)
	if err != nil || len(first.Documents) != 1 || first.Done != 0 {
		t.Fatalf("the first copy: %+v, %v", first, err)
	}
	h.model.Restart()
	again, err := h.model.Copy(ctx, h.at.Version, collections, first.Next, 1, 1)
	if err != nil || len(again.Documents) > 0 || again.Done > 0 || again.Next != (store.CopyPlace{}) {
		t.Errorf("after a restart, the copy goes on at %+v with %+v, %v", first.Next, again, err)
	}
}

func kind(err error) string {
	for _, k := range []error{store.ErrFenced, store.ErrDamaged, store.ErrForeign, sink.ErrUnavailable,
		sink.ErrNoCollection, sink.ErrNotFound} {
		if errors.Is(err, k) {
			return k.Error()
		}
	}
	if err != nil && strings.Contains(err.Error(), "OOM command not allowed when used memory > 'maxmemory'") {
		return "full"
	}
	return fmt.Sprint(err)
}

// both does something on both sides, and compares the answers.
func (h *history) both(what string, do func(s processor.Store) (any, error)) error {
	got, err := do(h.model)
	if h.rig != nil {
		want, wantErr := do(h.rig.Shards[0])
		if diff := cmp.Diff(want, got); diff != "" || kind(err) != kind(wantErr) {
			h.Errorf("%s: error %v, want %v\n%s", what, err, wantErr, diff)
		}
	}
	return err
}

func (h *history) oneIn(n int) bool { return h.IntN(n) == 0 }

// add adds the name of a collection. One that was refused comes again, and a commit must not have
// a collection twice.
func (h *history) add(name string) {
	if !slices.Contains(h.names, name) {
		h.names = append(h.names, name)
	}
}

func (h *history) name() string  { return h.names[h.IntN(len(h.names))] }
func (h *history) id() string    { return fmt.Sprint("id", h.IntN(12)) }
func (h *history) fresh() string { return fmt.Sprint("v", h.Uint64()) }

// version is mostly the present one.
func (h *history) version() string {
	if h.oneIn(30) {
		return "stale"
	}
	return h.at.Version
}

func (h *history) step() {
	switch n := h.IntN(100); {
	case n < 55:
		h.commit()
	case n < 70:
		h.read()
	case n < 75:
		h.take(h.version(), []uint64{0, 0, 7, store.Clearing}[h.IntN(4)], h.oneIn(8))
	case n < 81:
		h.lose()
	case n < 85:
		h.full(h.oneIn(2))
	}
	collection, id := h.name(), h.id()
	want, wantErr := h.rig.NewReader().Get(ctx, collection, id)
	d, err := h.model.Get(collection, id)
	if kind(err) != kind(wantErr) || err == nil && !cmp.Equal(want, read(d)) {
		h.Errorf("get %s/%s: %v, %v; want %v, %v", collection, id, d, err, want, wantErr)
	}
	if _, err := h.model.Load(ctx); err != nil && h.oneIn(2) || h.oneIn(20) {
		h.rebuild()
	}
}

// read is a document as a reader has it.
func read(d redismodel.Document) sink.Document {
	h := d.Header
	got := sink.Document{
		ID: d.ID, Etag: wire.Etag(h.Etag), Ts: wire.Time(h.Ts), ExpiresAt: d.ExpiresAt, Target: h.Target,
		Clock: wire.Time(h.Clock().Begin()), Trace: h.Trace, Body: []byte(d.Body), Slides: d.Slides,
	}
	if at := wire.Time(h.Created); at != got.Clock {
		got.Created = at
	}
	if h.Absolute != 0 {
		got.Deadline = (*wire.Time)(&h.Absolute)
	}
	if h.NotAfter != 0 {
		got.NotAfter = (*wire.Time)(&h.NotAfter)
	}
	return got
}

func (h *history) full(full bool) {
	if h.rig != nil && h.rig.Mini == nil {
		h.model.Full(full)
		h.rig.Client.ConfigSet(ctx, "maxmemory", map[bool]string{true: "1", false: "0"}[full])
	}
}

func (h *history) commit() {
	pr := h.at
	pr.Version, pr.Next, pr.Offset, pr.Watermark = h.version(), h.fresh(), pr.Offset+1,
		pr.Watermark+int64(h.IntN(3)*1000)
	pr.Stamp, pr.Rebuild = store.Stamp{Seq: h.Uint64N(3), At: 5}, uint64(max(0, h.IntN(12)-10))
	var configs []store.ConfigChange
	if h.oneIn(5) {
		c := &store.Config{NoIndex: h.oneIn(4), Lazy: h.oneIn(4), SlideOnRead: wire.Slide(h.IntN(3)) * 0.3,
			Etag: h.Uint64N(9)}
		for i := range h.IntN(3) {
			c.History = c.History.With(pr.Watermark-5000+int64(i)*3000, uint64(i),
				[]ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 1, 4}[h.IntN(4)])
		}
		configs = []store.ConfigChange{{Collection: h.name(), Config: []*store.Config{nil, c, c}[h.IntN(3)]}}
	}
	if h.oneIn(10) {
		rule := &store.Config{Rules: wire.LogRulesBody{Open: !h.oneIn(4)}, Etag: 1}
		configs = append(configs, store.ConfigChange{Collection: wire.LogRules, Config: rule})
	}
	var changes []store.CollectionChanges
	for _, i := range h.Perm(len(h.names))[:h.IntN(3)] {
		name := h.names[i]
		c := store.CollectionChanges{Collection: name}
		switch n := h.IntN(40); {
		case n == 0:
			c.Drop = store.DropAll
		case n == 1:
			c.Drop = store.DropMoves
			to := fmt.Sprint(name, ".", pr.Next) // a name that nothing has had
			h.add(to)
			changes = append(changes, c, store.CollectionChanges{Collection: to})
			continue
		}
		h.change(&c)
		h.changeIndexes(&c)
		changes = append(changes, c)
	}
	err := h.both(fmt.Sprintf("commit %+v %+v %+v", pr, configs, changes), func(s processor.Store) (any, error) {
		there := slices.Clone(changes)
		err := s.Commit(ctx, pr, configs, there)
		return there, err // with Emptied
	})
	if err == nil {
		pr.Version = pr.Next
		h.at = pr
	}
}

// change adds changes of documents as an owner makes them, and sometimes as it must not.
func (h *history) change(c *store.CollectionChanges) {
	stored := map[string]*store.Header{}
	for _, d := range h.model.Documents() {
		if d.Collection == c.Collection {
			stored[d.ID] = &d.Header
		}
	}
	for _, i := range h.Perm(12)[:h.IntN(7)] {
		id := fmt.Sprint("id", i)
		ttl := []ttlrules.TTL{ttlrules.Inherit, ttlrules.Inherit, ttlrules.Never, 1, ttlrules.TTL(h.IntN(30) + 1),
			86400}[h.IntN(6)]
		ch := store.Change{ID: id, Old: stored[id], New: &store.Header{
			Ts: h.at.Watermark + int64(h.IntN(5)-3)*1000, Etag: h.Uint64N(1 << 40), TTL: ttl,
			Trace: strings.Repeat("t", h.IntN(3)),
		}}
		switch h.IntN(6) {
		case 0:
			ch.New.Absolute = h.at.Watermark + int64(h.IntN(30))*1000 + 1
		case 1:
			ch.New.Kept = ch.New.Ts + int64(h.IntN(3)+1)*1000 // a read has renewed it
		case 2:
			ch.New.Kept, ch.New.Band = ch.New.Ts-int64(h.IntN(3)+1)*1000, h.IntN(3)
		}
		if h.oneIn(5) {
			ch.New.Created, ch.New.Limit, ch.New.ByDefault = ch.New.Ts-int64(h.IntN(30))*1000,
				h.at.Watermark+int64(h.IntN(9))*1000+1, h.oneIn(2)
		}
		switch old := ch.Old; {
		case old != nil && h.oneIn(4):
			ch.New = nil
		case old == nil && !h.oneIn(60) || h.oneIn(2):
			ch.Body = []byte(strings.Repeat("x", h.IntN(40)))
		}
		c.Changes = append(c.Changes, ch)
	}
}

// changeIndexes adds changes of property indexes.
func (h *history) changeIndexes(c *store.CollectionChanges) {
	for _, slot := range h.Perm(3)[:max(0, h.IntN(5)-2)] {
		x := store.IndexChanges{Slot: slot, Unlink: h.oneIn(8)}
		for _, i := range h.Perm(6)[:h.IntN(6)] {
			if entry := fmt.Sprint("entry", i); h.oneIn(3) {
				x.Remove = append(x.Remove, entry)
			} else {
				x.Add = append(x.Add, entry)
			}
		}
		c.Indexes = append(c.Indexes, x)
	}
	switch h.IntN(8) {
	case 0:
		c.Making = &store.Making{}
	case 1:
		c.Making = &store.Making{Slots: []int{h.IntN(3)}, Index: ttlrules.ByOwn, Score: h.Int64N(5), ID: "x",
			Made: h.Int64N(5)}
	}
}

// read does what changes nothing.
func (h *history) read() {
	version, name, count := h.version(), h.name(), h.IntN(5)+1
	wants := []store.Want{{Collection: name, Headers: []string{h.id(), h.id()}, Whole: []string{h.id()}},
		{Collection: "none"}, {Collection: h.name(), Whole: []string{h.id()}}}
	_ = h.both(fmt.Sprint("read ", wants), func(s processor.Store) (any,
		error) {
		return s.ReadDocuments(ctx, version, wants)
	})
	_ = h.both("verify", func(s processor.Store) (any, error) { return nil, s.Verify(ctx, version, h.names) })
	indexes := []store.IndexOf{{Collection: name, Slot: h.IntN(3)}, {Collection: h.name(), Slot: h.IntN(3)}}
	_ = h.both(fmt.Sprint("verify ", indexes), func(s processor.Store) (any, error) {
		return nil,
			s.Verify(ctx, version, h.names, indexes...)
	})
	_ = h.both("load", func(s processor.Store) (any, error) { return s.Load(ctx) })
	_ = h.both("leftovers", func(s processor.Store) (any, error) {
		keys, err := s.Leftovers(ctx)
		for i, k := range keys {
			_, keys[i], _ = strings.Cut(k, "}:")
		}
		return keys, err
	})
	cut := func() int64 {
		return []int64{ttlrules.NoCut, math.MaxInt64, h.at.Watermark, h.at.Watermark - 2000}[h.IntN(4)]
	}
	var cuts []store.Cut
	for _, i := range h.Perm(len(h.names))[:3] {
		cuts = append(cuts, store.Cut{
			Collection: h.names[i], Cuts: ttlrules.Cuts{Inherit: cut(), Own: cut()}, PassInherit: max(0, h.IntN(8)-4),
			PassOwn: max(0, h.IntN(8)-4),
		})
	}
	for band := range 3 {
		inherit := []int64{ttlrules.NoCut, h.at.Watermark, h.at.Watermark - 2000, ttlrules.BandWidth - 1}[h.IntN(4)]
		cuts = append(cuts, store.Cut{Collection: name, Band: band,
			Cuts: ttlrules.Cuts{Inherit: inherit, Own: ttlrules.NoCut}, PassInherit: max(0, h.IntN(8)-4)})
	}
	limit, bytes, whole := []int{0, 1, 3, 5, 100}[h.IntN(5)], []int{1, 60, 200, 1 << 20}[h.IntN(4)], h.oneIn(2)
	_ = h.both(fmt.Sprintf("due %v %d %d %t", cuts, limit, bytes, whole), func(s processor.Store) (any, error) {
		return s.Due(ctx, version, cuts, limit, bytes, whole)
	})
	parts := []store.Slice{{Index: ttlrules.ByInherit, After: h.place(), UpTo: cut()},
		{Index: ttlrules.ByOwn, After: h.place(), UpTo: cut()}}
	_ = h.both(fmt.Sprintf("between %v %d %d", parts, limit+1, bytes), func(s processor.Store) (any, error) {
		return s.Between(ctx, version, name, parts, limit+1, bytes)
	})
	_ = h.both("copy "+name, func(s processor.Store) (any, error) {
		all := map[store.Document]bool{}
		collections, at := []string{name, "none", h.names[0]}, store.CopyPlace{}
		for len(collections) > 0 {
			c, err := s.Copy(ctx, version, collections, at, count, bytes)
			if err != nil {
				return nil, err
			}
			for _, d := range c.Documents {
				all[d] = true
			}
			collections, at = collections[c.Done:], c.Next
		}
		return all, nil
	})
}

// place is a place in an index.
func (h *history) place() store.Place {
	if h.oneIn(2) {
		return store.Place{Score: ttlrules.NoCut}
	}
	return store.Place{Score: h.at.Watermark + int64(h.IntN(9)-5)*1000, ID: h.id()}
}

// take takes over, or refuses, a shard that is at a version.
func (h *history) take(version string, lacks uint64, refuse bool) error {
	from, next := store.State{Version: version, Log: "log"}, h.fresh()
	err := h.both(fmt.Sprint("take ", version), func(s processor.Store) (any, error) {
		if refuse {
			return nil, s.Refuse(ctx, from, next)
		}
		return nil, s.Take(ctx, from, next, lacks)
	})
	if err == nil {
		h.at.Version = next
	}
	return err
}

// rebuild takes over whatever is there, and mostly begins anew.
func (h *history) rebuild() {
	s, _ := h.model.State()
	next := store.State{Version: h.fresh(), Log: "log", Offset: h.at.Offset, Watermark: h.at.Watermark,
		Stamp: store.Stamp{Seq: h.Uint64N(2), At: 3}}
	lacks := []uint64{0, store.Clearing, store.Clearing}[h.IntN(3)]
	if h.take(s.Version, lacks, false) != nil {
		h.full(false)
		return
	} else if lacks == 0 {
		return
	}
	taken, wrong := h.at.Version, h.oneIn(9)
	if h.both("rebuild", func(s processor.Store) (any, error) {
		if wrong {
			return nil, s.Clear(ctx, "stale", next, 0)
		}
		return nil, s.Clear(ctx, taken, next, 9)
	}) == nil {
		h.at.Version = next.Version
		if !wrong && h.oneIn(2) {
			h.fill()
		}
	}
}

// fill fills a shard that was cleared.
func (h *history) fill() {
	h.full(false)
	value := func(body string) string {
		return string(store.Header{Ts: h.at.Watermark, Etag: h.Uint64N(9),
			TTL: []ttlrules.TTL{ttlrules.Inherit, ttlrules.Never, 5}[h.IntN(3)]}.Append(nil)) + body
	}
	version := h.version()
	for i := range h.IntN(5) {
		c := store.CollectionFill{Collection: h.name(), Drop: h.oneIn(5)}
		if h.oneIn(5) {
			c = store.CollectionFill{Collection: c.Collection, MoveTo: fmt.Sprint(c.Collection, ".", h.fresh())}
			h.add(c.MoveTo)
		} else {
			for _, i := range h.Perm(12)[:h.IntN(12)] {
				id := fmt.Sprint("id", i)
				switch h.IntN(4) {
				case 0:
					c.Remove = append(c.Remove, id)
				case 1:
					c.Renew = append(c.Renew, store.Document{ID: id, Value: value("")})
				default:
					c.Put = append(c.Put, store.Document{ID: id, Value: value(strings.Repeat("y", h.IntN(40)))})
				}
			}
		}
		next := fmt.Sprint(h.at.Version, "-", i)
		if h.both(fmt.Sprintf("fill %+v", c), func(s processor.Store) (any, error) {
			return nil, s.Fill(ctx, version, next, []store.CollectionFill{c})
		}) == nil {
			version, h.at.Version = next, next
		}
	}
	_ = h.both("count", func(s processor.Store) (any, error) {
		full, documents, err := s.Count(ctx, h.at.Version, h.names)
		return []any{full, documents}, err
	})
}

// lose damages both sides in the same way.
func (h *history) lose() {
	m, n, docs, what := h.model, h.IntN(100), h.model.Documents(), h.IntN(7)
	lost := []func() bool{
		func() bool { return m.LoseDocument(n) }, func() bool { return m.LoseIndexMember(n) },
		func() bool { return m.LoseConfig(n) },
		m.LoseState, m.PutForeign, func() bool { h.model.Flush(); return true }, func() bool { return m.LoseEntry(n) },
	}[what]()
	if !lost || h.rig == nil {
		return
	}
	switch client := h.rig.Client; what {
	case 0:
		client.HDel(ctx, h.base+"docs:"+docs[n%len(docs)].Collection, docs[n%len(docs)].ID)
	case 1:
		var members [][2]string
		for _, name := range slices.Sorted(slices.Values(h.names)) {
			for _, key := range []string{h.base + "inherit:" + name, h.base + "own:" + name} {
				for _, id := range client.ZRange(ctx, key, 0, -1).Val() {
					members = append(members, [2]string{key, id})
				}
			}
		}
		client.ZRem(ctx, members[n%len(members)][0], members[n%len(members)][1])
	case 2:
		fields := slices.Sorted(slices.Values(client.HKeys(ctx, h.base+"config").Val()))
		client.HDel(ctx, h.base+"config", fields[n%len(fields)])
	case 3:
		client.Del(ctx, h.base+"state")
	case 4:
		h.full(false)
		client.Set(ctx, h.base+"docs:"+docs[0].Collection, "x", 0)
	case 5:
		client.FlushAll(ctx)
	case 6:
		var members [][2]string
		for _, name := range slices.Sorted(slices.Values(h.names)) {
			for slot := range 3 {
				key := fmt.Sprintf("%sby%d:%s", h.base, slot, name)
				for _, entry := range client.ZRange(ctx, key, 0, -1).Val() {
					members = append(members, [2]string{key, entry})
				}
			}
		}
		client.ZRem(ctx, members[n%len(members)][0], members[n%len(members)][1])
	}
}
