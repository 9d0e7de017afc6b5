package oracle

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// logbook is a small log that a test writes by hand. Stamps are in milliseconds from 0.
type logbook struct {
	t   *testing.T
	m   *Model
	seq uint64
}

func newLogbook(t *testing.T) *logbook {
	l := &logbook{t: t, m: NewModel(Settings{MaxBody: 1000, Created: 456})}
	l.m.open = true
	return l
}

// add appends a message and returns its sequence. subject has no prefix; headers are
// pairs of a name and a value.
func (l *logbook) add(at wire.Time, subject, body string, headers ...string) uint64 {
	l.t.Helper()
	l.seq++
	h := nats.Header{}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = append(h[headers[i]], headers[i+1])
	}
	if err := l.m.Apply(Message{Seq: l.seq, Subject: "lapse." + subject, Header: h, Data: []byte(body),
		At: at}); err != nil {
		l.t.Fatal(err)
	}
	return l.seq
}

// live returns the documents that can be read at an instant, as "a=<etag>@<expiry> ...".
func (l *logbook) live(at wire.Time) string {
	live := l.m.Live(at)
	var all []string
	for _, name := range l.m.Names() {
		if d, ok := live[name]; ok {
			text := fmt.Sprintf("%s=%d", name.ID, d.Etag)
			if d.ExpiresAt != nil {
				text += fmt.Sprintf("@%d", *d.ExpiresAt)
			}
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}

// expiries returns the expirations, as "a/<etag>@<expiredAt>(<ttl>) ...".
func (l *logbook) expiries() string {
	var all []string
	for _, e := range l.m.Expiries {
		all = append(all, fmt.Sprintf("%s/%d@%d(%d)", e.Name.ID, e.Etag, e.ExpiredAt, e.Seconds))
	}
	return strings.Join(all, " ")
}

func (l *logbook) rejections() string {
	var all []string
	for _, r := range l.m.Rejections {
		all = append(all, fmt.Sprintf("%d:%v", r.Seq, r.Codes))
	}
	return strings.Join(all, " ")
}

func (l *logbook) want(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestMatrix(t *testing.T) {
	for _, test := range []struct{ byDefault, item, expires string }{
		{`null`, `{}`, "a=2"}, {`null`, `{"ttl":-1}`, "a=2"}, {`null`, `{"ttl":3}`, "a=2"},
		{`null`, `{"ttl":"bad"}`, "a=2"},
		{`-1`, `{}`, "a=2"}, {`-1`, `{"ttl":-1}`, "a=2"}, {`-1`, `{"ttl":3}`, "a=2@3001"},
		{`-1`, `{"ttl":null}`, "a=2"},
		{`5`, `{}`, "a=2@5001"}, {`5`, `{"ttl":-1}`, "a=2"}, {`5`, `{"ttl":3}`, "a=2@3001"},
		{`5`, `{"ttl":8,"ttl":3}`, "a=2@3001"},
	} {
		l := newLogbook(t)
		l.add(0, "config.c", `{"defaultTtl":`+test.byDefault+`}`)
		l.add(1, "write.upsert.c.a", test.item)
		l.want(test.byDefault+" "+test.item, l.live(1), test.expires)
		l.want("rejections", l.rejections(), "")
	}
}

func TestBoundary(t *testing.T) {
	for stamp, want := range map[wire.Time]string{4999: "3:[409]", 5000: "", 5001: ""} {
		l := newLogbook(t)
		l.add(0, "config.c", `{"defaultTtl":5}`)
		l.add(0, "write.create.c.a", `{}`)
		l.add(stamp, "write.create.c.a", `{}`)
		l.want(fmt.Sprint("create at ", stamp), l.rejections(), want)
	}
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5}`)
	l.add(0, "write.create.c.a", `{}`)
	l.want("before", l.live(4999), "a=2@5000")
	l.want("at", l.live(5000), "")
	l.want("nothing has expired in the log", l.expiries(), "")
	l.add(7000, "tick", "")
	l.want("by the tick", l.expiries(), "a/2@5000(5)")
}

// TestTimeOfTheLog: any message moves log time for all documents. Log time never goes back: a stamp that is less than
// an earlier one counts as the earlier one.
func TestTimeOfTheLog(t *testing.T) {
	for _, subject := range []string{"write.upsert.c.b", "write.broken", "config.other", "drop.other", "tick"} {
		l := newLogbook(t)
		l.add(0, "config.c", `{"defaultTtl":5}`)
		l.add(0, "write.upsert.c.a", `{}`)
		l.add(4999, subject, `{}`)
		l.want("not yet, by "+subject, l.expiries(), "")
		l.add(5000, subject, `{}`)
		l.want("by "+subject, l.expiries(), "a/2@5000(5)")
	}
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5}`)
	l.add(9000, "tick", ``)
	l.add(8000, "write.upsert.c.b", `{}`)
	l.want("the stamp went back", l.live(8000), "b=3@14000")
}

func TestConfigurationAndExpiredIsFinal(t *testing.T) {
	l := newLogbook(t)
	l.add(0, "write.upsert.c.a", `{}`)          // 1
	l.add(0, "write.upsert.c.b", `{"ttl":100}`) // 2
	l.add(9000, "config.c", `{"defaultTtl":5}`)
	l.want("at once", l.live(9000), "b=2@100000")
	l.add(9000, "config.c", `{}`)
	l.want("off brings nothing back", l.live(9000), "b=2")
	l.want("expired by the change", l.expiries(), "a/1@9000(5)")
	l.add(150000, "config.c", `{"defaultTtl":-1}`)
	l.want("on again, own TTLs count again", l.live(150000), "")
	l.add(150000, "tick", ``)
	l.want("expired by being on", l.expiries(), "a/1@9000(5) b/2@150000(100)")
}

func TestEqualConfigurationChangesNothing(t *testing.T) {
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5}`)
	l.add(0, "write.upsert.c.a", `{}`)
	l.add(4000, "config.c", `{"defaultTtl":5,"indexingMode":"consistent"}`)
	l.add(6000, "tick", ``)
	l.want("since the first", l.expiries(), "a/2@5000(5)")
}

func TestDrop(t *testing.T) {
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5}`)
	l.add(0, "write.upsert.c.a", `{}`)
	l.add(1000, "write.upsert.c.b", `{}`)
	l.add(1000, "write.upsert.d.x", `{}`)
	l.add(5000, "drop.c", ``)
	l.add(5000, "write.upsert.c.a", `{}`)
	l.want("the other collection, and the document that was written after the drop", l.live(90000), "a=6 x=4")
	l.want("the document that had expired before the drop", l.expiries(), "a/2@5000(5)")
	l.want("rejections", l.rejections(), "")
}

