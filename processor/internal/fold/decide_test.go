package fold

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

var decoder = Decoder{Log: wire.DefaultPrefix.Log(0, 1), MaxBody: 1000, MaxLevels: 10}

var testLimits = Limits{Log: events.NewSource(wire.DefaultPrefix.Log(0, 1), 1), MaxBody: 1000}

// oneConfig is a catalog in which every collection has one configuration, so it is configured.
type oneConfig store.Config

func (c oneConfig) Config(string) store.Config {
	config := store.Config(c)
	config.Etag = max(config.Etag, 1)
	return config
}

func (c oneConfig) Generations(string) []string { return nil }

func (c oneConfig) Inboxes() ([]string, bool) { return wire.Inboxes(nil), true }

// AllExist: every collection exists.
func (c oneConfig) AllExist() bool { return true }

func (c oneConfig) Nearest(string) string { return "" }

func (c oneConfig) Making(string) []int { return nil }

func (c oneConfig) Unwarned(Key, ttlrules.Clock, int64) []Warning { return nil }

// decideOne decides one message on a document that is stored (or is not), and
// returns the outcome and the decision.
func decideOne(t *testing.T, config store.Config, stored *Version, m *Message) (wire.Outcome, *Decision) {
	t.Helper()
	d := New(testLimits, oneConfig(config), 0)
	if stored != nil {
		s := d.Slot(Key{Collection: m.Collection, ID: m.ID})
		s.Stored, s.Now = &stored.Header, stored
	}
	d.Apply(m)
	if len(d.Outcomes) != 1 {
		t.Fatalf("%d outcomes, want one", len(d.Outcomes))
	}
	return d.Outcomes[0].Body, d
}

// TestOperationsTable: every operation, on a document that is absent, live, or expired and not reaped,
// with every kind of If-Match.
func TestOperationsTable(t *testing.T) {
	// A document written at 1000 with etag 5, in a collection whose default is 10 s.
	config := store.Config{History: ttlrules.History{}.With(0, 1, 10)}
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
		for condition, want := range map[string]row{"absent": c.absent, "live": c.live, "expired": c.expired} {
			for i, match := range []IfMatch{{}, {Set: true, Etag: 5}, {Set: true, Etag: 6}, {Set: true, Etag: 0}} {
				var stored *Version
				at := int64(live)
				if condition != "absent" {
					stored = &Version{Header: store.Header{Ts: 1000, Etag: 5}, Body: []byte(`{"v":1}`)}
				}
				if condition == "expired" {
					at = dead
				}
				m := &Message{Position: Position{Seq: 9, Time: at}, Kind: Write, Op: c.op, Collection: "c", ID: "x",
					IfMatch: match, ReplyTo: "_INBOX.x", Subject: "lapse.write.x.c.x", Rest: "c.x"}
				if c.op.HasBody() {
					m.Body = []byte(`{"w":2}`)
				}
				o, d := decideOne(t, config, stored, m)
				name := fmt.Sprintf("%s of a document that is %s, if %+v", c.op, condition, match)
				if o.Status != want[i] {
					t.Errorf("%s: %d, want %d", name, o.Status, want[i])
				}
				checkDecided(t, name, o, d, condition, c.op)
			}
		}
	}
}

