package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// entriesOf are the entries of a property index, and how many of them the state has.
func (r *rig) entriesOf(slot int, collection string) (members []string, left string) {
	r.T.Helper()
	return r.Client.ZRange(ctx, r.Key(0, fmt.Sprintf("by%d:%s", slot, collection)), 0, -1).Val(),
		r.Client.HGet(ctx, r.Key(0, "state"), fmt.Sprintf("entries:%d:%s", slot, collection)).Val()
}

// TestEntries makes random changes of property indexes, and compares them with a plain model after each.
//
// Goes red if commit.lua loses its place in the arguments, or counts an entry twice that was there.
func TestEntries(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		rapid.Check(t, func(t *rapid.T) {
			r := newRig(t, s, 1, far)
			model := map[store.IndexOf]map[string]bool{}
			making := map[string]store.Making{}
			names := []string{"orders", "é.7"}
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				var changes []store.CollectionChanges
				for _, name := range names {
					c := store.CollectionChanges{Collection: name}
					if id := rapid.IntRange(0, 5).Draw(t, "id"); id > 0 {
						c.Changes = []store.Change{r.Change(name, strconv.Itoa(id), &store.Header{Ts: far, Etag: 1}, []byte("{}"))}
					}
					for slot := range rapid.IntRange(0, 3).Draw(t, "slots") {
						at := store.IndexOf{Collection: name, Slot: 2 * slot}
						c.Indexes = append(c.Indexes, drawIndex(t, at, model))
					}
					switch rapid.IntRange(0, 3).Draw(t, "making") {
					case 0:
						c.Making = &store.Making{}
						delete(making, name)
					case 1:
						m := store.Making{Slots: []int{2}, Index: 1, Score: 5, ID: "x"}
						c.Making, making[name] = &m, m
					}
					changes = append(changes, c)
				}
				r.Commit(0, nil, changes...)
				checkEntries(t, r, model, making, names)
			}
		})
	})
}

// drawIndex draws changes of a property index, and makes them in the model.
func drawIndex(t *rapid.T, at store.IndexOf, model map[store.IndexOf]map[string]bool) store.IndexChanges {
	x := store.IndexChanges{Slot: at.Slot, Unlink: rapid.IntRange(0, 9).Draw(t, "unlink") == 0}
	if x.Unlink || model[at] == nil {
		if x.Unlink {
			delete(model, at)
		}
		model[at] = map[string]bool{}
	}
	for _, entry := range rapid.SliceOfDistinct(rapid.StringMatching(`[a-f\x00\xff]`), rapid.ID).Draw(t, "entries") {
		if rapid.Bool().Draw(t, "add") {
			x.Add = append(x.Add, entry)
			model[at][entry] = true
		} else {
			x.Remove = append(x.Remove, entry)
			delete(model[at], entry)
		}
	}
	return x
}

func checkEntries(t *rapid.T, r *rig, model map[store.IndexOf]map[string]bool, making map[string]store.Making,
	names []string) {
	var all []store.IndexOf
	for at, want := range model {
		all = append(all, at)
		got, left := r.entriesOf(at.Slot, at.Collection)
		if diff := cmp.Diff(append([]string{}, slices.Sorted(maps.Keys(want))...), got); diff != "" {
			t.Fatalf("slot %d of %s:\n%s", at.Slot, at.Collection, diff)
		}
		if number := fmt.Sprint(len(want)); left != number && (left != "" || len(want) > 0) {
			t.Fatalf("the state has %q entries of slot %d of %s, want %s", left, at.Slot, at.Collection, number)
		}
	}
	if err := r.Shards[0].Verify(ctx, r.At[0].Version, names, all...); err != nil {
		t.Fatal(err)
	}
	state, err := r.Shards[0].Load(ctx)
	if err != nil || fmt.Sprint(state.Making) != fmt.Sprint(making) {
		t.Fatalf("loaded as being made is %v, %v, want %v", state.Making, err, making)
	}
}

// TestManyEntries has more entries in one commit than Lua's unpack accepts.
func TestManyEntries(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		some := make([]string, 9000)
		for i := range some {
			some[i] = fmt.Sprintf("%05d", i)
		}
		change := func(x store.IndexChanges) {
			r.Commit(0, nil, store.CollectionChanges{Collection: "orders", Indexes: []store.IndexChanges{x}})
		}
		for want, x := range map[string]store.IndexChanges{"9000": {Slot: 1, Add: some}, "": {Slot: 2, Remove: some}} {
			change(x)
			if got, left := r.entriesOf(x.Slot, "orders"); left != want || want != "" && !slices.Equal(got, some) {
				t.Errorf("there are %d entries, and the state has %q", len(got), left)
			}
		}
		change(store.IndexChanges{Slot: 1, Remove: some[1:]})
		if got, left := r.entriesOf(1, "orders"); left != "1" || !slices.Equal(got, some[:1]) {
			t.Errorf("there are %d entries, and the state has %q", len(got), left)
		}
	})
}

