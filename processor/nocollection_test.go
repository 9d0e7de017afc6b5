package processor

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// A collection exists from its configuration to its drop. Everything else addressed to it is a rejection of a kind of
// its own, which names the command to run and the nearest name.
//
// Goes red if a write makes a collection.
func TestG8_NoCollection(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.closed = true
		p := r.start(nil)
		p.ready(t)
		r.config("orders", `{}`)
		for _, op := range wire.Ops {
			body := map[bool]string{true: `{}`}[op.HasBody()]
			o := r.must(404, prefix.Write(op, "ordres", "x"), body)
			if o.Reason != wire.ReasonNoCollection || !strings.Contains(o.Error, "lapse config ordres") ||
				!strings.Contains(o.Error, "Did you mean orders?") {
				t.Errorf("%s: %+v", op, o)
			}
		}
		r.must(404, prefix.Drop("ordres"), ``)
		r.must(404, prefix.Write(wire.Upsert, "ordres", "x"), `{"ttl":1}`, wire.HeaderTarget, "mail.send")
		r.must(409, prefix.Write(wire.Upsert, "orders", "x"), `{"ttl":1}`, wire.HeaderTarget, "mail.send")
		if o := r.put("orders", "x", `{}`); o.Warning != "" {
			t.Errorf("the write to a configured collection has the warning %q", o.Warning)
		}
		r.must(204, prefix.Drop("orders"), ``)
		if o := r.must(404, prefix.Write(wire.Upsert, "orders", "x"), `{}`); o.Reason != wire.ReasonNoCollection {
			t.Errorf("after the drop: %+v", o)
		}
		r.config("orders", `{}`)
		r.config("ordres", `{}`)
		r.agrees()
	})
}

// Which collections exist is in the log: a rebuild by a process with another flag decides as the first did, and the
// flag counts from where it was changed.
//
// Goes red if the options of the process decide.
func TestG7_OpenCollectionsAreARuleOfTheLog(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.closed = true
		p := r.start(nil)
		p.ready(t)
		r.must(404, prefix.Write(wire.Upsert, "c", "closed"), `{}`)
		p.stop(t)
		r.closed = false
		p = r.start(nil)
		p.ready(t)
		if o := r.put("c", "open", `{}`); !strings.Contains(o.Warning, "is not configured") {
			t.Errorf("a write that makes a collection has the warning %q", o.Warning)
		}
		p.stop(t)
		r.redis.FlushAll(t.Context())
		r.closed = true
		p = r.start(nil)
		p.ready(t)
		r.must(404, prefix.Write(wire.Upsert, "c", "again"), `{}`)
		r.config("c", `{}`)
		if r.body("c", "open") == "" || r.body("c", "closed") != "" || r.body("c", "again") != "" {
			t.Error("the documents are not those of the writes that took effect")
		}
		if n := len(r.outputs()); n != 2 {
			t.Errorf("%d outputs, want a rejection each time that collections were closed", n)
		}
		r.agrees()
		p.stop(t)
	})
}

// A configuration of the rules that was rejected is the last one in the log, and would have said what the options say.
// The rules of the options come behind it.
//
// Goes red if a process that starts takes what a client has written for the rules that count.
func TestG8_RejectedRulesAreNotBelieved(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		for rejected, status := range map[string]int{`{}`: 400, `{"OPEN":false}`: 400, `{"open":false}`: 412} {
			r.closed = false
			p := r.start(nil)
			p.ready(t)
			r.put("c", "x", `{}`)
			var header []string
			if status == 412 {
				header = []string{wire.HeaderIfMatch, "7"}
			}
			r.must(status, prefix.Config(wire.LogRules), rejected, header...)
			p.stop(t)
			r.closed = true
			p = r.start(nil)
			p.ready(t)
			r.must(404, prefix.Write(wire.Upsert, "other", "x"), `{}`)
			p.stop(t)
		}
	})
}

// Clients do not set the rules with a body that has none.
func TestG8_TheRulesOfTheLog(t *testing.T) {
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	for _, body := range []string{`{}`, `{"open":1}`, `{"open":null}`, `{"open":true,"more":1}`, `{"defaultTtl":1}`,
		`{"OPEN":true}`, `{"replyPrefixes":["a"]}`, `{"open":true,"replyPrefixes":"a"}`, `{"open":true,"replyPrefixes":[1]}`,
		`{"open":true,"replyPrefixes":["a",""]}`, `{"open":true,"replyPrefixes":["$JS"]}`,
		`{"open":true,"replyPrefixes":["lapse"]}`, `{"open":true,"replyPrefixes":["a.>"]}`} {
		r.must(400, prefix.Config(wire.LogRules), body)
	}
	r.must(400, prefix.Drop(wire.LogRules), ``)
	r.put("c", "x", `{}`)
	if page, err := r.newReader().Collections(t.Context(), sink.CollectionsOptions{}); err != nil ||
		len(page.Collections) != 1 {
		t.Errorf("the collections are %+v, %v", page, err)
	}
	p.stop(t)
}
