package processor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// lives are the events, changes and drops of a collection that are stored, by document (of a drop ""), each
// as the last word but one of its type.
func (r *rig) lives(collection string) map[string]string {
	r.t.Helper()
	all := map[string]string{}
	for _, m := range r.outputs() {
		if source := m.header.Get("ce-source"); !strings.HasSuffix(source, "/"+collection) {
			continue
		}
		kind := strings.Split(m.header.Get("ce-type"), ".")
		id := m.header.Get("ce-subject")
		all[id] = strings.TrimSpace(all[id] + " " + kind[2])
	}
	return all
}

// TestG4_ChangesInTheOrderOfTheLog: each write that takes effect is published once, in the order of the log
// for each document, with its expiry events and warnings between them, from the configuration that asks for
// it up to the one that ends it. A touch of a read document, a write over a document that is expired and
// not reaped, a delete and a drop are among them. The oracle agrees. A wiped Redis and a restart publish
// nothing again.
//
// It fails if a change comes before the expiry of the version that it finds, if the property counts for
// earlier writes, if all shards publish a drop, or if a rebuild publishes again.
func TestG4_ChangesInTheOrderOfTheLog(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":-1}`)
		r.put("c", "before", `{}`)
		p.stop(t)
		r.send(prefix.Config("c"), `{"defaultTtl":-1,"changes":true,"warnBefore":[1]}`)
		write := func(op wire.Op, id, body string) { r.send(prefix.Write(op, "c", id), body) }
		write(wire.Touch, "before", ``)
		write(wire.Create, "again", `{"ttl":2}`)
		write(wire.Create, "again", `{}`) // rejected
		write(wire.Upsert, "gone", `{}`)
		write(wire.Patch, "gone", `{"n":1}`)
		write(wire.Delete, "gone", ``)
		write(wire.Delete, "gone", ``) // rejected
		write(wire.Create, "gone", `{"ttl":1}`)
		write(wire.Create, "dropped", `{}`)
		for i := range 16 { // so that each shard has published something
			write(wire.Create, fmt.Sprint("z", i), `{}`)
		}
		sent := time.Now()
		eventually(t, "the deadlines have passed", func() bool { return time.Since(sent) > 2100*time.Millisecond })
		write(wire.Create, "again", `{}`) // over a version that is expired and not reaped
		r.send(prefix.Drop("c"), ``)
		write(wire.Upsert, "dropped", `{}`) // its collection is not configured any more
		r.send(prefix.Config("c"), `{"changes":true,"eventBody":false}`)
		write(wire.Upsert, "dropped", `{}`)
		r.send(prefix.Config("c"), `{}`)
		write(wire.Upsert, "dropped", `{}`)
		p = r.run()
		r.caughtUp(p)
		want := map[string]string{
			"before":  "updated",
			"again":   "created expiring expired created",
			"gone":    "created updated deleted created expired",
			"dropped": "created updated",
			"":        "dropped",
		}
		for i := range 16 {
			want[fmt.Sprint("z", i)] = "created"
		}
		eventually(t, "all is published", func() bool { return len(r.lives("c")) == len(want) })
		if diff := cmp.Diff(want, r.lives("c")); diff != "" {
			t.Errorf("published:\n%s", diff)
		}
		r.agrees()
		p.stop(t)
		r.redis.FlushAll(t.Context())
		r.forgetPlaces()
		r.caughtUp(r.run())
		if diff := cmp.Diff(want, r.lives("c")); diff != "" {
			t.Errorf("published after a rebuild:\n%s", diff)
		}
		r.agrees()
	})
}

// TestG3_ChangesOfADeadOwner: an owner dies between the publication of changes and the commit. The next one
// finds them in the tail, and a drop too.
//
// It fails if a tail passes over changes: they are published twice.
func TestG3_ChangesOfADeadOwner(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"changes":true}`)
		p.stop(t)
		want := map[string]string{}
		for i := range 16 {
			id := fmt.Sprint("d", i)
			r.send(prefix.Write(wire.Create, "c", id), `{}`)
			r.send(prefix.Write(wire.Touch, "c", id), ``)
			want[id] = "created updated"
		}
		die := func() {
			t.Helper()
			select {
			case <-r.start(dies(crash.AfterPublish, 1)).done:
			case <-time.After(limit):
				t.Fatal("no owner has died")
			}
		}
		die()
		p = r.run()
		r.caughtUp(p)
		p.stop(t)
		r.send(prefix.Drop("c"), ``)
		want[""] = "dropped"
		die()
		r.caughtUp(r.run())
		if diff := cmp.Diff(want, r.lives("c")); diff != "" {
			t.Errorf("published:\n%s", diff)
		}
		r.agrees()
	})
}
