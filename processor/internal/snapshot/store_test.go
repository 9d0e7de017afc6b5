package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// memoryRecords are Records in memory.
type memoryRecords struct {
	mu     sync.Mutex
	values map[string][]byte
	last   uint64
	at     map[string]uint64
}

func (r *memoryRecords) Is(log string, _ uint64) bool { return log == "1" }

func (r *memoryRecords) Value(_ context.Context, key string) ([]byte, uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[key], r.at[key], nil
}

func (r *memoryRecords) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[key] != revision {
		return 0, errors.New("wrong last sequence")
	}
	r.last++
	r.values[key], r.at[key] = value, r.last
	return r.last, nil
}

// rig is a store in memory.
type rig struct {
	*Store
	objects *Memory
	desk    *Desk
	reached crash.Point // where to fail
}

func newRig() *rig {
	r := &rig{objects: &Memory{}}
	records := &memoryRecords{values: make(map[string][]byte), at: make(map[string]uint64)}
	r.Store = NewStore(r.objects, records, 3, "1", func(p crash.Point) error {
		if p == r.reached {
			return errors.New("crash " + string(p))
		}
		return nil
	})
	r.desk = NewDesk(r.Store)
	return r
}

// take takes a snapshot, as the owner of the shard does.
func (r *rig) take(t *testing.T, offset uint64, all []Entry) (wire.Generation, error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var w *Writer
		for w == nil && t.Context().Err() == nil {
			w = r.desk.Order()
		}
		if w == nil {
			return
		}
		for _, e := range all {
			for !w.Room() && !w.Failed() {
			}
			w.Add(e)
		}
		w.Finish(Manifest{Offset: offset, Configs: map[string]string{"c": "x"}})
	}()
	g, err := r.desk.Take(t.Context(), time.Now())
	<-done
	return g, err
}

func documents(n, size int) (all []Entry) {
	for i := range n {
		all = append(all, Entry{Kind: Put, Collection: "c", ID: fmt.Sprint("id", i),
			Value: []byte(strings.Repeat(fmt.Sprint(i, " "), size))})
	}
	return append(all, Entry{Kind: Renew, Collection: "c", ID: "id0", Value: []byte{0, 1}},
		Entry{Kind: Remove, Collection: "c", ID: "id1"},
		Entry{Kind: Drop, Collection: "d"}, Entry{Kind: Move, Collection: "c", Value: []byte("e")})
}

func (r *rig) load(t *testing.T, m *Manifest) (all []Entry) {
	t.Helper()
	for e, err := range r.Entries(t.Context(), m) {
		if err != nil {
			t.Fatal(err)
		}
		e.Value = slices.Clone(e.Value)
		all = append(all, e)
	}
	return all
}

func same(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool {
		return x.Kind == y.Kind && x.Collection == y.Collection && x.ID == y.ID && string(x.Value) == string(y.Value)
	})
}

