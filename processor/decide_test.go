package processor

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/processor/document"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

var testLimits = limits{prefix: prefix, maxBody: 1000, maxPayload: 1 << 20}

// decideOne decides one message on a document that is stored (or is not), and
// returns the outcome and the decision.
func decideOne(t *testing.T, config sink.Config, stored *version, m *message) (wire.Outcome, *decision) {
	t.Helper()
	d := newDecision(testLimits, func(string) sink.Config { return config }, 0)
	if stored != nil {
		s := d.slot(docKey{m.collection, m.id})
		s.stored, s.now = &stored.header, stored
	}
	d.apply(m)
	if len(d.outcomes) != 1 {
		t.Fatalf("%d outcomes, want one", len(d.outcomes))
	}
	return d.outcomes[0].body, d
}

// Every operation, on a document that is absent, live, or expired and not reaped,
// with every kind of If-Match.
func TestOperationsTable(t *testing.T) {
	// A document written at 1000 with etag 5, in a collection whose default is 10 s.
	config := sink.Config{History: ttlrules.History{}.With(0, 1, 10)}
	const live, dead = 5000, 11000
	// Statuses, for If-Match: none, the document's etag, another etag, *.
	type row [4]int
	for _, c := range []struct {
		op                    wire.Op
		absent, live, expired row
	}{
		{wire.Upsert, row{201, 412, 412, 412}, row{200, 200, 412, 200}, row{201, 412, 412, 412}},
		{wire.Create, row{201, 412, 412, 412}, row{409, 409, 409, 409}, row{201, 412, 412, 412}},
		{wire.Replace, row{404, 404, 404, 404}, row{200, 200, 412, 200}, row{404, 404, 404, 404}},
		{wire.Patch, row{404, 404, 404, 404}, row{200, 200, 412, 200}, row{404, 404, 404, 404}},
		{wire.Touch, row{404, 404, 404, 404}, row{200, 200, 412, 200}, row{404, 404, 404, 404}},
		{wire.Delete, row{404, 404, 404, 404}, row{204, 204, 412, 204}, row{404, 404, 404, 404}},
	} {
		for state, want := range map[string]row{"absent": c.absent, "live": c.live, "expired": c.expired} {
			for i, match := range []ifMatch{{}, {true, 5}, {true, 6}, {true, 0}} {
				var stored *version
				at := int64(live)
				if state != "absent" {
					stored = &version{sink.Header{Ts: 1000, Etag: 5}, []byte(`{"v":1}`)}
				}
				if state == "expired" {
					at = dead
				}
				m := &message{seq: 9, at: at, kind: write, op: c.op, collection: "c", id: "x", ifMatch: match, replyTo: "_INBOX.x", subject: "lapse.write.x.c.x", rest: "c.x"}
				if c.op.HasBody() {
					m.body = []byte(`{"w":2}`)
				}
				o, d := decideOne(t, config, stored, m)
				name := fmt.Sprintf("%s of a document that is %s, if %+v", c.op, state, match)
				if o.Status != want[i] {
					t.Errorf("%s: %d, want %d", name, o.Status, want[i])
				}
				checkDecided(t, name, o, d, state, c.op)
			}
		}
	}
}

// checkDecided checks what goes with a status: the outcome's fields, the outputs
// (an expired version first), and the document afterwards.
func checkDecided(t *testing.T, name string, o wire.Outcome, d *decision, state string, op wire.Op) {
	t.Helper()
	outputs := 0
	if state == "expired" {
		outputs++
		if d.expired != 1 || d.outputs[0].at != 11000 || d.outputs[0].seq != 0 {
			t.Errorf("%s: outputs %+v, want the expiry event first", name, d.outputs)
		}
	}
	if o.Status >= 400 {
		outputs++
	}
	if len(d.outputs) != outputs || (o.Error != "") != (o.Status >= 400) || int64(o.Ts) != d.watermark {
		t.Errorf("%s: %d outputs, want %d, and outcome %+v", name, len(d.outputs), outputs, o)
	}
	s := d.docs[docKey{"c", "x"}]
	body := ""
	if s.now != nil {
		body = string(s.now.body)
	}
	want := map[wire.Op]string{wire.Touch: `{"v":1}`, wire.Patch: `{"v":1,"w":2}`, wire.Delete: ""}
	switch w, special := want[op]; {
	case o.Status >= 400 && state == "live":
		w = `{"v":1}`
		fallthrough
	case o.Status >= 400 && state != "live", special && o.Status < 400:
		if o.Status >= 400 && state != "live" {
			w = ""
		}
		if body != w {
			t.Errorf("%s: the document is %q, want %q", name, body, w)
		}
	case body != `{"w":2}`:
		t.Errorf("%s: the document is %q", name, body)
	}
	if (o.Status == 200 || o.Status == 201) && (o.Etag != 9 || s.now.header.Ts != d.watermark || *o.ExpiresAt != o.Ts+10_000) {
		t.Errorf("%s: outcome %+v of %+v", name, o, s.now)
	}
}