func TestOperations(t *testing.T) {
	l := newLogbook(t)
	status := func(want int, at wire.Time, op, body string, headers ...string) {
		t.Helper()
		seq := l.add(at, "write."+op+".c.a", body, headers...)
		if got := l.m.Outcomes[seq].Status; got != want {
			t.Errorf("%s %s %v: status %d, want %d", op, body, headers, got, want)
		}
	}
	for _, op := range []string{"replace", "patch", "touch", "delete"} {
		body := map[bool]string{true: `{}`}[wire.Op(op).HasBody()]
		status(404, 0, op, body)
		status(404, 0, op, body, "Lapse-If-Match", "*") // existence comes first
	}
	status(412, 0, "upsert", `{}`, "Lapse-If-Match", "*")
	status(412, 0, "create", `{}`, "Lapse-If-Match", "1")
	status(201, 1, "create", `{"id":"a","n":1.50}`) // 11
	status(409, 1, "create", `{}`, "Lapse-If-Match", "*")
	status(412, 1, "touch", ``, "lapse-if-match", "10")
	status(200, 1, "patch", `{"id":null,"o":{"x":null,"y":1}}`, "Lapse-If-Match", "11") // 14
	status(200, 2, "touch", ``, "Lapse-If-Match", "*")                                  // 15
	d := l.m.Live(2)[Name{"c", "a"}]
	if d.Etag != 15 || d.Ts != 2 || !d.sameBody([]byte(`{"o":{"y":1}, "n":1.50}`), d.Body) {
		t.Errorf("got version %d of %d, %s", d.Etag, d.Ts, d.Body)
	}
	status(413, 3, "patch", `{"x":"`+strings.Repeat("x", 985)+`"}`) // fits by itself
	status(412, 3, "patch", `{"x":"`+strings.Repeat("x", 985)+`"}`, "Lapse-If-Match", "14")
	status(413, 3, "upsert", `{"x":"`+strings.Repeat("x", 1000)+`"}`)
	status(204, 3, "delete", ``)
	status(404, 3, "delete", ``)
	l.want("live", l.live(3), "")
}