// checkDecided checks the outcome's fields, the outputs (an expired version first), and
// the document afterwards.
func checkDecided(t *testing.T, name string, o wire.Outcome, d *Decision, condition string, op wire.Op) {
	t.Helper()
	outputs := 0
	if condition == "expired" {
		outputs++
		if d.Expired != 1 || d.Outputs[0].At != 11000 || d.Outputs[0].Seq != 0 {
			t.Errorf("%s: outputs %+v, want the expiry event first", name, d.Outputs)
		}
	}
	if o.Status >= 400 {
		outputs++
	}
	if len(d.Outputs) != outputs || (o.Error != "") != (o.Status >= 400) || int64(o.Ts) != d.Watermark {
		t.Errorf("%s: %d outputs, want %d, and outcome %+v", name, len(d.Outputs), outputs, o)
	}
	s := d.docs[Key{Collection: "c", ID: "x"}]
	body := ""
	if s.Now != nil {
		body = string(s.Now.body())
	}
	want := map[wire.Op]string{wire.Touch: `{"v":1}`, wire.Patch: `{"v":1,"w":2}`, wire.Delete: ""}
	switch w, special := want[op]; {
	case o.Status >= 400 && condition == "live":
		w = `{"v":1}`
		fallthrough
	case o.Status >= 400 && condition != "live", special && o.Status < 400:
		if o.Status >= 400 && condition != "live" {
			w = ""
		}
		if body != w {
			t.Errorf("%s: the document is %q, want %q", name, body, w)
		}
	case body != `{"w":2}`:
		t.Errorf("%s: the document is %q", name, body)
	}
	if (o.Status == 200 || o.Status == 201) && (o.Etag != 9 || s.Now.Header.Ts != d.Watermark || *o.ExpiresAt != o.Ts+
		10_000) {
		t.Errorf("%s: outcome %+v of %+v", name, o, s.Now)
	}
}

// TestOrderOfChecks: the order of checks: first the message and the configuration, then whether the document
// exists, then If-Match.
func TestOrderOfChecks(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(0, 1, -1)}
	stored := func() *Version { return &Version{Header: store.Header{Ts: 1000, Etag: 5}, Body: []byte(`{}`)} }
	for _, c := range []struct {
		name   string
		config store.Config
		stored *Version
		op     wire.Op
		body   string
		want   int
	}{
		{"a bad ttl before 404", on, nil, wire.Patch, `{"ttl":0}`, 400},
		{"a bad ttl before 409", on, stored(), wire.Create, `{"ttl":0}`, 400},
		{"a bad ttl before 412", on, stored(), wire.Upsert, `{"ttl":"1"}`, 400},
		{"any ttl while TTL is off", store.Config{}, nil, wire.Patch, `{"ttl":0}`, 404},
		{"409 before 412", on, stored(), wire.Create, `{}`, 409},
		{"404 before 412", on, nil, wire.Replace, `{}`, 404},
		{"412 before 413 of the patched", on, stored(), wire.Patch, `{}`, 412},
	} {
		m := decoder.Decode("lapse.write."+string(c.op)+".c.x", nats.Header{"Lapse-If-Match": {"6"},
			"Lapse-Reply-To": {"_INBOX.x"}}, []byte(c.body), Position{Seq: 9, Time: 2000})
		if o, _ := decideOne(t, c.config, c.stored, m); o.Status != c.want {
			t.Errorf("%s: %+v, want %d", c.name, o, c.want)
		}
	}
	big := &Version{Header: store.Header{Ts: 1000, Etag: 5}, Body: []byte(`{"a":"` + strings.Repeat("x", 900) + `"}`)}
	m := decoder.Decode("lapse.write.patch.c.x", nats.Header{"Lapse-Reply-To": {"_INBOX.x"}}, []byte(`{"b":"`+
		strings.Repeat("x", 200)+`"}`), Position{Seq: 9, Time: 2000})
	if o, d := decideOne(t, on, big, m); o.Status != 413 || d.docs[Key{Collection: "c", ID: "x"}].Now != big {
		t.Errorf("a patched document that is too large: %+v", o)
	}
}

