package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// timeline is steps at seconds after its beginning, in any order of writing.
type timeline struct {
	w       *world
	steps   map[float64][]func()
	expires map[string]wire.Time // by collection/id: when what was last written is to expire
	events  map[string][]string  // by collection/id: the versions that must expire
}

// at adds a step.
func (tl *timeline) at(second float64, do func()) {
	tl.steps[second] = append(tl.steps[second], do)
}

// put writes a document; a version that expires says so.
func (tl *timeline) put(second float64, op wire.Op, collection, id, body string, status int, ends string) {
	tl.at(second, func() {
		o := tl.w.Want(status, op, collection, id, body)
		name := collection + "/" + id
		if status < 300 {
			delete(tl.expires, name)
		}
		if o.ExpiresAt != nil {
			tl.expires[name] = *o.ExpiresAt
		}
		if ends == "expires" {
			tl.events[name] = append(tl.events[name], o.Etag.String())
		}
	})
}

// there and gone look at a document.
func (tl *timeline) there(second float64, collection, id string) {
	tl.look(second, collection, id, true)
}
func (tl *timeline) gone(second float64, collection, id string) {
	tl.look(second, collection, id, false)
}

func (tl *timeline) look(second float64, collection, id string, there bool) {
	tl.at(second, func() {
		tl.w.t.Helper()
		_, byService := tl.w.Get(collection, id)
		if byReader := tl.w.readable(collection, id); byService != there || byReader != there {
			tl.w.t.Errorf("after %v s: %s/%s readable: by the service %v, by the reader %v, want %v", second, collection, id, byService, byReader, there)
		}
	})
}

// atItsEnd reads a document from the very instant at which it expires on.
func (tl *timeline) atItsEnd(second float64, collection, id string) {
	tl.at(second, func() {
		name := collection + "/" + id
		at, ok := tl.expires[name]
		if !ok {
			tl.w.t.Errorf("%s is not to expire", name)
		}
		after(tl.w.t, at)
	})
	tl.gone(second, collection, id)
}

func (tl *timeline) configure(second float64, collection, config string) {
	tl.at(second, func() { tl.w.Configure(collection, config) })
}

// run runs the steps, and returns the instant of the last.
func (tl *timeline) run() wire.Time {
	began := time.Now()
	last := began
	for _, second := range slices.Sorted(maps.Keys(tl.steps)) {
		last = began.Add(time.Duration(second * float64(time.Second)))
		harness.At(tl.w.t, last)
		for _, step := range tl.steps[second] {
			step()
		}
	}
	return wire.Time(last.UnixMilli())
}

// scenarios are those of public suites for time to live, side by side, each in
// a collection of its own.
func (tl *timeline) scenarios() {
	const expires, stays = "expires", "stays"

	// Default 5 and no ttl: gone after 5 s. With a ttl of -1 it stays, with one of 2 that counts.
	tl.configure(0, "five", `{"defaultTtl":5}`)
	tl.put(0.1, wire.Create, "five", "inherits", `{"id":"inherits"}`, 201, expires)
	tl.put(0.1, wire.Create, "five", "never", `{"ttl":-1}`, 201, stays)
	tl.put(0.1, wire.Create, "five", "two", `{"ttl":2}`, 201, expires)
	tl.put(0.1, wire.Create, "five", "deleted", `{}`, 201, stays)
	tl.atItsEnd(1.9, "five", "two")
	tl.there(3.5, "five", "inherits")
	tl.put(3.5, wire.Delete, "five", "deleted", ``, 204, stays)
	tl.atItsEnd(4.9, "five", "inherits")
	tl.there(10, "five", "never")

	// Default -1 and ttl 2: gone after 2 s; without ttl it stays.
	tl.configure(0, "on", `{"defaultTtl":-1}`)
	tl.put(0.1, wire.Upsert, "on", "two", `{"ttl":2}`, 201, expires)
	tl.put(0.1, wire.Upsert, "on", "none", `{}`, 201, stays)
	tl.atItsEnd(2, "on", "two")
	tl.there(10, "on", "none")

	// No default and ttl 2: stays.
	tl.put(0, wire.Upsert, "off", "two", `{"ttl":2}`, 201, stays)
	tl.there(10, "off", "two")

	// Default 8: gone, created again; an upsert and a touch renew.
	tl.configure(0, "eight", `{"defaultTtl":8}`)
	tl.put(0.1, wire.Create, "eight", "again", `{"n":1}`, 201, expires)
	tl.put(0.1, wire.Upsert, "eight", "renewed", `{}`, 201, stays)
	tl.put(0.1, wire.Upsert, "eight", "touched", `{}`, 201, stays)
	tl.put(2.5, wire.Upsert, "eight", "renewed", `{}`, 200, stays)
	tl.put(2.5, wire.Touch, "eight", "touched", ``, 200, stays)
	tl.put(6, wire.Create, "eight", "again", `{}`, 409, "refused")
	tl.atItsEnd(8, "eight", "again")
	tl.put(8.5, wire.Create, "eight", "again", `{"n":2}`, 201, stays)
	tl.there(9, "eight", "again")
	tl.there(9, "eight", "renewed")
	tl.there(9, "eight", "touched")

	// Default removed: keeps what is alive, brings back nothing.
	tl.configure(0, "removed", `{"defaultTtl":3}`)
	tl.put(0.1, wire.Upsert, "removed", "alive", `{}`, 201, stays)
	tl.put(0.1, wire.Upsert, "removed", "dead", `{"ttl":1}`, 201, expires)
	tl.atItsEnd(1, "removed", "dead")
	tl.configure(1.5, "removed", `{}`)
	tl.gone(1.6, "removed", "dead")
	tl.there(10, "removed", "alive")

	// Default lowered: counts at once, for what is there.
	tl.configure(0, "lowered", `{"defaultTtl":100}`)
	tl.put(0.1, wire.Upsert, "lowered", "old", `{}`, 201, expires)
	tl.there(2, "lowered", "old")
	tl.configure(2.1, "lowered", `{"defaultTtl":1}`)
	tl.gone(2.2, "lowered", "old")
}

// The scenarios of issue trackers and public suites, in both configurations:
// every event once, none early, nothing else.
func TestTTLScenarios(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *world{
		"embedded": embedded,
		"external": func(t *testing.T) *world { return external(t, harness.RedisOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl := timeline{w: start(t), steps: map[float64][]func(){}, expires: map[string]wire.Time{}, events: map[string][]string{}}
			tl.scenarios()
			ended := tl.run()
			result := tl.w.verify()

			// What must be said is also written down by hand, above.
			got := map[string][]string{}
			for _, e := range result.Events {
				var event wire.Event
				if !strings.HasPrefix(e.Subject, "lapse.expired.") {
					continue
				}
				if err := json.Unmarshal(e.Data, &event); err != nil {
					t.Fatal(err)
				}
				if e.At < event.ExpiredAt {
					t.Errorf("early: %s at %s", e.Data, e.At)
				}
				if event.ExpiredAt > ended {
					continue // what stays does so until then
				}
				name := event.Collection + "/" + event.ID
				got[name] = append(got[name], event.Etag.String())
			}
			if fmt.Sprint(got) != fmt.Sprint(tl.events) {
				t.Errorf("expired %v, want %v", got, tl.events)
			}
		})
	}
}