// nested is an object with so many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

// TestLevels: a body may have so many levels of objects and arrays, and so may what is patched with it. Signs in
// strings are no levels.
func TestLevels(t *testing.T) {
	l := newLogbook(t)
	l.m.set.MaxBody = 1 << 20
	for i, body := range []string{nested(1000), `{"a":[` + nested(998) + `]}`, nested(1000), `{"[{[{":"` +
		strings.Repeat(`[{\"`, 2000) + `"}`} {
		subject := "write.upsert.c.a"
		if i == 2 {
			subject = "write.patch.c.a"
		}
		l.add(0, subject, body)
	}
	l.want("live", l.live(0), "a=4")
	l.want("rejections", l.rejections(), "")
}

func TestBadRequests(t *testing.T) {
	l := newLogbook(t)
	l.m.set.MaxBody = 1 << 20
	l.add(0, "config.c", `{"defaultTtl":-1}`)
	l.add(0, "config.none", `{"indexingMode":"none"}`)
	l.add(0, "write.upsert.c.a", `{}`)
	type message struct {
		subject, body string
		headers       []string
	}
	all := []message{
		{subject: "write.upsert.c"},
		{subject: "write.upsert.c.a.b", body: `{}`},
		{subject: "write.bogus.c.a", body: `{}`},
		{subject: "write.upsert.c.%zz", body: `{}`},
		{subject: "write.upsert.c.%61", body: `{}`},
		{subject: "write.upsert.c$.a", body: `{}`},
		{subject: "write.touch.c.a", body: `{}`},
		{subject: "write.delete.c.a", body: ` `},
		{subject: "write.patch.c.a", body: `{"ttl":0}`},
		{subject: "write.patch.c.a", body: `{"id":"b"}`},
		{subject: "write.patch.c.a", body: nested(1001)},
		{subject: "config.c", body: nested(1001)},
		{subject: "config.c", body: ``},
		{subject: "config.c.d", body: `{}`},
		{subject: "config.c", body: `{"defaultTTL":5}`},
		{subject: "config.c", body: `{"defaultTtl":0}`},
		{subject: "config.c", body: `{"indexingMode":"eager"}`},
		{subject: "config.c", body: `{"indexingMode":"none"}`},
		{subject: "config.new", body: `{"indexingMode":"none","defaultTtl":-1}`},
		{subject: "config.none", body: `{"defaultTtl":5}`},
		{subject: "config.c", body: `{}`, headers: []string{"Lapse-If-Match", "x"}},
		{subject: "drop.c", headers: []string{"Lapse-If-Match", "0"}},
		{subject: "drop.c", body: `{}`},
		{subject: "drop.c.d"},
	}
	for _, body := range []string{
		nested(1001), `{"a":[` + nested(999) + `]}`, strings.Repeat("[", 2000), ``, `null`, `[]`, `5`, `{`, `{}x`,
		`{"a":` + "\"\xff\"" + `}`, `{"id":"b"}`, `{"id":null}`, `{"id":5}`,
		`{"ttl":0}`, `{"ttl":-2}`, `{"ttl":5.0}`, `{"ttl":1e1}`, `{"ttl":"5"}`, `{"ttl":2147483648}`, `{"ttl":true}`,
		`{"ttl":5,"ttl":0}`,
	} {
		all = append(all, message{subject: "write.upsert.c.a", body: body})
	}
	for _, h := range [][]string{
		{"Lapse-If-Match", ""},
		{"Lapse-If-Match", "0"},
		{"Lapse-If-Match", "01"},
		{"Lapse-If-Match", "x"},
		{"Lapse-If-Match", "3", "Lapse-If-Match", "3"},
		{"lapse-if-match", "x"},
		{"lapse-if-match", "3", "Lapse-If-Match", "3"},
		{"LAPSE-TTL", "3"},
		{"Lapse-Reply-To", "other"},
		{"Lapse-Reply-To", "_INBOX."},
		{"Lapse-Reply-To", "_INBOX.a..b"},
		{"Lapse-Reply-To", "_INBOX.*"},
	} {
		all = append(all, message{subject: "write.upsert.c.a", body: `{}`, headers: h})
	}
	for _, msg := range all {
		before := len(l.m.Rejections)
		l.add(1, msg.subject, msg.body, msg.headers...)
		if got := l.m.Rejections[before:]; len(got) != 1 || got[0].Codes[0] != 400 {
			t.Errorf("%+v: rejections %v, want one 400", msg, got)
		}
	}
	l.want("no harm done", l.live(1), "a=3")
	l.want("no harm done", fmt.Sprint(*l.m.Config("c").DefaultTTL, " ", l.m.Config("none").IndexingMode), "-1 none")
}

