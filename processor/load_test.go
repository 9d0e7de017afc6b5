package processor

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG7_FailoverDuringALoad: a replica becomes the master while a snapshot is loaded, and lacks the
// last fills. No request of lapse fails by that: its next one goes to the new master.
func TestG7_FailoverDuringALoad(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[1], Options{})
	p := r.run()
	for i := range 50 {
		r.put("c", fmt.Sprint(i), `{"v":1}`)
	}
	r.truncated(func() bool { return true })
	p.stop(t)
	if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var replica dump
	var once atomic.Bool
	p = r.start(func(here crash.Point) error {
		switch {
		case here == crash.AfterClear && replica == nil:
			replica = r.dump()
		case here == crash.BeforeLoaded && !once.Swap(true):
			r.restore(replica)
		}
		return nil
	})
	p.ready(t)
	missing := 0
	for i := range 50 {
		if r.body("c", fmt.Sprint(i)) == "" {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("lapse is ready, and %d of 50 documents are missing", missing)
	}
	p.stop(t)
}

// TestG7_FailoverAfterAClear: as above, but the new master lacks the removal.
func TestG7_FailoverAfterAClear(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[1], Options{})
	p := r.run()
	for i := range 50 {
		r.put("c", fmt.Sprint(i), `{"v":1}`)
	}
	r.caughtUp(p)
	older := r.dump()
	r.send(prefix.Write(wire.Delete, "c", "7"), "")
	for range 5 {
		r.put("c", "1", `{"v":2}`)
	}
	r.truncated(func() bool { return true })
	p.stop(t)
	r.restore(older)
	var replica dump
	var once atomic.Bool
	p = r.start(func(here crash.Point) error {
		switch {
		case here == crash.AfterFence && replica == nil:
			replica = r.dump()
		case here == crash.AfterClear && !once.Swap(true):
			r.restore(replica)
		}
		return nil
	})
	p.ready(t)
	if got := r.body("c", "7"); got != "" {
		t.Errorf("a document that was deleted reads %q", got)
	}
	p.stop(t)
}
