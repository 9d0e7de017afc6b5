package processor

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// paused waits until a version that was written last into a paused collection has expired, and so many are hidden.
func (r *rig) paused(collection string, last wire.Outcome, hidden int64) {
	r.t.Helper()
	eventually(r.t, "it has expired", func() bool { return time.Now().UnixMilli() > int64(*last.ExpiresAt) })
	count, err := r.reader.Count(r.t.Context(), collection)
	if err != nil || count.Expired != hidden {
		r.t.Fatalf("count of %s is %+v (%v), want %d expired", collection, count, err, hidden)
	}
}

// TestG3_Paused: what expires in a paused collection is hidden, and has no event. Once it is resumed, each has exactly
// one, with its deadline, whatever happened to the processes and to Redis meanwhile. A write to an id whose document
// has expired publishes the event of that at once.
//
// It fails if the owner reaps in a paused collection, if it takes what was held back for published because the
// checkpoint has passed the deadline, or if a pause is not stored.
func TestG3_Paused(t *testing.T) {
	t.Parallel()
	for i, between := range []string{"nothing", "takeover", "rebuild", "crash"} {
		t.Run(between, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[i%2], Options{})
			p := r.start(nil)
			p.ready(t)
			r.config("c", `{"defaultTtl":1}`)
			before := r.put("c", "before", `{}`)
			eventually(t, "it has expired", func() bool { return time.Now().UnixMilli() > int64(*before.ExpiresAt) })
			r.waitEvents("c", 1)
			const n = 300
			r.config("c", `{"defaultTtl":1,"paused":true}`)
			for i := range n - 1 {
				r.sendAsync(prefix.Write(wire.Create, "c", fmt.Sprint(i)), `{}`)
			}
			r.flush()
			r.paused("c", r.put("c", "last", `{"ttl":2}`), n)
			if _, err := r.reader.Get(t.Context(), "c", "last"); !errors.Is(err, sink.ErrNotFound) {
				t.Errorf("a read of an expired document: %v", err)
			}
			r.must(wire.StatusNotFound, prefix.Write(wire.Touch, "c", "0"), ``)
			r.must(wire.StatusCreated, prefix.Write(wire.Create, "c", "0"), `{"ttl":3600}`)
			if all := r.waitEvents("c", 2); all[1].ID != "0" {
				t.Errorf("the event is of %s, want 0", all[1].ID)
			}
			switch between {
			case "takeover":
				p.stop(t)
				p = r.run()
			case "rebuild":
				p.stop(t)
				if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
				p = r.run()
			case "crash":
				p.stop(t)
				p = r.startOn(r.nc, r.redis, once(crash.AfterPublish, 1, func() error { return errDead }))
			}
			r.send(prefix.Config("c"), `{"defaultTtl":1}`)
			if between == "crash" {
				<-p.done
				p = r.run()
			}
			for _, e := range r.waitEvents("c", n+1) {
				if late := int64(e.ExpiredAt) - int64(e.Ts); late != int64(e.TTL)*1000 {
					t.Errorf("%s expired %d ms after it was written, with a ttl of %d", e.ID, late, e.TTL)
				}
			}
			r.caughtUp(p)
			r.agrees()
			p.stop(t)
		})
	}
}

// TestG9_APausedCollectionHoldsUpNothing: while many documents of it have expired, the owner appends no ticks for them,
// its default changes and others expire on time. The changes are limited, and a drop publishes the events.
func TestG9_APausedCollectionHoldsUpNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":1,"paused":true}`)
		r.config("d", `{"defaultTtl":-1}`)
		for i := range 9 {
			r.put("c", fmt.Sprint(i), `{}`)
		}
		r.paused("c", r.put("c", "last", `{}`), 10)
		first := r.lastSeq()
		r.put("d", "x", `{"ttl":1}`)
		r.waitEvents("d", 1)
		if n := r.lastSeq() - first; n > 50 {
			t.Errorf("the log got %d messages while nothing but a document of another collection fell due", n)
		}
		for i := range 30 {
			r.config("c", fmt.Sprintf(`{"defaultTtl":%d,"paused":true}`, 3600+i))
		}
		r.config("c", `{"defaultTtl":3600,"eventBody":false,"paused":true}`)
		r.must(wire.StatusConflict, prefix.Config("c"), `{"defaultTtl":5,"paused":true}`)
		r.config("c", `{"defaultTtl":3600,"eventBody":false,"changes":true,"paused":true}`)
		r.must(wire.StatusNoContent, prefix.Drop("c"), ``)
		for _, e := range r.waitEvents("c", 10) {
			if e.Omitted {
				t.Errorf("the event of %s is without the document", e.ID)
			}
		}
		r.caughtUp(p)
		r.agrees()
		p.stop(t)
	})
}
