package processor

import (
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG10_EventsWithoutBodies: what counts is the configuration of the instant at which a document
// expired, also where its event is published later, by another owner, after other configurations or
// after a drop. The oracle agrees.
//
// It fails if the configuration of the instant of publishing counts, if a generation that was dropped
// forgets, or if the changes are not stored.
func TestG10_EventsWithoutBodies(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const bare = `"eventBody":false}`
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":-1}`)
		r.config("d", `{"defaultTtl":-1,`+bare)
		const n = 8
		for i := range n {
			r.put("c", fmt.Sprint("first", i), `{}`)
		}
		r.config("e", `{"defaultTtl":-1,`+bare)
		r.put("e", "dropped", `{}`)
		r.backlog("d", n, `{}`)
		p.stop(t)
		r.send(prefix.Config("c"), `{"defaultTtl":1}`) // those that were first expire with this
		r.send(prefix.Config("d"), `{"defaultTtl":1}`) // with bodies from the same instant on
		r.send(prefix.Config("c"), `{"defaultTtl":1,`+bare)
		r.send(prefix.Config("d"), `{"defaultTtl":1,`+bare)
		r.send(prefix.Drop("d"), ``)
		r.send(prefix.Config("e"), `{"defaultTtl":1,`+bare)
		r.send(prefix.Drop("e"), ``)
		for i := range n {
			r.send(prefix.Write(wire.Create, "c", fmt.Sprint("second", i)), `{"ttl":2}`)
			r.send(prefix.Write(wire.Create, "d", fmt.Sprint("new", i)), `{"ttl":2}`)
		}
		r.send(prefix.Config("d"), `{"defaultTtl":-1}`)
		p = r.run()
		for _, e := range r.waitEvents("c", 2*n) {
			if bodiless := e.ID[0] == 's'; e.Omitted != bodiless || (len(e.Document) == 0) != bodiless {
				t.Errorf("the event of %s is %s", e.ID, e.stored.data)
			}
		}
		for _, e := range r.waitEvents("d", 2*n) {
			if e.Omitted || len(e.Document) == 0 {
				t.Errorf("the event of %s is %s", e.ID, e.stored.data)
			}
		}
		r.config("d", `{"defaultTtl":-1,`+bare)
		if e := r.waitEvents("e", 1)[0]; !e.Omitted {
			t.Errorf("the event of %s is %s", e.ID, e.stored.data)
		}
		r.config("w", `{"defaultTtl":2,"warnBefore":[1],`+bare)
		r.put("w", "warned", `{}`) // the oracle knows that there is a warning, without the document
		r.put("d", "at once", `{"ttl":1}`)
		if e := r.waitEvents("d", 2*n+1)[2*n]; !e.Omitted {
			t.Errorf("the event of %s is %s", e.ID, e.stored.data)
		}
		r.waitEvents("w", 1)
		r.caughtUp(p)
		r.agrees()
	})
}
