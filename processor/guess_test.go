package processor

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_AWrongGuessBesideDueDocuments: a step that guesses wrongly publishes the event of a
// document that is due beside it. The step that follows does not reap the document, as Redis's
// clock was not asked for long, and the next one has a write to it.
//
// It fails if the event is published again without a look-up: the stream has forgotten its id.
func TestG3_AWrongGuessBesideDueDocuments(t *testing.T) {
	t.Parallel()
	window := minDuplicateWindow
	r := newRigOn(t, backends[0], Options{Partitions: 1, DuplicateWindow: &window})
	var mu sync.Mutex
	var held chan struct{} // the next commit waits until it is closed
	var reached chan struct{}
	p := r.start(func(here crash.Point) error {
		if here != crash.BeforeCommit {
			return nil
		}
		mu.Lock()
		wait, note := held, reached
		held, reached = nil, nil
		mu.Unlock()
		if wait != nil {
			close(note)
			<-wait
		}
		return nil
	})
	hold := func() (at, release chan struct{}) {
		mu.Lock()
		defer mu.Unlock()
		held, reached = make(chan struct{}), make(chan struct{})
		return reached, held
	}
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	r.put("c", "exists", `{}`)
	for i := range 8 { // from here on the owner guesses
		r.put("c", fmt.Sprint(i), `{}`)
	}
	due := r.put("c", "due", `{"ttl":2}`)
	for i := range 4 {
		r.put("c", fmt.Sprint("more", i), `{}`)
	}
	// One step stands still until the document is due and the wrong guess is in the log.
	at, release := hold()
	r.send(prefix.Write(wire.Upsert, "c", "other"), `{}`)
	<-at
	<-time.After(time.Until(time.UnixMilli(int64(*due.ExpiresAt))) + 50*time.Millisecond)
	wrong := r.send(prefix.Write(wire.Upsert, "c", "exists"), `{"n":2}`)
	eventually(t, "the message is read", func() bool { return p.current().reader.Position().Seq >= wrong })
	at, next := hold()
	close(release)
	<-at
	// The guess stands still before its commit, until the clock of Redis is not known any more.
	r.send(prefix.Write(wire.Upsert, "c", "due"), `{"n":2}`)
	<-time.After(5500 * time.Millisecond)
	close(next)
	r.caughtUp(p)
	p.stop(t)
	if n := len(r.events("c")); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}