// TestSnapshotsAreReadAsTheyWereWritten: the two newest generations count, and their entries are
// those that were added.
func TestSnapshotsAreReadAsTheyWereWritten(t *testing.T) {
	r := newRig()
	for n := range 4 {
		if _, err := r.take(t, uint64(n+1)*10, documents(n*2000, 300)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Generations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var offsets []uint64
	for _, m := range all {
		offsets = append(offsets, m.Offset)
	}
	if !cmp.Equal(offsets, []uint64{40, 30}) {
		t.Fatalf("generations at %v", offsets)
	}
	recorded, err := r.Recorded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all[0].Chunks) < 3 || all[0].Documents != 6000 {
		t.Errorf("%d documents in %d chunks", all[0].Documents, len(all[0].Chunks))
	}
	for i, n := range []int{3, 2} {
		bytes := uint64(0)
		for _, c := range all[i].Chunks {
			object, _ := r.objects.Get(t.Context(), c.Name)
			bytes += uint64(len(object))
		}
		if g := recorded[i]; all[i].Bytes != bytes || g.Bytes != bytes || g.Documents != all[i].Documents ||
			g.Offset != all[i].Offset || g.Taken != all[i].Taken || g.Begun > g.Taken {
			t.Errorf("the record has %+v of %+v with %d bytes", g, all[i], bytes)
		}
		if err := r.Verify(t.Context(), all[i]); err != nil {
			t.Error(err)
		}
		if !same(r.load(t, all[i]), documents(n*2000, 300)) {
			t.Errorf("generation %d has other entries", all[i].Generation)
		}
	}
	names, _ := r.objects.Names(t.Context())
	if want := len(all[0].Chunks) + len(all[1].Chunks) + 2; len(names) != want {
		t.Errorf("%d objects, want %d: %v", len(names), want, names)
	}
	other := NewStore(r.objects, r.records, 4, "1", nil)
	if all, err := other.Generations(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("another shard has %v, %v", all, err)
	}
	for range 5 { // each claim removes what does not count of its shard
		if _, err := other.claim(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := r.objects.Names(t.Context()); len(left) != len(names) {
		t.Errorf("another shard has left %v of %v", left, names)
	}
	if left, err := other.Leftovers(t.Context()); left || err != nil {
		t.Errorf("another shard has leftovers: %t, %v", left, err)
	}
}

// TestCrashLeavesNothingThatCounts: wherever the taking of a snapshot ends, the generations before
// are whole; and the next snapshot removes what is left.
func TestCrashLeavesNothingThatCounts(t *testing.T) {
	for _, point := range []crash.Point{crash.BeforeChunk, crash.AfterChunk, crash.BeforeManifest, crash.AfterManifest,
		crash.BeforeRecord, crash.AfterRecord} {
		t.Run(string(point), func(t *testing.T) {
			r := newRig()
			for n := range 2 {
				if _, err := r.take(t, uint64(n+1), documents(10, 10)); err != nil {
					t.Fatal(err)
				}
			}
			r.reached = point
			if _, err := r.take(t, 3, documents(5000, 300)); err == nil {
				t.Error("no error")
			}
			all, err := r.Generations(t.Context())
			want := []uint64{2, 1}
			if point == crash.AfterRecord {
				want = []uint64{3, 2}
			}
			if err != nil || len(all) != 2 || all[0].Offset != want[0] || all[1].Offset != want[1] {
				t.Fatalf("generations %v, %v", all, err)
			}
			for _, m := range all {
				if err := r.Verify(t.Context(), m); err != nil {
					t.Error(err)
				}
			}
			r.reached = ""
			if _, err := r.take(t, 4, documents(10, 10)); err != nil {
				t.Fatal(err)
			}
			all, _ = r.Generations(t.Context())
			names, _ := r.objects.Names(t.Context())
			if want := len(all[0].Chunks) + len(all[1].Chunks) + 2; len(names) != want || all[0].Offset != 4 ||
				all[1].Offset != want64(point) {
				t.Errorf("%d objects are left, want %d; generations at %d, %d", len(names), want, all[0].Offset, all[1].Offset)
			}
		})
	}
}

func want64(point crash.Point) uint64 {
	if point == crash.AfterRecord {
		return 3
	}
	return 2
}

// TestFormerOwnerRecordsNothing: of two owners that take a snapshot at the same time, the one that
// has begun later records its own; what the other does removes nothing of it.
func TestFormerOwnerRecordsNothing(t *testing.T) {
	r := newRig()
	former, err := r.claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.take(t, 7, documents(10, 10)); err != nil {
		t.Fatal(err)
	}
	w := newWriter()
	w.Add(documents(1, 1)[0])
	w.Finish(Manifest{Offset: 6})
	if _, err := r.run(t.Context(), w, former, time.Now()); !errors.Is(err, errSuperseded) {
		t.Errorf("error %v", err)
	}
	all, err := r.Generations(t.Context())
	if err != nil || len(all) != 1 || all[0].Offset != 7 {
		t.Fatalf("generations %v, %v", all, err)
	}
	if err := r.Verify(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
	// A sweep of the former owner, later.
	if err := r.sweep(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(t.Context(), all[0]); err != nil {
		t.Error(err)
	}
}

// TestDamagedSnapshots: damage of a chunk or a manifest is found, and named.
func TestDamagedSnapshots(t *testing.T) {
	spoil := func(object []byte) []byte { object[len(object)/2] ^= 1; return object }
	for _, c := range []struct {
		name, object string
		spoil        func([]byte) []byte
		manifest     bool
	}{
		{"chunk", "3.2.0", spoil, false},
		{"missing chunk", "3.2.1", nil, false},
		{"manifest", "3.2.manifest", spoil, true},
		{"missing manifest", "3.2.manifest", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig()
			for n := range 2 {
				if _, err := r.take(t, uint64(n+1), documents(4000, 300)); err != nil {
					t.Fatal(err)
				}
			}
			object, _ := r.objects.Get(t.Context(), c.object)
			r.objects.mu.Lock()
			delete(r.objects.objects, c.object)
			r.objects.mu.Unlock()
			if c.spoil != nil {
				_ = r.objects.Put(t.Context(), c.object, c.spoil(object))
			}
			all, err := r.Generations(t.Context())
			if c.manifest {
				if len(all) != 1 || all[0].Generation != 1 || !errors.Is(err, ErrDamaged) ||
					!strings.Contains(err.Error(), "generation 2:") {
					t.Errorf("generations %v, %v", all, err)
				}
				return
			}
			if err != nil || len(all) != 2 {
				t.Fatalf("generations %v, %v", all, err)
			}
			if err := r.Verify(t.Context(), all[0]); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.object) {
				t.Errorf("verified: %v", err)
			}
			var last error
			for _, err := range r.Entries(t.Context(), all[0]) {
				last = err
			}
			if !errors.Is(last, ErrDamaged) {
				t.Errorf("loaded: %v", last)
			}
			if err := r.Verify(t.Context(), all[1]); err != nil {
				t.Errorf("the generation before: %v", err)
			}
		})
	}
}

// TestWriterGivesUp: a store that takes nothing ends the snapshot; the owner never waits.
func TestWriterGivesUp(t *testing.T) {
	w := newWriter()
	for i := 0; !w.Failed(); i++ {
		if i > mostChunks*20 {
			t.Fatal("it takes changes without a bound")
		}
		w.Add(Entry{Kind: Put, Collection: "c", ID: "x", Value: make([]byte, 100_000)})
	}
	if !errors.Is(w.err(), errSlow) {
		t.Errorf("error %v", w.err())
	}
	buffered := len(w.buffer)
	w.Add(Entry{})
	if w.documents == 0 || len(w.buffer) != buffered {
		t.Error("a snapshot that was given up keeps changes")
	}
	w.Finish(Manifest{})
	w.Add(Entry{Kind: Put, Value: make([]byte, 2*chunkBytes)}) // it must not store a chunk either
	w.Abandon(errors.New("late"))
	r := newRig()
	claimed, _ := r.claim(t.Context())
	if _, err := r.run(t.Context(), w, claimed, time.Now()); !errors.Is(err, errSlow) {
		t.Errorf("error %v", err)
	}
}

// TestAbandoned: a snapshot that its owner abandons ends with the reason.
func TestAbandoned(t *testing.T) {
	r := newRig()
	why := errors.New("fenced")
	go func() {
		var w *Writer
		for w == nil {
			w = r.desk.Order()
		}
		w.Add(documents(1, 1)[0])
		w.Abandon(why)
	}()
	if _, err := r.desk.Take(t.Context(), time.Now()); !errors.Is(err, errAbandoned) || !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if all, err := r.Generations(t.Context()); len(all) > 0 || err != nil {
		t.Errorf("generations %v, %v", all, err)
	}
}

// TestNotBegun: an order that no owner takes in time ends with the reason, and no owner gets it later.
func TestNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		began := time.Now()
		if _, err := r.desk.Take(t.Context(), began); !errors.Is(err, errNotBegun) || time.Since(began) != beginWithin {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if w := r.desk.Order(); w != nil {
			t.Error("an owner gets the order, and nobody waits for the snapshot")
		}
		stopped := errors.New("stopped")
		ctx, cancel := context.WithTimeoutCause(t.Context(), beginWithin/2, stopped)
		defer cancel()
		if _, err := r.desk.Take(ctx, began); !errors.Is(err, stopped) {
			t.Errorf("nobody waits any more: %v", err)
		}
		if w := r.desk.Order(); w != nil {
			t.Error("an owner gets the order, and nobody waits any more")
		}
	})
}

// unreadable are Records that cannot be read.
type unreadable struct {
	Records
	err error
}

func (r unreadable) Value(context.Context, string) ([]byte, uint64, error) { return nil, 0, r.err }

// TestUnreadableRecord: a record that cannot be read is not taken for none, neither by a reader nor by an owner that
// takes a snapshot.
func TestUnreadableRecord(t *testing.T) {
	r := newRig()
	if _, err := r.take(t, 1, documents(3, 1)); err != nil {
		t.Fatal(err)
	}
	away := errors.New("no responders")
	r.records = unreadable{r.records, away}
	if all, err := r.Generations(t.Context()); !errors.Is(err, away) {
		t.Errorf("%d generations, %v", len(all), err)
	}
	if _, err := r.desk.Take(t.Context(), time.Now()); !errors.Is(err, away) {
		t.Errorf("takes a snapshot: %v", err)
	}
}

// silent are Objects that do not answer the first requests to read each object, as a server that
// restarts.
type silent struct {
	*Memory
	requests map[string]int
	unheard  int // requests for an object, before the first answer
}

func (o *silent) Get(ctx context.Context, name string) ([]byte, error) {
	if o.requests[name]++; o.requests[name] <= o.unheard {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return o.Memory.Get(ctx, name)
}

// TestReadsWithoutAnswers: somebody reads a snapshot, and some answers are lost. It fails if the reader
// waits for one for ever, or gives up after one. If no answer comes at all, the reader gets an error
// that does not say that the snapshot is damaged.
func TestReadsWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		all := documents(100, 1000)
		if _, err := r.take(t, 1, all); err != nil {
			t.Fatal(err)
		}
		r.Store.objects = &silent{r.objects, map[string]int{}, 1}
		manifests, err := r.Generations(t.Context())
		if err != nil || len(manifests) != 1 {
			t.Fatalf("%d manifests, %v", len(manifests), err)
		}
		if err := r.Verify(t.Context(), manifests[0]); err != nil {
			t.Error(err)
		}
		r.Store.objects = &silent{r.objects, map[string]int{}, 1}
		if got := r.load(t, manifests[0]); !same(got, all) {
			t.Errorf("%d entries, want %d", len(got), len(all))
		}
		r.Store.objects = &silent{r.objects, map[string]int{}, 100}
		if err := r.Verify(t.Context(), manifests[0]); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, ErrDamaged) {
			t.Errorf("without any answer: %v", err)
		}
	})
}