// TestConfigurationOnCondition: the If-Match of a configuration or a drop names the etag of the configuration, which is
// the sequence of its message.
func TestConfigurationOnCondition(t *testing.T) {
	l := newLogbook(t)
	status := func(want int, subject, body, match string) uint64 {
		t.Helper()
		seq := l.add(1, subject, body, "Lapse-If-Match", match)
		if got := l.m.Outcomes[seq].Status; got != want {
			t.Errorf("%s %s if %s: status %d, want %d", subject, body, match, got, want)
		}
		return seq
	}
	status(412, "config.c", `{}`, "*")
	status(412, "drop.c", ``, "*")
	first := l.add(1, "config.c", `{"defaultTtl":5}`)
	status(412, "config.c", `{}`, "1")
	status(400, "config.c", `{"indexingMode":"none"}`, "1") // before If-Match
	second := status(200, "config.c", `{"defaultTtl":5,"indexingMode":"lazy"}`, fmt.Sprint(first))
	status(412, "drop.c", ``, fmt.Sprint(first))
	if c := l.m.Config("c"); c.Etag != wire.Etag(second) || c.IndexingMode != wire.Lazy || *c.DefaultTTL != 5 {
		t.Errorf("configuration %+v", c)
	}
	status(204, "drop.c", ``, fmt.Sprint(second))
	if c := l.m.Config("c"); !reflect.DeepEqual(c, wire.Config{IndexingMode: wire.Consistent}) {
		t.Errorf("configuration after the drop: %+v", c)
	}
	status(412, "config.c", `{}`, "*")
	l.want("rejections", l.rejections(), "1:[412] 2:[412] 4:[412] 5:[400] 7:[412] 9:[412]")
}

// TestReplyPrefixes: a client may ask for outcomes only under _INBOX and the prefixes of the rules.
func TestReplyPrefixes(t *testing.T) {
	l := newLogbook(t)
	l.add(1, "config.$rules", `{"open":true,"replyPrefixes":["_MY","a.b"]}`)
	for i, to := range []string{"_MY.x", "a.b.c", "_INBOX.x", "_MYS.x", "_MY", "a.x", "_MY.*"} {
		before := len(l.m.Rejections)
		l.add(1, "write.upsert.c.a", `{}`, "Lapse-Reply-To", to)
		if rejected := len(l.m.Rejections) > before; rejected != (i > 2) {
			t.Errorf("to %s: rejected %v", to, rejected)
		}
	}
}

// TestTTLWhileOff: while TTL is off, any ttl is stored. Once TTL is on, one that is not valid counts as none.
func TestTTLWhileOff(t *testing.T) {
	l := newLogbook(t)
	warns := func(want bool, subject, body string) {
		t.Helper()
		if got := l.m.Outcomes[l.add(0, subject, body)].Warning; (got != "") != want {
			t.Errorf("%s %s: warning %q, want one: %v", subject, body, got, want)
		}
	}
	warns(true, "write.upsert.c.a", `{"ttl":"5"}`)
	warns(true, "write.upsert.c.b", `{"ttl":3}`)
	warns(false, "config.c", `{"defaultTtl":10}`)
	l.want("live", l.live(0), "a=1@10000 b=2@3000")
	warns(false, "write.upsert.c.a", `{"ttl":5}`)
	warns(false, "config.c", `{}`)
	warns(true, "write.patch.c.a", `{"ttl":5}`)
	warns(false, "write.patch.c.a", `{"x":1}`)
	warns(false, "write.touch.c.a", ``)
	warns(false, "write.upsert.c.a", `{"ttl":-1}`)
	warns(false, "write.upsert.c.a", `{"ttl":null}`)
	warns(false, "write.create.c.a", `{"ttl":5}`) // it exists
	l.want("rejections", l.rejections(), "11:[409]")
}