// The order of checks: what the message and the configuration decide, then whether
// the document is there, then If-Match.
func TestOrderOfChecks(t *testing.T) {
	on := sink.Config{History: ttlrules.History{}.With(0, 1, -1)}
	stored := func() *version { return &version{sink.Header{Ts: 1000, Etag: 5}, []byte(`{}`)} }
	for _, c := range []struct {
		name   string
		config sink.Config
		stored *version
		op     wire.Op
		body   string
		want   int
	}{
		{"a bad ttl before 404", on, nil, wire.Patch, `{"ttl":0}`, 400},
		{"a bad ttl before 409", on, stored(), wire.Create, `{"ttl":0}`, 400},
		{"a bad ttl before 412", on, stored(), wire.Upsert, `{"ttl":"1"}`, 400},
		{"any ttl while TTL is off", sink.Config{}, nil, wire.Patch, `{"ttl":0}`, 404},
		{"409 before 412", on, stored(), wire.Create, `{}`, 409},
		{"404 before 412", on, nil, wire.Replace, `{}`, 404},
		{"412 before 413 of the patched", on, stored(), wire.Patch, `{}`, 412},
	} {
		m := testDecoder.decode("lapse.write."+string(c.op)+".c.x", nats.Header{"Lapse-If-Match": {"6"}, "Lapse-Reply-To": {"_INBOX.x"}}, []byte(c.body), 9, 2000)
		if o, _ := decideOne(t, c.config, c.stored, m); o.Status != c.want {
			t.Errorf("%s: %+v, want %d", c.name, o, c.want)
		}
	}
	big := &version{sink.Header{Ts: 1000, Etag: 5}, []byte(`{"a":"` + strings.Repeat("x", 900) + `"}`)}
	m := testDecoder.decode("lapse.write.patch.c.x", nats.Header{"Lapse-Reply-To": {"_INBOX.x"}}, []byte(`{"b":"`+strings.Repeat("x", 200)+`"}`), 9, 2000)
	if o, d := decideOne(t, on, big, m); o.Status != 413 || d.docs[docKey{"c", "x"}].now != big {
		t.Errorf("a patched document that is too large: %+v", o)
	}
}

// A ttl that was stored while TTL was off counts as absent if it is not valid.
func TestStoredTTL(t *testing.T) {
	for body, want := range map[string]ttlrules.TTL{
		`{}`: 0, `{"ttl":null}`: 0, `{"ttl":60}`: 60, `{"ttl":-1}`: -1, `{"ttl":0}`: 0, `{"ttl":1.0}`: 0, `{"ttl":"1"}`: 0, `{"ttl":[]}`: 0,
		`{"ttl":1,"ttl":2}`: 2, `{"x":{"ttl":3}}`: 0, `{"t\u0074l":4}`: 4, `{"TTL":5}`: 0,
	} {
		if got := storedTTL([]byte(body)); got != want {
			t.Errorf("storedTTL(%s) = %d, want %d", body, got, want)
		}
	}
}

// folder is the store of a partition in maps, for TestBatchBoundariesDoNotMatter.
type folder struct {
	docs      map[docKey]version
	watermark int64
	said      []events.Message
	outcomes  []outcome
}

// step applies a batch as stepBy does, with what is stored read without bodies
// where the processor would read it so.
func (f *folder) step(config sink.Config, messages []*message) {
	d := newDecision(testLimits, func(string) sink.Config { return config }, f.watermark)
	for _, m := range messages {
		if m.kind != write {
			continue
		}
		if s := d.slot(docKey{m.collection, m.id}); s.stored == nil {
			if v, ok := f.docs[s.key]; ok {
				s.stored, s.now = &v.header, &version{v.header, v.body}
			}
		}
	}
	for _, m := range messages {
		d.apply(m)
	}
	f.watermark = d.watermark
	for _, o := range d.outputs {
		f.said = append(f.said, o.message)
	}
	f.outcomes = append(f.outcomes, d.outcomes...)
	for _, c := range d.changes(false) {
		for _, change := range c.Changes {
			key := docKey{c.Collection, change.ID}
			if change.New == nil {
				delete(f.docs, key)
			} else {
				f.docs[key] = version{*change.New, change.Body}
			}
		}
	}
}

// TestG1_BatchBoundariesDoNotMatter: the same messages say the same and leave the
// same, however they are cut into batches: so a crash may cut them anew. It fails if a
// decision depends on anything but the messages before it.
func TestG1_BatchBoundariesDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := sink.Config{History: ttlrules.History{}.With(0, 1, ttlrules.Default(rapid.SampledFrom([]int{-1, 0, 1, 2}).Draw(t, "default")))}
		var messages []*message
		at := int64(1000)
		for i := range rapid.IntRange(1, 30).Draw(t, "n") {
			// Stamps may fall, and often meet a deadline to the millisecond.
			at += rapid.SampledFrom([]int64{0, 0, 1, 999, 1000, -1}).Draw(t, "pause")
			op := rapid.SampledFrom(append(wire.Ops, "frob")).Draw(t, "op")
			body := ""
			if op.HasBody() {
				body = rapid.SampledFrom([]string{`{"a":1}`, `{"ttl":1}`, `{"ttl":2,"b":{}}`, `{"ttl":-1}`, `{"ttl":null}`, `{"ttl":0}`, `{`}).Draw(t, "body")
			}
			header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
			if match := rapid.SampledFrom([]string{"", "", "*", "3", "4"}).Draw(t, "match"); match != "" {
				header[wire.HeaderIfMatch] = []string{match}
			}
			id := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id")
			subject := rapid.SampledFrom([]string{"lapse.write." + string(op) + ".c." + id, "lapse.write." + string(op) + ".c." + id, "lapse.write.upsert.c"}).Draw(t, "subject")
			messages = append(messages, testDecoder.decode(subject, header, []byte(body), uint64(i+2), at))
		}
		one, many := folder{docs: map[docKey]version{}}, folder{docs: map[docKey]version{}}
		for _, m := range messages {
			one.step(config, []*message{m})
		}
		for rest := messages; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			many.step(config, rest[:n])
			rest = rest[n:]
		}
		if !reflect.DeepEqual(one, many) {
			t.Fatalf("one by one:\n%+v\nin batches:\n%+v", one, many)
		}
		for _, v := range one.docs {
			if err := document.Check(v.body); err != nil {
				t.Fatal(err)
			}
		}
	})
}
