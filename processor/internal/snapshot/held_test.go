//go:build held

package snapshot

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/held"
)

// manyChunks are the entries of a snapshot with several chunks.
func manyChunks() []Entry { return documents(800, 1000) }

// takeSome takes snapshots at offsets, one after the other.
func (r *rig) takeSome(t *testing.T, offsets ...uint64) {
	t.Helper()
	for _, offset := range offsets {
		if _, err := r.take(t, offset, manyChunks()); err != nil {
			t.Error(err)
		}
	}
}

// good checks that there are two generations, the newer one at an offset, and that both can be used.
func (r *rig) good(t *testing.T, offset uint64) {
	t.Helper()
	all, err := r.Generations(t.Context())
	if err != nil || len(all) != Kept || all[0].Offset != offset {
		t.Fatalf("there are %v, %v", all, err)
	}
	for _, m := range all {
		if err := r.Verify(t.Context(), m); err != nil {
			t.Error(err)
		}
		if !same(r.load(t, m), manyChunks()) {
			t.Errorf("the snapshot at %d has other entries", m.Offset)
		}
	}
}

// TestHeldVerify: another owner takes snapshots while a process verifies one, which is removed then. It is whole, or
// damaged, and no other error keeps the shard from the next one; those that were taken are whole.
func TestHeldVerify(t *testing.T) {
	held.Each(t, "processor/internal/snapshot.Store.Verify", held.Takeover, func(t *testing.T, during func(func())) {
		r, newest := newRig(), uint64(2)
		r.takeSome(t, 1, 2)
		all, err := r.Generations(t.Context())
		if err != nil || len(all[0].Chunks) < 3 {
			t.Fatalf("%v, %v", all, err)
		}
		during(func() { r.takeSome(t, 3, 4); newest = 4 })
		if err := r.Verify(t.Context(), all[0]); err != nil && !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
		r.good(t, newest)
	})
}

// TestHeldEntries: another owner takes snapshots while a process loads one, which is removed then. The load gets the
// entries in their order up to an error, and never ends early without one: it would leave documents out.
func TestHeldEntries(t *testing.T) {
	held.Each(t, "processor/internal/snapshot.Store.Entries", held.Takeover, func(t *testing.T, during func(func())) {
		r, want := newRig(), manyChunks()
		r.takeSome(t, 1, 2)
		all, err := r.Generations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		happened := false
		during(func() { r.takeSome(t, 3, 4); happened = true })
		n, failed := 0, error(nil)
		for e, err := range r.Entries(t.Context(), all[0]) {
			if failed = err; err != nil {
				break
			}
			if n >= len(want) || !same([]Entry{e}, want[n:n+1]) {
				t.Fatalf("entry %d is another one", n)
			}
			n++
		}
		if failed == nil && n != len(want) || failed != nil && (!happened || !errors.Is(failed, ErrDamaged)) {
			t.Errorf("it has %d of %d entries, and ends with %v", n, len(want), failed)
		}
	})
}

// TestHeldForget: another owner takes a snapshot while a process forgets those up to another one. What was recorded
// since is not forgotten, whenever the process asks.
func TestHeldForget(t *testing.T) {
	held.Each(t, "processor/internal/snapshot.Store.Forget", held.Takeover, func(t *testing.T, during func(func())) {
		r, happened := newRig(), false
		r.takeSome(t, 1, 2)
		during(func() { r.takeSome(t, 3); happened = true })
		if err := r.Forget(t.Context(), 2); (err != nil) != happened {
			t.Errorf("forgets: %v", err)
		}
		if happened {
			r.good(t, 3)
			if err := r.Forget(t.Context(), 2); err != nil {
				t.Error(err)
			}
			r.good(t, 3)
		}
		if err := r.Forget(t.Context(), 3); err != nil {
			t.Error(err)
		}
		if all, err := r.Generations(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("there are %v, %v", all, err)
		}
	})
}

// TestHeldSweep: another owner takes a snapshot while a process removes what no record names. It removes nothing of the
// new one (O2), and what it leaves goes with the next sweep (O3).
func TestHeldSweep(t *testing.T) {
	for _, operation := range []string{"Sweep", "sweep"} {
		held.Each(t, "processor/internal/snapshot.Store."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r, newest := newRig(), uint64(2)
			r.takeSome(t, 1, 2)
			if err := r.Forget(t.Context(), 2); err != nil {
				t.Fatal(err)
			}
			r.takeSome(t, 2, 2)
			for generation := range uint64(3) { // which no record names
				if err := r.objects.Put(t.Context(), objectName(3, generation, "0"), nil); err != nil {
					t.Fatal(err)
				}
			}
			during(func() { r.takeSome(t, 3, 4); newest = 4 })
			if err := r.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			r.good(t, newest)
			if left, err := r.Leftovers(t.Context()); err != nil || left {
				t.Errorf("something is left: %t, %v", left, err)
			}
		})
	}
}

// failing are Objects whose next call fails, as when the connection is lost.
type failing struct {
	*Memory
	fails bool
}

func (o *failing) Get(ctx context.Context, name string) ([]byte, error) {
	if o.fails {
		o.fails = false
		return nil, errors.New("the connection is lost")
	}
	return o.Memory.Get(ctx, name)
}

// TestHeldVerifyReconnects: the connection is lost between two chunks. The snapshot is not taken for damaged: a shard
// would be loaded from an older one, or not at all.
func TestHeldVerifyReconnects(t *testing.T) {
	held.Each(t, "processor/internal/snapshot.Store.Verify", held.Reconnection, func(t *testing.T, during func(func())) {
		r := newRig()
		r.takeSome(t, 1, 2)
		all, err := r.Generations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		objects := &failing{Memory: r.objects}
		r.Store.objects = objects
		during(func() { objects.fails = true })
		began := time.Now()
		if err := r.Verify(t.Context(), all[0]); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}
