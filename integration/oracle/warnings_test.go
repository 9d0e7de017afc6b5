package oracle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestWarnings: the warnings that the contract requires, in histories that a person can follow.
func TestWarnings(t *testing.T) {
	at := func(deadline wire.Time) string { return deadline.String() }
	for name, test := range map[string]struct {
		log  []string // instant subject body [header value]
		want string   // collection/id/etag/expiring/before/deadline@instant
	}{
		"each once, before the end": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1,3]}`, `0|write.create.c.a|{}`, `1999|tick|`, `2000|tick|`,
			`2000|tick|`, `9000|tick|`,
		}, "a/2/expiring/3/5000@2000 a/2/expiring/1/5000@4000"},
		"not yet": {[]string{`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{}`, `3999|tick|`},
			""},
		"none if it would be due at the write, or before it": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[5,6]}`, `0|write.create.c.a|{}`, `9000|tick|`,
		}, ""},
		"a write at that instant comes too late, one before it does not": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{}`, `0|write.create.c.b|{}`,
			`3999|write.delete.c.a|`, `4000|write.touch.c.b|`, `7999|tick|`,
		}, "b/3/expiring/1/5000@4000"},
		"no burst when warnings or a default are set": {[]string{
			`0|config.c|{"defaultTtl":-1}`, `0|write.create.c.a|{}`, `0|write.create.c.b|{"ttl":9}`,
			`4000|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `9000|tick|`,
		}, "b/3/expiring/1/9000@8000"},
		"one after the change that it counts from": {[]string{
			`0|config.c|{"defaultTtl":-1}`, `0|write.create.c.a|{}`, `3999|config.c|{"defaultTtl":5,"warnBefore":[1]}`,
			`9000|tick|`,
		}, "a/2/expiring/1/5000@4000"},
		"another default gives another deadline": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{}`,
			`4500|config.c|{"defaultTtl":8,"warnBefore":[1]}`, `9000|tick|`,
		}, "a/2/expiring/1/5000@4000 a/2/expiring/1/8000@7000"},
		"a deadline by its own ttl is not moved by a default": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{"ttl":6}`,
			`1000|config.c|{"defaultTtl":8,"warnBefore":[1]}`,
			`5500|config.c|{"defaultTtl":9,"warnBefore":[1]}`, `9000|tick|`,
		}, "a/2/expiring/1/6000@5000"},
		"more warnings, of which some are past": {[]string{
			`0|config.c|{"defaultTtl":9,"warnBefore":[5]}`, `0|write.create.c.a|{}`,
			`5000|config.c|{"defaultTtl":9,"warnBefore":[5,4,1]}`, `10000|tick|`,
		}, "a/2/expiring/5/9000@4000 a/2/expiring/1/9000@8000"},
		"of a new version again, and not of what a kept clock left behind": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[3,1]}`, `0|write.create.c.a|{}`,
			`3000|write.patch.c.a|{}|Lapse-Clock|keep`, `9000|tick|`,
		}, "a/2/expiring/3/5000@2000 a/3/expiring/1/5000@4000"},
		"of an absolute deadline, also after a touch": {[]string{
			`0|config.c|{"defaultTtl":-1,"warnBefore":[2,1]}`, `0|write.create.c.a|{}|Lapse-Expires-At|` + at(5000),
			`3500|write.touch.c.a|`, `9000|tick|`,
		}, "a/2/expiring/2/5000@3000 a/3/expiring/1/5000@4000"},
		"off, and on again": {[]string{
			`0|config.c|{"defaultTtl":-1,"warnBefore":[2,1]}`, `0|write.create.c.a|{"ttl":9}`, `1000|config.c|{}`,
			`7500|config.c|{"defaultTtl":-1,"warnBefore":[2,1]}`, `9500|tick|`,
		}, "a/2/expiring/1/9000@8000"},
		"none after a drop": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{}`, `3999|drop.c|`, `9000|tick|`,
		}, ""},
		"none of a document that never expires": {[]string{
			`0|config.c|{"defaultTtl":5,"warnBefore":[1]}`, `0|write.create.c.a|{"ttl":-1}`, `9000|tick|`,
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLogbook(t)
			l.m.warns = true
			for _, line := range test.log {
				var stamp wire.Time
				fields := strings.SplitN(line, "|", 4)
				_, _ = fmt.Sscan(fields[0], &stamp)
				var headers []string
				if len(fields) == 4 {
					headers = strings.Split(fields[3], "|")
				}
				l.add(stamp, fields[1], fields[2], headers...)
			}
			l.want("rejections", l.rejections(), "")
			var got []string
			for _, w := range l.m.Warnings {
				got = append(got, fmt.Sprintf("%s@%d", strings.TrimPrefix(w.ID(), "c/"), w.At()))
			}
			l.want("warnings", strings.Join(got, " "), test.want)
		})
	}
}

