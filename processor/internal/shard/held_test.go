//go:build held

package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// byAnother lets another process do something, and then goes on with this one.
func (r *rig) byAnother(do func()) {
	r.t.Helper()
	own := r.Owner
	r.restart()
	do()
	r.Owner = own
}

// TestHeldReplace: another process stores a checkpoint while a process replaces it. One of the two fails, so that the
// other does not go on from a checkpoint that is gone.
func TestHeldReplace(t *testing.T) {
	held.Each(t, "processor/internal/shard.Checkpoints.Replace", held.Takeover, func(t *testing.T, during func(func())) {
		r, happened := newRig(t), false
		during(func() {
			happened = true
			if err := r.Checkpoints.Replace(context.Background(), Checkpoint{Seq: 9}); err != nil {
				t.Error(err)
			}
		})
		want := uint64(5)
		if err := r.Checkpoints.Replace(t.Context(), Checkpoint{Seq: 5}); (err != nil) != happened {
			t.Errorf("it replaces one that it has not seen: %v", err)
		}
		if happened {
			want = 9
		}
		if c, err := r.Checkpoints.Load(t.Context()); err != nil || c.Seq != want {
			t.Errorf("the checkpoint is %+v, %v", c, err)
		}
	})
}

// TestHeldPublish: another process takes the shard over while an owner makes sure that it may publish. The stream has
// each event once, and none behind the fence of the other (G1).
func TestHeldPublish(t *testing.T) {
	for _, operation := range []string{"refence"} {
		held.Each(t, "processor/internal/shard.Announcer."+operation, held.Takeover,
			func(t *testing.T, during func(func())) {
				r, happened := newRig(t), false
				r.idle()
				ttlOf1(r)
				r.write(start, "a", `{}`)
				r.idle()
				r.MaxAge = 2 // each fence is old
				r.passTime(start + 1000)
				during(func() {
					r.byAnother(func() {
						if happened = true; r.takeOver() == nil {
							r.idle()
						}
					})
				})
				err := r.try()
				if err != nil && (!happened || !errors.Is(err, store.ErrFenced) && !errors.Is(err, events.ErrLost)) {
					t.Errorf("it fails with %v", err)
				}
				r.restart()
				r.idle()
				same(t, "events", r.expired(), []string{"a"})
				same(t, "documents", r.documents(), []string{})
			})
	}
}

// TestHeldBeginAnew: a second process carries out the same decision while one does. Whoever is first, the shard begins
// anew once, from where the log begins, and publishes nothing twice.
func TestHeldBeginAnew(t *testing.T) {
	for _, operation := range []string{"BeginAnew", "beginAnew"} {
		held.Each(t, "processor/internal/shard.Owner."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.write(start, "expired", `{}`)
			r.passTime(start + 1000)
			r.idle()
			r.write(start+1000, "lost", `{"ttl":-1}`)
			first := r.write(start+1000, "new", `{"ttl":-1}`)
			r.restart()
			r.truncate(first.Seq)
			accepted := Accepted{Losses: []streams.Loss{streams.LostLogBeginning}, RedisIsSaved: true}
			during(func() {
				r.byAnother(func() {
					if _, left, err := r.BeginAnew(context.Background(), accepted); left != nil || err != nil {
						t.Errorf("the other: %v, %v", left, err)
					}
				})
			})
			if _, left, err := r.BeginAnew(t.Context(), accepted); left != nil {
				t.Errorf("it is refused: %v", left)
			} else if err != nil {
				t.Logf("it is to be called again: %v", err)
				r.restart()
				if _, left, err := r.BeginAnew(t.Context(), accepted); left != nil || err != nil {
					t.Fatalf("once more: %v, %v", left, err)
				}
			}
			r.restart()
			if err := r.takeOver(); err != nil {
				t.Fatal(err)
			}
			r.idle()
			same(t, "documents", r.documents(), []string{"new"})
			same(t, "events", r.expired(), []string{"expired"})
		})
	}
}

// TestHeldClear: another process takes the shard over while an owner clears it, to load a snapshot, and while it loads
// that. The former owner ends with an error, and the shard has all documents once somebody has loaded them.
func TestHeldClear(t *testing.T) {
	was := entriesAtOnce
	entriesAtOnce = 3
	t.Cleanup(func() { entriesAtOnce = was })
	for _, operation := range []string{"Owner.clear", "loader.Load"} {
		held.Each(t, "processor/internal/shard."+operation, held.Takeover, func(t *testing.T, during func(func())) {
			r, happened := newRig(t), false
			r.idle()
			ttlOf1(r)
			var want []string
			for n := range 9 {
				want = append(want, fmt.Sprint("d", n))
				r.write(start, want[n], `{"ttl":-1}`)
			}
			r.passTime(start + 1000)
			r.idle()
			r.snapshot()
			r.idle()
			last := r.sent[len(r.sent)-1]
			r.truncate(last.Seq)
			r.sent = r.sent[:0]
			r.wipe()
			r.restart()
			during(func() {
				r.byAnother(func() {
					happened = true
					r.idle()
				})
			})
			if err := r.try(); (err != nil) != happened || err != nil && !errors.Is(err, store.ErrFenced) {
				t.Errorf("the former owner ends with %v", err)
			}
			r.abandon(errEnds) // the load, as Run does
			r.restart()
			r.idle()
			same(t, "documents", r.documents(), want)
		})
	}
}
