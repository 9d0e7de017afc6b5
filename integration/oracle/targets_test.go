package oracle

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// dueScene is a document with a target that is touched and patched, and expires; and the due message of it.
func dueScene(t *testing.T) (*logbook, []Message) {
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5,"eventBody":false}`)
	l.add(0, "write.upsert.c.a", ` {"v": 1} `, "lapse-target", "mail.send") // 2, replaced
	l.add(0, "write.replace.c.a", `{"v": 2}`)                               // 3, without a target, replaced
	l.add(0, "write.upsert.c.a", ` {"v": 3} `, "Lapse-Target", "mail.send") // 4
	l.add(1000, "write.touch.c.a", ``)                                      // 5, expires
	l.add(1000, "write.create.c.b", `{}`, "Lapse-Target", "mail..send")     // 6, rejected
	l.add(1000, "write.touch.c.a", ``, "Lapse-Target", "mail")              // 7, rejected
	l.add(6000, "tick", ``)
	l.want("rejections", l.rejections(), "6:[400] 7:[400]")
	l.m.Rejections = nil
	return l, []Message{{Seq: 1, At: 6000, Subject: bucketed("lapse.due.mail.send"), Data: []byte(` {"v": 3} `),
		Header: nats.Header{
			"ce-id": {"c/a/5"}, "ce-specversion": {"1.0"}, "ce-type": {"lapse.message.due.v1"},
			"ce-source":  {"/lapse/456/collections/c"},
			"ce-subject": {"a"}, "ce-time": {"1970-01-01T00:00:06.000Z"}, "Lapse-Target": {"mail.send"},
		}}}
}

// TestCompareDueMessages: each case spoils the due message in one way. The oracle must find exactly that.
func TestCompareDueMessages(t *testing.T) {
	header := func(name, v string) func([]Message) []Message {
		return func(m []Message) []Message { m[0].Header[name] = []string{v}; return m }
	}
	for name, test := range map[string]struct {
		spoil func([]Message) []Message
		want  string
	}{
		"nothing":        {func(m []Message) []Message { return m }, ""},
		"missing":        {func(m []Message) []Message { return nil }, "missing"},
		"doubled":        {func(m []Message) []Message { d := m[0]; d.Seq = 2; return append(m, d) }, "twice"},
		"early":          {func(m []Message) []Message { m[0].At = 5999; return m }, "early"},
		"a space lost":   {func(m []Message) []Message { m[0].Data = []byte(`{"v": 3}`); return m }, "wrong"},
		"no body":        {func(m []Message) []Message { m[0].Data = nil; return m }, "wrong"},
		"another target": {header("Lapse-Target", "mail.other"), "wrong"},
		"another type":   {header("ce-type", "lapse.document.expired.v1"), "wrong"},
		"another subject": {func(m []Message) []Message {
			m[0].Subject = bucketed("lapse.due.mail.other")
			return m
		}, "wrong"},
		"the event in its place": {func(m []Message) []Message {
			return []Message{expiry(1, 6000, "c", "a", 5,
				`{"id":"a","collection":"c","documentOmitted":true,"etag":"5","ts":"1970-01-01T00:00:01.000Z","ttl":5,"expiredAt":"1970-01-01T00:00:06.000Z"}`)}
		}, "wrong"},
	} {
		l, events := dueScene(t)
		got := l.m.CompareEvents(test.spoil(events), 6000).String()
		if test.want == "" && got != "" || test.want != "" && !strings.HasPrefix(got, test.want+" (") ||
			strings.Count(got, "):\n") > 1 {
			t.Errorf("%s: got %q, want %q alone", name, got, test.want)
		}
	}
}