// TestConfigured: a configuration or a drop on a configuration: the etag is the sequence of the last
// configuration, whether it changed anything or not; and the message and the
// configuration are checked before If-Match.
func TestConfigured(t *testing.T) {
	consistent := store.Config{History: ttlrules.History{}.With(0, 5, 10), Etag: 5}
	off := store.Config{Etag: 6}
	none := store.Config{NoIndex: true, Etag: 7}
	for _, c := range []struct {
		name    string
		current store.Config
		match   string
		body    string // "" for a drop
		status  int
		want    wire.Config
	}{
		{"the first", store.Config{}, "", `{"defaultTtl":10}`, 200, wire.Config{DefaultTTL: ptr(10),
			IndexingMode: wire.Consistent, Etag: 9}},
		{"one that is the default", store.Config{}, "", `{}`, 200, wire.Config{IndexingMode: wire.Consistent, Etag: 9}},
		{"one that changes nothing", consistent, "", `{"defaultTtl":10}`, 200, wire.Config{DefaultTTL: ptr(10),
			IndexingMode: wire.Consistent, Etag: 9}},
		{"lazy", consistent, "", `{"defaultTtl":10,"indexingMode":"lazy"}`, 200, wire.Config{DefaultTTL: ptr(10),
			IndexingMode: wire.Lazy, Etag: 9}},
		{"lazy no more", store.Config{Lazy: true, Etag: 3}, "", `{}`, 200, wire.Config{IndexingMode: wire.Consistent,
			Etag: 9}},
		{"lazy of none", none, "", `{"indexingMode":"lazy"}`, 200, wire.Config{IndexingMode: wire.Lazy, Etag: 9}},
		{"lazy of none and a default", none, "", `{"indexingMode":"lazy","defaultTtl":1}`, 400, wire.Config{}},
		{"none of lazy and on", store.Config{History: consistent.History, Lazy: true, Etag: 3}, "",
			`{"indexingMode":"none"}`, 400, wire.Config{}},
		{"its etag", consistent, "5", `{}`, 200, wire.Config{IndexingMode: wire.Consistent, Etag: 9}},
		{"any etag", consistent, "*", `{}`, 200, wire.Config{IndexingMode: wire.Consistent, Etag: 9}},
		{"any etag of one that is the default", off, "*", `{}`, 200, wire.Config{IndexingMode: wire.Consistent,
			Etag: 9}},
		{"another etag", consistent, "4", `{}`, 412, wire.Config{}},
		{"an etag of none", store.Config{}, "4", `{}`, 412, wire.Config{}},
		{"any etag of none", store.Config{}, "*", `{}`, 412, wire.Config{}},
		{"400 before 412", consistent, "4", `{"indexingMode":"none"}`, 400, wire.Config{}},
		{"400 before 412, from none", none, "4", `{"defaultTtl":1}`, 400, wire.Config{}},
		{"drop", consistent, "", ``, 204, wire.Config{IndexingMode: wire.Consistent}},
		{"drop of none", store.Config{}, "", ``, 204, wire.Config{IndexingMode: wire.Consistent}},
		{"drop of its etag", consistent, "5", ``, 204, wire.Config{IndexingMode: wire.Consistent}},
		{"drop of any", consistent, "*", ``, 204, wire.Config{IndexingMode: wire.Consistent}},
		{"drop of another", consistent, "4", ``, 412, wire.Config{}},
		{"drop of any that is not there", store.Config{}, "*", ``, 412, wire.Config{}},
	} {
		subject := wire.DefaultPrefix.Config("c")
		if c.body == "" {
			subject = wire.DefaultPrefix.Drop("c")
		}
		header := nats.Header{}
		if c.match != "" {
			header[wire.HeaderIfMatch] = []string{c.match}
		}
		m := decoder.Decode(subject, header, []byte(c.body), Position{Seq: 9, Time: 2000})
		if m.Kind == Malformed {
			t.Fatalf("%s: %v", c.name, m.Rejected)
		}
		// Whether its history was settled by then must not matter.
		settled := c.current
		settled.History = c.current.History.Settled()
		for _, current := range []store.Config{c.current, settled} {
			next, r := Configured(current, m, 2000, oneConfig{})
			switch {
			case c.status >= 400 && (r == nil || r.Code != c.status || !strings.HasSuffix(r.Text, ".")):
				t.Errorf("%s: %+v, want %d", c.name, r, c.status)
			case c.status < 400 && r != nil:
				t.Errorf("%s: %+v", c.name, r)
			case c.status < 400 && !gocmp.Equal(next.Wire(), c.want):
				t.Errorf("%s: %s", c.name, gocmp.Diff(c.want, next.Wire()))
			}
		}
	}
}