// warned is a history with a warning and an expiration of one document, a warning that the log has not
// reached of another, and their messages.
func warned(t *testing.T) (*logbook, []Message) {
	l := newLogbook(t)
	l.m.warns = true
	l.add(0, "config.c", `{"defaultTtl":5,"warnBefore":[2]}`)
	l.add(0, "write.upsert.c.a", `{"v": 1}`, "traceparent", parent)
	l.add(0, "write.upsert.c.b", `{}`)
	l.add(1000, "write.upsert.c.b", `{}`)
	l.add(5500, "tick", ``)
	w := func(seq uint64, id string, etag int, deadline wire.Time, document, trace string) Message {
		body, _ := json.Marshal(map[string]any{"id": id, "collection": "c", "document": json.RawMessage(document),
			"etag": fmt.Sprint(etag),
			"ts":   (deadline - 5000).String(), "ttl": 5, "expiresAt": deadline.String(), "before": 2})
		return Message{Seq: seq, At: deadline - 1999, Subject: bucketed("lapse.expiring.c." + id), Data: body,
			Header: nats.Header{
				"ce-id": {fmt.Sprintf("c/%s/%d/expiring/2/%d", id, etag, deadline)}, "ce-specversion": {"1.0"},
				"ce-type":   {"lapse.document.expiring.v1"},
				"ce-source": {"/lapse/456/collections/c"}, "ce-subject": {id}, "ce-time": {(deadline - 2000).String()},
				"traceparent": {trace}, "ce-traceparent": {trace},
			}}
	}
	return l, []Message{
		w(1, "a", 2, 5000, `{"v":1}`, parent), w(2, "b", 4, 6000, `{}`, ""),
		expiry(
			3,
			5501,
			"c",
			"a",
			2,
			`{"id":"a","collection":"c","document":{"v": 1},"etag":"2","ts":"1970-01-01T00:00:00.000Z","ttl":5,"expiredAt":"1970-01-01T00:00:05.000Z"}`,
			"traceparent",
			parent,
			"ce-traceparent",
			parent,
		),
	}
}

// TestCompareWarnings: the oracle finds each way in which warnings can be wrong.
func TestCompareWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		at    wire.Time
		spoil func(m []Message) []Message
		want  string
	}{
		"right":   {0, func(m []Message) []Message { return m }, ""},
		"missing": {0, func(m []Message) []Message { return m[1:] }, "missing"},
		"warned twice": {0, func(m []Message) []Message { again := m[0]; again.Seq = 9; return append(m, again) },
			"twice"},
		"after the end": {0, func(m []Message) []Message { m[0].Seq = 9; return []Message{m[1], m[2], m[0]} },
			"out of order"},
		"of no version": {0, func(m []Message) []Message { return append(m, at(m[0], "c/b/3/expiring/2/5000")) },
			"unexpected"},
		"of another length": {0, func(m []Message) []Message { return append(m, at(m[0], "c/a/2/expiring/1/5000")) },
			"unexpected"},
		"another deadline": {0, func(m []Message) []Message { return replaced(m, `5.000Z`, `5.001Z`) }, "wrong"},
		"another length": {0, func(m []Message) []Message { return replaced(m, `"before":2`, `"before":1`) },
			"wrong"},
		"expired": {0, func(m []Message) []Message { return replaced(m, `expiresAt`, `expiredAt`) }, "wrong"},
		"type":    {0, func(m []Message) []Message { m[0].Header.Set("ce-type", ""); return m }, "wrong"},
		"time": {0, func(m []Message) []Message { m[0].Header["ce-time"] = m[2].Header["ce-time"]; return m },
			"wrong"},
		"subject": {0, func(m []Message) []Message { m[0].Subject += "1"; return m }, "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			l, events := warned(t)
			events[0].Data = []byte(strings.Replace(string(events[0].Data), `{"v":1}`, `{"v": 1}`, 1))
			d := l.m.CompareEvents(test.spoil(events), max(test.at, 5500))
			if len(d) == 0 && test.want == "" {
				return
			}
			if got := d.String(); test.want == "" || !strings.HasPrefix(got, test.want+" (") ||
				strings.Count(got, "):\n") != 1 {
				t.Errorf("got %q, want %q alone", got, test.want)
			}
		})
	}
}

func at(m Message, id string) Message {
	m.Seq, m.Header = 9, nats.Header{"ce-id": {id}}
	return m
}

func replaced(m []Message, from, to string) []Message {
	m[0].Data = []byte(strings.ReplaceAll(string(m[0].Data), from, to))
	return m
}
