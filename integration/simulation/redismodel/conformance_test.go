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
	"github.com/seed18712806/lapse/ttlrules"
)

var ctx = context.Background()

const (
	histories = 12 // on each server
	steps     = 120
)

// history is random operations of an owner, of readers, and of what damages a partition, on
// the model and on a server.
type history struct {
	*testing.T
	*rand.Rand
	model   *redismodel.Server
	rig     *storetest.Rig
	base    string // of the keys
	done    []string
	at      store.Progress // after the last commit
	names   []string       // of collections
	mode    map[string]int // of the index of a collection: on, draining, off
	known   map[string]map[string]store.Header
	foreign string // key
}

// The modes of an index.
const (
	on = iota
	draining
	off
)

// TestConformance: the model answers as Redis and miniredis do.
//
// It fails if one effect or error of sink/store is another in the model.
func TestConformance(t *testing.T) {
	redistest.OnBoth(t, func(t *testing.T, s redistest.Server) {
		for range histories {
			seed := rand.Uint64()
			h := &history{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), known: map[string]map[string]store.Header{}, mode: map[string]int{}, names: []string{"a", "b", "c"}}
			watermark := []int64{storetest.Far, time.Now().Add(-time.Hour).UnixMilli()}[h.IntN(2)]
			h.rig = storetest.New(t, s, 1, watermark)
			h.base = h.rig.Key(0, "")
			h.at = h.rig.At[0]
			h.model = redismodel.New(redismodel.Options{Now: time.Now, Partitions: 1})
			if err := h.model.Partition(0).Take(ctx, store.State{Log: "log", Watermark: watermark}, h.at.Version, 0); err != nil {
				t.Fatal(err)
			}
			for range steps {
				if h.step(); t.Failed() {
					t.Fatalf("with seed %d, after\n%s", seed, strings.Join(h.done, "\n"))
				}
			}
			h.full(false)
		}
	})
}

// kinds are the errors that a caller tells apart.
var kinds = []error{store.ErrFenced, store.ErrDamaged, store.ErrExists, store.ErrForeign, sink.ErrUnavailable, sink.ErrNotFound}

func kind(err error) string {
	for _, k := range kinds {
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
func (h *history) both(what string, do func(p processor.PartitionStore) (any, error)) error {
	want, wantErr := do(h.rig.Store.Partition(0))
	got, err := do(h.model.Partition(0))
	h.done = append(h.done, fmt.Sprintf("%s: %v", what, kind(err)))
	if diff := cmp.Diff(want, got); diff != "" || kind(err) != kind(wantErr) {
		h.Errorf("DIFF %s: error %v, want %v\n%s", what, err, wantErr, diff)
	}
	return err
}

func (h *history) oneIn(n int) bool { return h.IntN(n) == 0 }

func (h *history) name() string { return h.names[h.IntN(len(h.names))] }

func (h *history) id() string { return fmt.Sprint("id", h.IntN(12)) }

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
		h.takeOver()
	case n < 79:
		h.lose()
	case n < 82 && h.rig.Mini == nil:
		h.full(h.oneIn(2))
	case n < 83:
		removed := func(p processor.PartitionStore) (any, error) { return p.RemoveAside(ctx) }
		_ = h.both("remove aside", removed)
	}
	collection, id := h.name(), h.id()
	want, wantErr := h.rig.NewReader().Get(ctx, collection, id)
	got, err := h.model.Partition(0).Get(collection, id)
	if kind(err) != kind(wantErr) || err == nil && (want.ID != got.ID || uint64(want.Etag) != got.Header.Etag || int64(want.Ts) != got.Header.Ts || string(want.Body) != got.Body || !cmp.Equal(want.ExpiresAt, got.ExpiresAt)) {
		h.Errorf("get %s/%s: %v, %v; want %v, %v", collection, id, got, err, want, wantErr)
	}
	state, err := h.model.Partition(0).Load(ctx)
	if err != nil || h.oneIn(20) {
		h.rebuild(state)
	}
}

func (h *history) full(full bool) {
	if h.rig.Mini == nil {
		h.model.Full(full)
		h.rig.Client.ConfigSet(ctx, "maxmemory", map[bool]string{true: "1", false: "0"}[full])
		h.done = append(h.done, fmt.Sprint("full: ", full))
	}
}

func (h *history) header() store.Header {
	ttl := []ttlrules.TTL{ttlrules.Inherit, ttlrules.Inherit, ttlrules.Never, 1, ttlrules.TTL(h.IntN(30) + 1), 86400}[h.IntN(6)]
	return store.Header{Ts: h.at.Watermark + int64(h.IntN(5)-3)*1000, Etag: h.Uint64N(1 << 40), TTL: ttl, Trace: strings.Repeat("t", h.IntN(3))}
}