// TestConfiguredSaysWhatToSet: the reason of a refused configuration names what is, and then what to set.
func TestConfiguredSaysWhatToSet(t *testing.T) {
	m := decoder.Decode(wire.DefaultPrefix.Config("c"), nil, []byte(`{"defaultTtl":1}`), Position{Seq: 9})
	_, r := Configured(store.Config{NoIndex: true}, m, 0, oneConfig{})
	if is, set := strings.Index(r.Text, `"none"`), strings.Index(r.Text, `"consistent"`); is < 0 || set < is {
		t.Error(r.Text)
	}
}

// TestChangesOfACollectionAreTogether: all changes of a collection are together: the script that commits them knows
// each once.
func TestChangesOfACollectionAreTogether(t *testing.T) {
	d := New(testLimits, oneConfig(store.Config{}), 0)
	due := &DueDocument{Key: Key{Collection: "b", ID: "due"}}
	for i, at := range []Key{{Collection: "a", ID: "1"}, {Collection: "b", ID: "1"}, {Collection: "a", ID: "2"}} {
		d.Slot(at)
		d.Apply(decoder.Decode(wire.DefaultPrefix.Write(wire.Upsert, at.Collection, at.ID), nil, []byte(`{}`),
			Position{Seq: uint64(i + 1)}))
	}
	var got []string
	for _, c := range d.Changes([]*DueDocument{due}) {
		got = append(got, fmt.Sprint(c.Collection, len(c.Changes)))
	}
	if want := []string{"a2", "b2"}; !gocmp.Equal(got, want) {
		t.Errorf("collections with their changes: %v, want %v", got, want)
	}
}

func ptr(n int32) *int32 { return &n }

// TestTTLOfAPatchedDocument: a ttl that was stored while TTL was off counts as absent if it is not valid. A patch that
// does not name it keeps what counts.
func TestTTLOfAPatchedDocument(t *testing.T) {
	for body, want := range map[string]ttlrules.TTL{
		`{}`: 0, `{"ttl":null}`: 0, `{"ttl":60}`: 60, `{"ttl":-1}`: -1, `{"ttl":0}`: 0, `{"ttl":1.0}`: 0,
		`{"ttl":"1"}`: 0, `{"ttl":[]}`: 0, `{"ttl":{"a":1}}`: 0,
		`{"ttl":1,"ttl":2}`: 2, `{"x":{"ttl":3}}`: 0, `{"t\u0074l":4}`: 4, `{"TTL":5}`: 0,
	} {
		for _, bodies := range [][]string{{body}, {`{"ttl":7}`, `{"ttl":null}`, body}, {body, `{"x":1}`}} {
			d := New(testLimits, oneConfig(store.Config{}), 0)
			for i, body := range bodies {
				op := wire.Patch
				if i == 0 {
					op = wire.Upsert
				}
				d.Apply(decoder.Decode(wire.DefaultPrefix.Write(op, "c", "x"), nil, []byte(body),
					Position{Seq: uint64(i + 1), Time: 10}))
			}
			if got := d.Slot(Key{Collection: "c", ID: "x"}).Now.Header.TTL; got != want {
				t.Errorf("after %v the ttl is %d, want %d", bodies, got, want)
			}
		}
	}
}

