//go:build held

package region

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
)

// memory are the records of snapshots, in memory. It implements [snapshot.Records].
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	last   uint64
	at     map[string]uint64
}

// Is implements [snapshot.Records].
func (*memory) Is(string, uint64) bool { return true }

// Value implements [snapshot.Records].
func (r *memory) Value(_ context.Context, key string) ([]byte, uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[key], r.at[key], nil
}

// Update implements [snapshot.Records].
func (r *memory) Update(_ context.Context, key string, value []byte, revision uint64) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[key] != revision {
		return 0, errors.New("wrong last sequence")
	}
	r.last++
	r.values[key], r.at[key] = value, r.last
	return r.last, nil
}

// TestHeldContinues: the first region takes other snapshots, or their objects are lost, while the follower looks for
// one that continues the log. It finds one only if that is whole here: else it would truncate the log, and a Redis that
// is lost could be restored from nothing.
func TestHeldContinues(t *testing.T) {
	for _, kind := range []held.Kind{held.Write, held.Restart} {
		held.Each(t, "processor/internal/region.Follower.continues", kind, func(t *testing.T, during func(func())) {
			objects := &snapshot.Memory{}
			store := snapshot.NewStore(objects, &memory{values: map[string][]byte{}, at: map[string]uint64{}}, 0, "1",
				func(crash.Point) error { return nil })
			desk := snapshot.NewDesk(store)
			take := func(offset uint64) {
				t.Helper()
				done := make(chan struct{})
				go func() {
					defer close(done)
					for t.Context().Err() == nil {
						if w := desk.Order(); w != nil {
							w.Add(snapshot.Entry{Kind: snapshot.Put, Collection: "c", ID: "1", Value: []byte("x")})
							w.Finish(snapshot.Manifest{Offset: offset})
							return
						}
					}
				}()
				if _, err := desk.Take(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
				<-done
			}
			take(10)
			take(20)
			f := newFollower(t)
			f.Snapshots = store
			lost := false
			during(func() {
				if kind == held.Write {
					take(30)
					take(40)
					return
				}
				lost = true
				names, err := objects.Names(t.Context())
				if err != nil {
					t.Error(err)
				}
				for _, name := range names {
					if err := objects.Put(t.Context(), name, []byte("damaged")); err != nil {
						t.Error(err)
					}
				}
			})
			found, err := f.continues(t.Context(), 15)
			if err != nil {
				t.Error(err)
			}
			whole := false
			all, err := store.Generations(t.Context())
			if err != nil && !errors.Is(err, snapshot.ErrDamaged) {
				t.Error(err)
			}
			for _, m := range all {
				whole = whole || m.Offset+1 >= 15 && store.Verify(t.Context(), m) == nil
			}
			if found && !whole {
				t.Errorf("the log would be truncated, and no snapshot is whole (lost: %t)", lost)
			}
			if again, err := f.continues(t.Context(), 15); err != nil || again != !lost {
				t.Errorf("afterwards it finds one: %t, %v (lost: %t)", again, err, lost)
			}
		})
	}
}