// TestEntriesOfDrops: a drop of either kind removes the entries that it names, and the collection of the same name that
// comes next has none of them.
func TestEntriesOfDrops(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, moves := range []bool{false, true} {
			r := newRig(t, s, 1, far)
			h := store.Header{Ts: 1, Etag: 1}
			put := store.CollectionChanges{Collection: "orders", Changes: []store.Change{{ID: "a", New: &h, Body: []byte("{}")}},
				Indexes: []store.IndexChanges{{Slot: 0, Add: []string{"1a"}}, {Slot: 5, Add: []string{"2a", "3a"}}},
				Making:  &store.Making{Slots: []int{5}, Index: 1}}
			r.Commit(0, nil, put)
			drop := store.CollectionChanges{Collection: "orders", Drop: store.DropAll, Making: &store.Making{},
				Indexes: []store.IndexChanges{{Slot: 0, Unlink: true}, {Slot: 5, Unlink: true}}}
			changes := []store.CollectionChanges{drop}
			if moves {
				changes[0].Drop = store.DropMoves
				changes = append(changes, store.CollectionChanges{Collection: "orders.2"})
			}
			r.Commit(0, nil, changes...)
			for key, value := range r.Dump() {
				if key != r.Key(0, "state") && (!moves || key != r.Key(0, "docs:orders.2") && key != r.Key(0, "inherit:orders.2")) {
					t.Errorf("moves %t: %s is left: %s", moves, key, value)
				}
			}
			for field := range r.Client.HGetAll(ctx, r.Key(0, "state")).Val() {
				if len(field) > 6 && (field[:7] == "entries" || field[:6] == "making") {
					t.Errorf("moves %t: the state has %s", moves, field)
				}
			}
			r.Commit(0, nil, put)
			if got, left := r.entriesOf(5, "orders"); len(got) != 2 || left != "2" {
				t.Errorf("moves %t: the next collection has %q, %s", moves, got, left)
			}
		}
	})
}

// TestDamagedEntries: if Redis has lost entries, the next commit that changes them and Verify return ErrDamaged, and
// nothing of the commit is applied. A key of another type is foreign.
func TestDamagedEntries(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for name, tt := range map[string]struct {
			do   func(r *rig, key string)
			want error
		}{
			"all are gone":    {func(r *rig, key string) { r.Client.Del(ctx, key) }, store.ErrDamaged},
			"one is gone":     {func(r *rig, key string) { r.Client.ZRem(ctx, key, "1a") }, store.ErrDamaged},
			"one is too many": {func(r *rig, key string) { r.Client.ZAdd(ctx, key, redis.Z{Member: "9"}) }, store.ErrDamaged},
			"the number is gone": {func(r *rig, _ string) { r.Client.HDel(ctx, r.Key(0, "state"), "entries:3:orders") },
				store.ErrDamaged},
			"another type": {func(r *rig, key string) {
				r.Client.Del(ctx, key)
				r.Client.Set(ctx, key, "x", 0)
			}, store.ErrForeign},
		} {
			r := newRig(t, s, 1, far)
			add := func(entries ...string) store.CollectionChanges {
				return store.CollectionChanges{Collection: "orders", Indexes: []store.IndexChanges{{Slot: 3, Add: entries}}}
			}
			r.Commit(0, nil, add("1a", "2b"))
			tt.do(r, r.Key(0, "by3:orders"))
			before := r.Dump()
			h := store.Header{Ts: far, Etag: 9}
			err := r.Shards[0].Commit(ctx, r.Next(0), []store.ConfigChange{{Collection: "other", Config: &store.Config{}}},
				[]store.CollectionChanges{
					{Collection: "fine", Changes: []store.Change{r.Change("fine", "c", &h, []byte("{}"))}, Making: &store.Making{}},
					add("3c"),
				})
			wantErr(t, err, tt.want, name+": commit")
			if diff := cmp.Diff(before, r.Dump()); diff != "" {
				t.Errorf("%s: something of the commit was applied:\n%s", name, diff)
			}
			wantErr(t, r.Shards[0].Verify(ctx, r.At[0].Version, []string{"fine"}, store.IndexOf{Collection: "fine"},
				store.IndexOf{Collection: "orders", Slot: 3}), tt.want, name+": verify")
		}
	})
}

// TestG9_EntriesOutOfMemory: a Redis that is full accepts a step that only removes entries, with their documents or
// with the whole index, and refuses one that adds some.
func TestG9_EntriesOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	r := newRig(t, server, 1, far)
	h := store.Header{Ts: 1, Etag: 1}
	indexes := func(x ...store.IndexChanges) store.CollectionChanges {
		return store.CollectionChanges{Collection: "orders", Indexes: x}
	}
	put := indexes(store.IndexChanges{Slot: 0, Add: []string{"1a", "1b"}}, store.IndexChanges{Slot: 1,
		Add: []string{"2a"}})
	put.Changes = []store.Change{{ID: "a", New: &h, Body: []byte("{}")}}
	r.Commit(0, nil, put)
	if err := server.Client.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	before := r.Dump()
	err := r.Shards[0].Commit(ctx, r.Next(0), nil,
		[]store.CollectionChanges{indexes(store.IndexChanges{Slot: 0, Add: []string{"1c"}})})
	wantErr(t, err, store.ErrFull, "adding an entry")
	if diff := cmp.Diff(before, r.Dump()); diff != "" {
		t.Fatalf("something was applied:\n%s", diff)
	}
	remove := indexes(store.IndexChanges{Slot: 0, Remove: []string{"1a"}})
	remove.Changes = []store.Change{{ID: "a", Old: &h}}
	r.Commit(0, nil, remove)
	r.Commit(0, nil, indexes(store.IndexChanges{Slot: 0, Remove: []string{"1b"}}, store.IndexChanges{Slot: 1,
		Unlink: true}))
	if got, left := r.entriesOf(0, "orders"); len(got) > 0 || left != "" {
		t.Errorf("%q are left, %s", got, left)
	}
}