func (h *history) commit() {
	pr := h.at
	pr.Version, pr.Next = h.version(), fmt.Sprint("v", h.Uint64())
	pr.Offset, pr.Watermark = pr.Offset+1, pr.Watermark+int64(h.IntN(3)*1000)
	pr.Stamp, pr.Rebuild = store.Stamp{Seq: h.Uint64N(3), At: 5}, uint64(max(0, h.IntN(12)-10))
	var configs []store.ConfigChange
	if h.oneIn(5) {
		c := store.Config{NoIndex: h.oneIn(4), Building: h.oneIn(4), Lazy: h.oneIn(4), Etag: h.Uint64N(9)}
		for i := range h.IntN(3) {
			c.History = c.History.With(pr.Watermark-5000+int64(i)*3000, uint64(i), []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 1, 4}[h.IntN(4)])
		}
		configs = []store.ConfigChange{{Collection: h.name(), Config: &c}}
		if h.oneIn(4) {
			configs[0].Config = nil
		}
	}
	mode := map[string]int{}
	var changes []store.CollectionChanges
	for _, i := range h.Perm(len(h.names))[:h.IntN(3)] {
		c := h.change(h.names[i], mode)
		changes = append(changes, c)
		if c.Drop == store.DropMoves {
			changes = append(changes, store.CollectionChanges{Collection: fmt.Sprint(c.Collection, ".", pr.Offset)})
		}
	}
	what := fmt.Sprintf("commit %+v %+v %+v", pr, configs, changes)
	err := h.both(what, func(p processor.PartitionStore) (any, error) {
		there := slices.Clone(changes)
		err := p.Commit(ctx, pr, configs, there)
		return there, err // with Emptied
	})
	if err != nil {
		return
	}
	pr.Version = pr.Next
	h.at = pr
	for name, m := range mode {
		h.mode[name] = m
	}
	for i, c := range changes {
		switch c.Drop {
		case store.DropAll:
			h.known[c.Collection] = nil
		case store.DropMoves:
			to := changes[i+1].Collection
			h.known[to], h.known[c.Collection], h.mode[to] = h.known[c.Collection], nil, h.mode[c.Collection]
			h.names = append(h.names, to)
		}
		for _, ch := range c.Changes {
			if h.known[c.Collection] == nil {
				h.known[c.Collection] = map[string]store.Header{}
			}
			delete(h.known[c.Collection], ch.ID)
			if ch.New != nil {
				h.known[c.Collection][ch.ID] = *ch.New
			}
		}
	}
}

// change is a change of a collection as an owner makes it, and maybe a new mode of its index.
func (h *history) change(name string, mode map[string]int) store.CollectionChanges {
	c := store.CollectionChanges{Collection: name, Fresh: h.oneIn(6), NoIndex: h.mode[name] != on, Draining: h.mode[name] == draining}
	switch h.IntN(40) {
	case 0:
		c.Drop = store.DropAll
	case 1:
		c.Drop = store.DropMoves
		return c
	case 2:
		c.Drop, c.NoIndex, c.Draining, mode[name] = store.DropIndex, true, false, off
	case 3:
		mode[name] = on
	case 4:
		if h.mode[name] == on {
			mode[name] = draining
		}
	}
	for _, i := range h.Perm(12)[:h.IntN(7)] {
		ch := store.Change{ID: fmt.Sprint("id", i)}
		old, stored := h.known[name][ch.ID]
		if stored {
			ch.Old = &old
		}
		if header := h.header(); !stored || !h.oneIn(4) {
			ch.New = &header
		}
		if renews := stored && h.oneIn(3) || h.oneIn(60); !renews && ch.New != nil {
			ch.Body = []byte(strings.Repeat("x", h.IntN(40)))
		}
		if stored && ch.New == nil && !c.Fresh && h.mode[name] == on && c.Drop == store.DropNothing && h.oneIn(3) {
			c.Index = append(c.Index, store.Change{ID: ch.ID, Old: &old}) // it is built instead
			continue
		}
		c.Changes = append(c.Changes, ch)
	}
	return c
}

