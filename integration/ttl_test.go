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

// timeline is a list of steps at certain seconds. They may be added in any order.
type timeline struct {
	w        *world
	round    string // ends the names of the collections
	steps    map[float64][]func()
	expires  map[string]wire.Time // by collection/id: when the last version expires
	events   map[string][]string  // by collection/id: the etags of the versions that must expire
	problems []string
	late     time.Duration // by how much a step was late, at most
}

func newTimeline(w *world, round int) *timeline {
	return &timeline{w: w, round: fmt.Sprint(round), steps: map[float64][]func(){}, expires: map[string]wire.Time{},
		events: map[string][]string{}}
}

func (tl *timeline) problem(format string, args ...any) {
	tl.problems = append(tl.problems, fmt.Sprintf(format, args...))
}

// at adds a step.
func (tl *timeline) at(second float64, do func()) {
	tl.steps[second] = append(tl.steps[second], do)
}

// put writes a document. ends says whether that version expires.
func (tl *timeline) put(second float64, op wire.Op, collection, id, body string, status int, ends string) {
	tl.at(second, func() {
		subject, name := tl.w.Prefix.Write(op, collection+tl.round, id), collection+tl.round+"/"+id
		o, _ := tl.w.Do(subject, body, nil)
		if o.Status != status {
			tl.problem("after %v s: %s %s: outcome %+v, want status %d", second, subject, body, o, status)
		}
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

// there checks that a document can be read.
func (tl *timeline) there(second float64, collection, id string) {
	tl.check(second, collection, id, true)
}

// gone checks that a document cannot be read.
func (tl *timeline) gone(second float64, collection, id string) {
	tl.check(second, collection, id, false)
}

func (tl *timeline) check(second float64, collection, id string, there bool) {
	tl.at(second, func() {
		tl.w.t.Helper()
		byService := tl.w.Found(collection+tl.round, id)
		if byReader := tl.w.readable(collection+tl.round, id); byService != there || byReader != there {
			tl.problem("after %v s: %s/%s readable: by the service %v, by the reader %v, want %v", second, collection,
				id, byService, byReader, there)
		}
	})
}

// atItsEnd checks that a document cannot be read once its deadline is reached.
func (tl *timeline) atItsEnd(second float64, collection, id string) {
	tl.at(second, func() {
		name := collection + tl.round + "/" + id
		at, ok := tl.expires[name]
		if !ok {
			tl.problem("%s has no deadline", name)
		}
		after(tl.w.t, at)
	})
	tl.gone(second, collection, id)
}

func (tl *timeline) configure(second float64, collection, config string) {
	tl.at(second, func() { tl.w.Configure(collection+tl.round, config) })
}

// run runs the steps, and returns the instant of the last one.
func (tl *timeline) run() wire.Time {
	began := time.Now()
	last := began
	for _, second := range slices.Sorted(maps.Keys(tl.steps)) {
		last = began.Add(time.Duration(second * float64(time.Second)))
		harness.At(tl.w.t, last)
		tl.late = max(tl.late, time.Since(last))
		for _, step := range tl.steps[second] {
			step()
		}
	}
	return wire.Time(last.UnixMilli())
}

// scenarios adds the scenarios of public test suites for TTLs, each in its own collection.
// A step leaves seconds to the next deadline, so that a busy machine can be late.
func (tl *timeline) scenarios() {
	const expires, stays = "expires", "stays"

	// Default 5: gone after 5 s without ttl. With ttl -1 it stays, with ttl 2 it is gone after 2 s.
	tl.configure(0, "five", `{"defaultTtl":5}`)
	tl.put(0.1, wire.Create, "five", "inherits", `{"id":"inherits"}`, 201, expires)
	tl.put(0.1, wire.Create, "five", "never", `{"ttl":-1}`, 201, stays)
	tl.put(0.1, wire.Create, "five", "two", `{"ttl":2}`, 201, expires)
	tl.put(0.1, wire.Create, "five", "deleted", `{}`, 201, stays)
	tl.atItsEnd(1.9, "five", "two")
	tl.there(2.5, "five", "inherits")
	tl.put(2.5, wire.Delete, "five", "deleted", ``, 204, stays)
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

	// Default 8: gone, then created again. An upsert and a touch renew.
	tl.configure(0, "eight", `{"defaultTtl":8}`)
	tl.put(0.1, wire.Create, "eight", "again", `{"n":1}`, 201, expires)
	tl.put(0.1, wire.Upsert, "eight", "renewed", `{}`, 201, stays)
	tl.put(0.1, wire.Upsert, "eight", "touched", `{}`, 201, stays)
	tl.put(4, wire.Upsert, "eight", "renewed", `{}`, 200, stays)
	tl.put(4, wire.Touch, "eight", "touched", ``, 200, stays)
	tl.put(4, wire.Create, "eight", "again", `{}`, 409, "refused")
	tl.atItsEnd(8, "eight", "again")
	tl.put(8.5, wire.Create, "eight", "again", `{"n":2}`, 201, stays)
	tl.there(9, "eight", "again")
	tl.there(9, "eight", "renewed")
	tl.there(9, "eight", "touched")

	// Default removed: a live document stays, an expired one does not come back.
	tl.configure(0, "removed", `{"defaultTtl":6}`)
	tl.put(0.1, wire.Upsert, "removed", "alive", `{}`, 201, stays)
	tl.put(0.1, wire.Upsert, "removed", "dead", `{"ttl":1}`, 201, expires)
	tl.atItsEnd(1, "removed", "dead")
	tl.configure(1.5, "removed", `{}`)
	tl.gone(1.6, "removed", "dead")
	tl.there(10, "removed", "alive")

	// Default lowered: counts at once for existing documents.
	tl.configure(0, "lowered", `{"defaultTtl":100}`)
	tl.put(0.1, wire.Upsert, "lowered", "old", `{}`, 201, expires)
	tl.there(2, "lowered", "old")
	tl.configure(2.1, "lowered", `{"defaultTtl":1}`)
	tl.gone(2.2, "lowered", "old")
}

// TestTTLScenarios: the scenarios of issue trackers and public test suites, on embedded and on external servers: each
// event exists once, none is early, and there is no other.
func TestTTLScenarios(t *testing.T) {
	for name, start := range map[string]func(*testing.T) *world{
		"embedded": embedded,
		"external": func(t *testing.T) *world { return external(t, harness.RedisOptions{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			const tries, tolerance = 5, 2 * time.Second
			for try := 1; ; try++ {
				tl := newTimeline(w, try)
				tl.scenarios()
				tl.compare(tl.run())
				if len(tl.problems) == 0 {
					return
				}
				if try == tries || tl.late < tolerance {
					t.Fatal(strings.Join(tl.problems, "\n"))
				}
				t.Logf("a step was late by %v: the scenarios are repeated in new collections", tl.late)
			}
		})
	}
}

// compare compares the events with those of the scenarios, which give them by hand, beside
// the oracle. The last step was at the instant ended.
func (tl *timeline) compare(ended wire.Time) {
	t := tl.w.t
	t.Helper()
	got := map[string][]string{}
	for _, e := range tl.w.verify().Events {
		var event wire.Event
		if !strings.HasPrefix(e.Subject, "lapse.expired.") {
			continue
		}
		if err := json.Unmarshal(e.Data, &event); err != nil {
			t.Fatal(err)
		}
		if e.At < event.ExpiredAt {
			t.Errorf("event %s is early: it is stamped %s", e.Data, e.At)
		}
		if !strings.HasSuffix(event.Collection, tl.round) {
			continue
		}
		name, etag := event.Collection+"/"+event.ID, event.Etag.String()
		if event.ExpiredAt > ended && !slices.Contains(tl.events[name], etag) {
			continue // a document that "stays" may expire after the last step
		}
		got[name] = append(got[name], etag)
	}
	if fmt.Sprint(got) != fmt.Sprint(tl.events) {
		tl.problem("expired %v, want %v", got, tl.events)
	}
}
