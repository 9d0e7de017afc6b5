package processor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// delivered are all due messages that are stored, each as "target id body"; those that came early fail
// the test.
func (r *rig) delivered() (all []string) {
	r.t.Helper()
	for _, m := range r.outputs() {
		target, ok := strings.CutPrefix(m.subject, "lapse.due.")
		if !ok {
			continue
		}
		var at wire.Time
		if err := at.UnmarshalText([]byte(m.header.Get("ce-time"))); err != nil || m.at.UnixMilli() < int64(at) {
			r.t.Errorf("the message to %s was stored at %s, and is due at %s: %v", target, m.at, at, err)
		}
		all = append(all, fmt.Sprintf("%s %s %s", target, m.header.Get("ce-subject"), m.data))
	}
	slices.Sort(all)
	return all
}

// schedule creates a document that is a message to a target at an instant.
func (r *rig) schedule(target, id, body string, at wire.Time) wire.Outcome {
	r.t.Helper()
	return r.must(201, prefix.Write(wire.Create, "c", id), body, wire.HeaderTarget, target, wire.HeaderExpiresAt,
		at.String())
}

// waiting are the ids and the targets of the documents that will expire, by their deadlines.
func (r *rig) waiting() (all []string) {
	r.t.Helper()
	page, err := r.reader.List(r.t.Context(), "c", sink.ListOptions{Order: wire.ByDeadline})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, d := range page.Documents {
		all = append(all, strings.TrimSpace(d.ID+" "+d.Target))
	}
	return all
}

// TestG3_MessagesAtTheirTime: a message goes to its target at its time, exactly once, with the bytes of
// its document, although the collection's events have no document. A delete cancels it, a touch with a
// new deadline moves it, a patch changes it, a list by deadline shows those that wait, and a write
// without a target makes a document of it. The oracle agrees. A wiped Redis and a restart deliver nothing
// again.
func TestG3_MessagesAtTheirTime(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":-1,"eventBody":false,"warnBefore":[1]}`)
		// Of about 30 requests; a busy machine takes longer for each.
		began := time.Now()
		r.must(201, prefix.Write(wire.Create, "c", "first"), `{}`)
		r.must(204, prefix.Write(wire.Delete, "c", "first"), ``)
		soon := wire.Time(time.Now().Add(4*time.Second + 60*time.Since(began)).UnixMilli())
		r.schedule("mail.send", "sent", `{ "to": "a" }`, soon)
		r.schedule("mail", "short", `{"to":"b"}`, soon+100)
		r.schedule("a.b.c", "moved", `{"to":"c"}`, soon+60_000)
		r.schedule("mail.send", "cancelled", `{"to":"d"}`, soon+300)
		r.schedule("mail.send", "later", `{"to":"e"}`, soon+3_600_000)
		r.schedule("mail.send", "event", `{"to":"f"}`, soon+400)
		r.schedule("mail.send", "patched", `{"to":"g"}`, soon+500)
		r.must(204, prefix.Write(wire.Delete, "c", "cancelled"), ``)
		r.must(200, prefix.Write(wire.Touch, "c", "moved"), ``, wire.HeaderExpiresAt, (soon + 200).String())
		r.must(200, prefix.Write(wire.Upsert, "c", "event"), `{}`, wire.HeaderExpiresAt, (soon + 400).String())
		r.must(200, prefix.Write(wire.Patch, "c", "patched"), `{"n":1}`)
		const more = 16 // so that each shard has delivered something
		var last wire.Outcome
		for i := range more {
			last = r.schedule("more", fmt.Sprint("z", i), `{}`, soon+600)
		}
		want := []string{"sent mail.send", "short mail", "moved a.b.c", "event", "patched mail.send", "later mail.send"}
		waits := slices.DeleteFunc(r.waiting(), func(one string) bool { return one[0] == 'z' })
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("what waits:\n%s", diff)
		}
		if got := r.delivered(); len(got) > 0 {
			t.Errorf("delivered before its time: %v", got)
		}
		r.expires(p, "c", last)
		want = []string{`a.b.c moved {"to":"c"}`, `mail short {"to":"b"}`, `mail.send patched {"to":"g","n":1}`,
			`mail.send sent { "to": "a" }`}
		for i := range more {
			want = append(want, fmt.Sprintf("more z%d {}", i))
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, r.delivered()); diff != "" {
			t.Errorf("delivered:\n%s", diff)
		}
		if e := r.events("c"); len(e) != 1 || e[0].ID != "event" || !e[0].Omitted {
			t.Errorf("events %+v, want that of the document without a target", e)
		}
		if got := r.warnings("c"); len(got) != 5+more {
			t.Errorf("warnings %v, want one of each document that has expired", got)
		}
		r.agrees()
		p.stop(t)
		r.redis.FlushAll(t.Context())
		r.forgetPlaces()
		r.caughtUp(r.run())
		if diff := cmp.Diff(want, r.delivered()); diff != "" {
			t.Errorf("delivered after a rebuild:\n%s", diff)
		}
		if got := r.waiting(); len(got) != 1 || got[0] != "later mail.send" {
			t.Errorf("%v waits after a rebuild", got)
		}
	})
}

// TestG3_DueMessagesOfADeadOwner: an owner dies between the publication of due messages and the commit.
// The next one finds them in the tail, also those whose second token the stream has replaced.
//
// It fails if a tail passes over due messages: they are published twice.
func TestG3_DueMessagesOfADeadOwner(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":-1}`)
		p.stop(t)
		soon := wire.Time(time.Now().UnixMilli()) + 6000 // later than all are written
		var want []string
		for i := range 8 {
			for _, target := range []string{"mail", "mail.send", "a.b.c"} {
				id := fmt.Sprint(target, i)
				r.send(prefix.Write(wire.Create, "c", id), `{}`, wire.HeaderTarget, target, wire.HeaderExpiresAt, soon.String())
				want = append(want, fmt.Sprintf("%s %s {}", target, wire.EscapeID(id)))
			}
		}
		slices.Sort(want)
		select {
		case <-r.start(dies(crash.AfterPublish, 1)).done:
		case <-time.After(limit):
			t.Fatal("no owner has died")
		}
		p = r.run()
		r.reaped("c")
		r.caughtUp(p)
		if diff := cmp.Diff(want, r.delivered()); diff != "" {
			t.Errorf("delivered:\n%s", diff)
		}
		r.agrees()
	})
}