// read does what changes nothing.
func (h *history) read() {
	version, name := h.version(), h.name()
	wants := []store.Want{{Collection: name, Headers: []string{h.id(), h.id()}, Whole: []string{h.id()}}, {Collection: "none"}, {Collection: h.name(), Whole: []string{h.id()}}}
	_ = h.both(fmt.Sprint("read ", wants), func(p processor.PartitionStore) (any, error) { return p.Read(ctx, version, wants) })
	_ = h.both("verify", func(p processor.PartitionStore) (any, error) { return nil, p.Verify(ctx, version, h.names) })
	_ = h.both("load", func(p processor.PartitionStore) (any, error) { return p.Load(ctx) })
	_ = h.both("leftovers", func(p processor.PartitionStore) (any, error) {
		keys, err := p.Leftovers(ctx)
		for i, k := range keys {
			_, keys[i], _ = strings.Cut(k, "}:")
		}
		return keys, err
	})
	cut := func() int64 {
		return []int64{ttlrules.NoCut, math.MaxInt64, h.at.Watermark, h.at.Watermark - 2000}[h.IntN(4)]
	}
	var cuts []store.Cut
	for _, i := range h.Perm(len(h.names))[:min(3, len(h.names))] {
		cuts = append(cuts, store.Cut{Collection: h.names[i], Cuts: ttlrules.Cuts{Inherit: cut(), Own: cut()}})
	}
	limit, bytes, whole := []int{0, 1, 3, 5, 100}[h.IntN(5)], []int{1, 60, 200, 1 << 20}[h.IntN(4)], h.oneIn(2)
	_ = h.both(fmt.Sprintf("due %v %d %d %t", cuts, limit, bytes, whole), func(p processor.PartitionStore) (any, error) {
		return p.Due(ctx, version, cuts, limit, bytes, whole)
	})
	count := h.IntN(5) + 1
	_ = h.both("scan "+name, func(p processor.PartitionStore) (any, error) {
		var all []store.Change
		for cursor := ""; cursor != "0"; {
			if cursor == "" {
				cursor = "0"
			}
			some, next, _, err := p.Scan(ctx, version, name, cursor, count)
			if err != nil {
				return nil, err
			}
			all, cursor = append(all, some...), next
		}
		slices.SortFunc(all, func(a, b store.Change) int { return strings.Compare(a.ID, b.ID) })
		return slices.CompactFunc(all, func(a, b store.Change) bool { return a.ID == b.ID }), nil
	})
}

func (h *history) takeOver() {
	s, next := store.State{Version: h.version()}, fmt.Sprint("taken", h.Uint64())
	rebuild, refuse := []uint64{0, 0, 0, 7, store.Clearing}[h.IntN(5)], h.oneIn(8)
	err := h.both("take", func(p processor.PartitionStore) (any, error) {
		if refuse {
			return nil, p.Refuse(ctx, s, next)
		}
		return nil, p.Take(ctx, s, next, rebuild)
	})
	if err == nil {
		h.at.Version = next
	}
}

// rebuild takes over from a state, and begins anew.
func (h *history) rebuild(s store.State) {
	taken, aside := fmt.Sprint("taken", h.Uint64()), h.oneIn(3)
	next := store.State{Version: fmt.Sprint("begun", h.Uint64()), Log: "log", Offset: h.at.Offset, Watermark: h.at.Watermark, Stamp: store.Stamp{Seq: h.Uint64N(2), At: 3}}
	err := h.both("take to rebuild", func(p processor.PartitionStore) (any, error) { return nil, p.Take(ctx, s, taken, store.Clearing) })
	if err != nil {
		h.full(false)
		return
	}
	h.at.Version = taken
	err = h.both("rebuild", func(p processor.PartitionStore) (any, error) {
		if aside {
			return nil, p.SetAside(ctx, taken, next, 0)
		}
		return nil, p.Clear(ctx, taken, next, 0)
	})
	if err == nil {
		h.at.Version, h.foreign = next.Version, ""
		clear(h.known)
	}
}

// lose damages both sides in the same way.
func (h *history) lose() {
	p, n, client := h.model.Partition(0), h.IntN(100), h.rig.Client
	docs := p.Documents()
	what := h.IntN(7)
	h.done = append(h.done, fmt.Sprint("lose ", what))
	switch {
	case what == 0 && p.LoseDocument(n):
		client.HDel(ctx, h.base+"docs:"+docs[n%len(docs)].Collection, docs[n%len(docs)].ID)
	case what == 1:
		var members [][2]string
		slices.Sort(h.names)
		for _, name := range h.names {
			for _, key := range []string{h.base + "inherit:" + name, h.base + "own:" + name} {
				for _, m := range client.ZRange(ctx, key, 0, -1).Val() {
					members = append(members, [2]string{key, m})
				}
			}
		}
		if p.LoseIndexMember(n) {
			client.ZRem(ctx, members[n%len(members)][0], members[n%len(members)][1])
		}
	case what == 2 && p.LoseConfig(n):
		fields := client.HKeys(ctx, h.base+"config").Val()
		slices.Sort(fields)
		client.HDel(ctx, h.base+"config", fields[n%len(fields)])
	case what == 3 && p.LoseState():
		client.Del(ctx, h.base+"state")
	case what == 4 && h.foreign == "" && p.PutForeign():
		h.full(false)
		h.foreign = h.base + "docs:" + docs[0].Collection
		client.Set(ctx, h.foreign, "x", 0)
	case what == 5 && h.foreign != "" && p.RemoveForeign():
		client.Del(ctx, h.foreign)
		h.foreign = ""
	case what == 6 && h.oneIn(4):
		h.model.Flush()
		client.FlushDB(ctx)
	}
}