// TestWarning: a write whose own ttl will not count says so in its outcome. So the client learns it where TTL
// is off, and only there: a ttl of -1 means never, and null means none. A write of what is not indexed says so too.
func TestWarning(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(0, 1, -1)}
	off := store.Config{History: on.History.With(5, 2, ttlrules.Off)}
	byN := store.Config{History: on.History, Indexes: []store.PropertyIndex{{Pointer: "/n"}}}
	const (
		leftOut = `no query by "/n" finds this document: what it has there is not indexed. Use a string of up to ` +
			`255 bytes, a number, true, false, null, or an array of up to 32 of these.`
		turnOn = `TTL is off in collection c, so this document will not expire: set its defaultTtl to -1 or to a ` +
			`number of seconds (lapse config c --default-ttl -1).`
		indexed = `TTL is off in collection c, so this document will not expire: set its indexingMode to ` +
			`"consistent" first (lapse config c --indexing consistent), then set its defaultTtl to -1 or to a ` +
			`number of seconds (lapse config c --default-ttl -1).`
		invalid = `ttl "1" is not valid: use a whole number of seconds from 1 to 2147483647, or -1 for never. Write ` +
			`it without quotes, fraction or exponent. The document was written all the same, because TTL is off in ` +
			`collection c, and it will not expire.`
	)
	for _, c := range []struct {
		config       store.Config
		op           wire.Op
		stored, body string
		want         string
	}{
		{store.Config{}, wire.Upsert, ``, `{"ttl":60}`, turnOn}, // never configured
		{off, wire.Upsert, ``, `{"ttl":60}`, turnOn},
		{off, wire.Create, ``, `{"ttl":60}`, turnOn},
		{off, wire.Replace, `{}`, `{"ttl":60}`, turnOn},
		{off, wire.Patch, `{}`, `{"ttl":60}`, turnOn},
		{store.Config{NoIndex: true}, wire.Upsert, ``, `{"ttl":60}`, indexed},
		{off, wire.Upsert, ``, `{"ttl":"1"}`, invalid},
		{store.Config{NoIndex: true}, wire.Patch, `{}`, `{"ttl":"1"}`, invalid},
		{off, wire.Upsert, ``, `{}`, ``},
		{off, wire.Upsert, ``, `{"ttl":null}`, ``},
		{off, wire.Upsert, ``, `{"ttl":-1}`, ``},
		{off, wire.Upsert, ``, `{"x":{"ttl":60}}`, ``},
		{off, wire.Patch, `{"ttl":60}`, `{"x":1}`, ``}, // not in its own body
		{off, wire.Patch, `{"ttl":60}`, `{"ttl":null}`, ``},
		{off, wire.Touch, `{"ttl":60}`, ``, ``},
		{off, wire.Delete, `{"ttl":60}`, ``, ``},
		{off, wire.Create, `{}`, `{"ttl":60}`, ``}, // rejected: it takes no effect
		{on, wire.Upsert, ``, `{"ttl":60}`, ``},
		{on, wire.Upsert, ``, `{"ttl":"1"}`, ``},
		{byN, wire.Upsert, ``, `{"n":{}}`, leftOut},
		{byN, wire.Create, ``, `{"n":[[]]}`, leftOut},
		{byN, wire.Patch, `{"n":1}`, `{"n":{"a":null}}`, leftOut},
		{byN, wire.Patch, `{"n":{}}`, `{"m":{}}`, ``}, // it has written nothing there
		{byN, wire.Patch, `{"n":{}}`, `{"n":null}`, ``},
		{byN, wire.Touch, `{"n":{}}`, ``, ``},
		{byN, wire.Delete, `{"n":{}}`, ``, ``},
		{byN, wire.Upsert, `{"n":{}}`, `{"n":[1,null]}`, ``},
	} {
		header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
		m := decoder.Decode("lapse.write."+string(c.op)+".c.x", header, []byte(c.body), Position{Seq: 9, Time: 10})
		var stored *Version
		if c.stored != "" {
			stored = &Version{Header: store.Header{Ts: 6, Etag: 5}, Body: []byte(c.stored)}
		}
		if o, _ := decideOne(t, c.config, stored, m); o.Warning != c.want {
			t.Errorf("%s %s on %q in %+v: outcome %+v\nwant warning %s", c.op, c.body, c.stored, c.config, o, c.want)
		}
	}
}
