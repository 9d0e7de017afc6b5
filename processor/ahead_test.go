package processor

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG2_ReadersAreNotBehindEvents: no reader returns a document after its event was
// published, even if the clock of Redis is an hour behind that of NATS: readers then use
// the log time, which the owner has to commit first. This holds for documents that are
// reaped, and for those that a write finds expired.
//
// Goes red if an owner publishes an event before readers have reached its deadline.
func TestG2_ReadersAreNotBehindEvents(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]time.Duration{"an hour": time.Hour, "some": 300 * time.Millisecond,
		"nothing": 0} {
		for _, met := range []string{"reaped", "met", "met later"} {
			t.Run(name+"/"+met, func(t *testing.T) {
				t.Parallel()
				mini := redistest.StartMini(t)
				mr := mini.Mini
				slow := backend{"embedded", func(*testing.T) dialer { return dialerTo(mini) }}
				r := newRigOn(t, slow, Options{})
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
