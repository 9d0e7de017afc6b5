package oracle

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// changesScene is a history with every kind of change, and the messages about them.
func changesScene(t *testing.T) (*logbook, []Message) {
	l := newLogbook(t)
	l.add(0, "write.upsert.c.a", `{}`) // 1, before the property
	l.add(0, "config.c", `{"changes":true,"defaultTtl":5}`)
	l.add(1000, "write.upsert.c.a", ` {"v": 3} `, "traceparent", parent) // 3, updated
	l.add(2000, "write.create.c.b", `{}`)                                // 4, created
	l.add(2000, "write.create.c.b", `{}`)                                // 5, rejected
	l.add(3000, "write.delete.c.b", ``)                                  // 6, deleted
	l.add(6000, "drop.c", ``)                                            // 7, dropped; a has expired by then
	l.add(6000, "config.c", `{"changes":true,"eventBody":false}`)
	l.add(6000, "write.create.c.a", `{}`) // 9, created
	l.add(6000, "config.c", `{}`)
	l.add(6000, "write.touch.c.a", ``) // 11, after the property
	l.want("rejections", l.rejections(), "5:[409]")
	l.m.Rejections = nil
	message := func(seq uint64, kind, subject, id, at, body string, headers ...string) Message {
		h := nats.Header{
			"ce-id": {id}, "ce-specversion": {"1.0"}, "ce-type": {kind}, "ce-source": {"/lapse/456/collections/c"},
			"ce-time": {"1970-01-01T00:00:0" + at + ".000Z"},
		}
		if token := strings.TrimPrefix(subject, "lapse.changed.c."); token != subject {
			h["ce-subject"] = []string{token}
		}
		for i := 0; i < len(headers); i += 2 {
			h[headers[i]] = []string{headers[i+1]}
		}
		return Message{Seq: seq, At: 7000, Subject: bucketed(subject), Header: h, Data: []byte(body)}
	}
	const a, b, at = "lapse.changed.c.a", "lapse.changed.c.b", `"1970-01-01T00:00:0`
	return l, []Message{
		message(1, "lapse.document.updated.v1", a, "c/a/3/changed", "1",
			`{"id":"a","collection":"c","document":{"v": 3},"etag":"3","ts":`+at+`1.000Z","expiresAt":`+at+`6.000Z"}`,
			"traceparent", parent, "ce-traceparent", parent),
		message(2, "lapse.document.created.v1", b, "c/b/4/changed", "2",
			`{"id":"b","collection":"c","document":{},"etag":"4","ts":`+at+`2.000Z","expiresAt":`+at+`7.000Z"}`),
		message(3, "lapse.document.deleted.v1", b, "c/b/6/changed", "3", `{"id":"b","collection":"c","ts":`+at+
			`3.000Z"}`),
		expiry(4, 6000, "c", "a", 3, `{"id":"a","collection":"c","document":{"v": 3},"etag":"3","ts":`+at+
			`1.000Z","ttl":5,"expiredAt":`+at+`6.000Z"}`, "traceparent", parent, "ce-traceparent", parent),
		message(5, "lapse.collection.dropped.v1", "lapse.changed.c", "c/7/dropped", "6", `{"collection":"c","ts":`+at+
			`6.000Z"}`),
		message(6, "lapse.document.created.v1", a, "c/a/9/changed", "6",
			`{"id":"a","collection":"c","documentOmitted":true,"etag":"9","ts":`+at+`6.000Z"}`),
	}
}

// TestCompareChanges: each case spoils the messages in one way. The oracle must find exactly that.
func TestCompareChanges(t *testing.T) {
	without := func(i int) func([]Message) []Message {
		return func(m []Message) []Message { return slices.Delete(m, i, i+1) }
	}
	header := func(i int, name, v string) func([]Message) []Message {
		return func(m []Message) []Message { m[i].Header[name] = []string{v}; return m }
	}
	replace := func(i int, old, new string) func([]Message) []Message {
		return func(m []Message) []Message {
			m[i].Data = []byte(strings.Replace(string(m[i].Data), old, new, 1))
			return m
		}
	}
	for name, test := range map[string]struct {
		spoil func([]Message) []Message
		want  string
	}{
		"nothing":          {func(m []Message) []Message { return m }, ""},
		"a missing update": {without(0), "missing"},
		"a missing delete": {without(2), "missing"},
		"a missing drop":   {without(4), "missing"},
		"doubled":          {func(m []Message) []Message { d := m[1]; d.Seq = 9; return append(m, d) }, "twice"},
		"of another write": {func(m []Message) []Message {
			d := header(1, "ce-id", "c/b/5/changed")(slices.Clone(m[:2]))[1]
			return append(m[:1:1], d)
		}, "unexpected"},
		"the order":              {func(m []Message) []Message { m[1].Seq, m[2].Seq = 3, 2; return m }, "out of order"},
		"the event comes before": {func(m []Message) []Message { m[0].Seq, m[3].Seq = 4, 1; return m }, "out of order"},
		"another type":           {header(0, "ce-type", "lapse.document.created.v1"), "wrong"},
		"another time":           {header(2, "ce-time", "1970-01-01T00:00:04.000Z"), "wrong"},
		"a drop with a document": {header(4, "ce-subject", "a"), "wrong"},
		"a document on the drop": {func(m []Message) []Message { m[0].Subject = "lapse.changed.c"; return m }, "wrong"},
		"a space lost":           {replace(0, `{"v": 3}`, `{"v":3}`), "wrong"},
		"no deadline":            {replace(1, `,"expiresAt":"1970-01-01T00:00:07.000Z"`, ``), "wrong"},
		"a delete with an etag":  {replace(2, `"ts"`, `"etag":"6","ts"`), "wrong"},
		"a document left out":    {replace(5, `"documentOmitted":true`, `"document":{}`), "wrong"},
	} {
		l, events := changesScene(t)
		spoilt := test.spoil(events)
		if name == "of another write" { // it is missing in place of the others
			l.m.Changes, l.m.Expiries = l.m.Changes[:1], nil
		}
		got := l.m.CompareEvents(spoilt, 6000).String()
		if test.want == "" && got != "" || test.want != "" && !strings.HasPrefix(got, test.want+" (") ||
			strings.Count(got, "):\n") > 1 {
			t.Errorf("%s: got %q, want %q alone", name, got, test.want)
		}
	}
}
