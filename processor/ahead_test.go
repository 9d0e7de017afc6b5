package processor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/partition"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_WrongGuess: a batch is applied on the guess that the documents that it writes
// are new, and one is not. In the same step documents are due, and their events are
// published before Redis refuses the guess. The events are not published again, not even
// to a subscriber that does not use the stream, and the documents are reaped.
//
// Goes red if the refused step changes what the owner knows: its progress, the due queue,
// or which events are published.
func TestG3_WrongGuess(t *testing.T) {
	t.Parallel()
	for _, b := range withMiniredis {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, b, Options{Partitions: 1})
			var mu sync.Mutex
			heard := map[string]int{}
			if _, err := r.nc.Subscribe("lapse.expired.>", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				heard[m.Subject]++
			}); err != nil {
				t.Fatal(err)
			}
			var armed atomic.Bool
			held, release := make(chan struct{}), make(chan struct{})
			p := r.start(func(here crash.Point) error {
				if here == crash.BeforeCommit && armed.CompareAndSwap(true, false) {
					close(held)
					<-release
				}
				return nil
			})
			p.ready(t)
			r.config("c", `{"defaultTtl":-1}`)
			r.put("c", "there", `{"n":1}`)
			const many = 20
			last := wire.Time(0)
			for i := range many { // enough for the next to be guessed to be new, too
				last = r.put("c", fmt.Sprint(i), `{"ttl":1}`).Ts
			}
			armed.Store(true)
			r.sendAsync(prefix.Write(wire.Upsert, "c", "new"), `{}`)
			r.flush()
			<-held
			eventually(t, "all that expires is due", func() bool { return time.Now().UnixMilli() > int64(last)+1000 })
			for i := range 3 {
				r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("new", i)), `{}`)
			}
			r.sendAsync(prefix.Write(wire.Upsert, "c", "there"), `{"n":2}`)
			r.flush()
			close(release)
			r.waitEvents("c", many)
			r.caughtUp(p)
			if fresh := p.session.partitions[0].Fresh(); fresh >= partition.GuessAfter {
				t.Errorf("the guess was not found to be wrong: %d", fresh)
			}
			r.agrees()
			if err := r.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for subject, n := range heard {
				if n != 1 {
					t.Errorf("%s was published %d times", subject, n)
				}
			}
			p.stop(t)
		})
	}
}

// TestG2_ReadersAreNotBehindEvents: no reader returns a document after its event was
// published, even if the clock of Redis is an hour behind that of NATS: readers then use
// the log time, which the owner has to commit first. This holds for documents that are
// reaped, and for those that a write finds expired.
//
// Goes red if an owner publishes an event before readers have reached its deadline.
func TestG2_ReadersAreNotBehindEvents(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]time.Duration{"an hour": time.Hour, "some": 300 * time.Millisecond, "nothing": 0} {
		for _, met := range []string{"reaped", "met", "met later"} {
			t.Run(name+"/"+met, func(t *testing.T) {
				t.Parallel()
				mini := redistest.StartMini(t)
				mr := mini.Mini
				slow := backend{"embedded", func(*testing.T) dialer { return dialerTo(mini) }}
				r := newRigOn(t, slow, Options{Partitions: 1})
				if behind > 0 {
					mr.SetTime(time.Now().Add(-behind)) // where it stands still
				}
				var seen atomic.Int32
				reader := r.newReader()
				look := func(here crash.Point) error {
					if here == crash.AfterPublish {
						page, err := reader.List(context.Background(), "c", sink.ListOptions{})
						if err != nil || len(page.Documents) != 0 {
							t.Errorf("after the event was published, %d documents are read (%v)", len(page.Documents), err)
						}
						seen.Add(1)
					}
					return nil
				}
				p := r.start(look)
				p.ready(t)
				r.config("c", `{"defaultTtl":1}`)
				first := r.put("c", "a", `{}`)
				if met != "reaped" {
					p.stop(t)
					eventually(t, "it is expired", func() bool { return time.Now().UnixMilli() >= int64(*first.ExpiresAt) })
					if met == "met later" {
						r.send(prefix.Write(wire.Upsert, "other", "b"), `{}`)
					}
					r.send(prefix.Write(wire.Delete, "c", "a"), ``)
					p = r.start(look)
				}
				r.waitEvents("c", 1)
				r.caughtUp(p)
				if seen.Load() == 0 {
					t.Error("nothing was looked at")
				}
				r.agrees()
				p.stop(t)
			})
		}
	}
}
