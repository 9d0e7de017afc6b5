package oracle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// warned is a history with warnings, and those that are due in it: before each write and each configuration
// come those that were due by then, and none is of an instant that had passed when it began to count.
func warned(t *testing.T) (*logbook, []Message) {
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5,"warnBefore":[2,4]}`)
	l.add(0, "write.upsert.c.a", `{"v":1}`)                         // 2, until 5000
	l.add(0, "write.upsert.c.b", `{"ttl":2}`)                       // 3, until 2000: both are not after the write
	l.add(1000, "write.upsert.c.a", `{"v":2}`)                      // 4, until 6000
	l.add(3000, "config.c", `{"defaultTtl":7,"warnBefore":[2,4]}`)  // until 8000
	l.add(4500, "config.c", `{"defaultTtl":7,"warnBefore":[2,3]}`)  // 3 s before is still to come
	l.add(5500, "config.c", `{"defaultTtl":-1,"warnBefore":[2,3]}`) // never
	l.add(6200, "config.c", `{"defaultTtl":7,"warnBefore":[2,1]}`)  // 2 s before has passed
	l.add(7000, "write.delete.c.a", ``)                             // but after the warning of 1 s before
	l.add(9000, "tick", ``)
	l.add(9000, "write.upsert.c.d", `{}`) // until 16000
	var messages []Message
	for i, w := range []struct {
		at, ts, ttl, deadline, before, etag int
	}{{1000, 0, 5, 5000, 4, 2}, {2000, 1000, 5, 6000, 4, 4}, {4000, 1000, 7, 8000, 4, 4}, {5000, 1000, 7, 8000, 3, 4}, {7000, 1000, 7, 8000, 1, 4}} {
		seq := uint64(i + 1)
		if i > 1 {
			seq++ // behind the event of b
		}
		messages = append(messages, warning(seq, w.at, w.ts, w.ttl, w.deadline, w.before, w.etag))
	}
	return l, append(messages, expiry(3, 3001, "c", "b", 3, `{"id":"b","collection":"c","document":{"ttl":2},"etag":"3","ts":"1970-01-01T00:00:00.000Z","ttl":2,"expiredAt":"1970-01-01T00:00:02.000Z"}`))
}

// warning is one of document a.
func warning(seq uint64, at, ts, ttl, deadline, before, etag int) Message {
	v := 1
	if etag > 2 {
		v = 2
	}
	body := fmt.Sprintf(`{"id":"a","collection":"c","document":{"v":%d},"etag":"%d","ts":"%s","ttl":%d,"expiresAt":"%s","before":%d}`, v, etag, wire.Time(ts), ttl, wire.Time(deadline), before)
	return Message{Seq: seq, At: wire.Time(at), Subject: bucketed("lapse.expiring.c.a"), Data: []byte(body), Header: nats.Header{
		"ce-id": {fmt.Sprintf("c/a/%d/expiring/%d/%d", etag, before, deadline)}, "ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expiring.v1"},
		"ce-source": {"/lapse/456/collections/c"}, "ce-subject": {"a"}, "ce-time": {wire.Time(at).String()},
	}}
}

// TestWarnings: the model has the warnings that are due, and the oracle finds what is wrong with those that
// were published.
func TestWarnings(t *testing.T) {
	warns = true
	t.Cleanup(func() { warns = false })
	l, messages := warned(t)
	var got, want []string
	for _, w := range l.m.Warnings {
		got = append(got, w.ID())
	}
	for _, m := range messages[:5] {
		want = append(want, m.Header.Get("ce-id"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if d := l.m.CompareEvents(messages, 9000); len(d) > 0 {
		t.Errorf("the warnings are right, but the oracle found: %s", d)
	}
	if d := l.m.CompareEvents(messages, 14000); !strings.HasPrefix(d.String(), "missing (1):") {
		t.Errorf("the log has not reached the warning of d: %s", d)
	}
	for name, tt := range map[string]struct {
		spoil func([]Message) []Message
		want  string
	}{
		"missing":           {func(m []Message) []Message { return m[1:] }, "missing"},
		"twice":             {func(m []Message) []Message { d := m[0]; d.Seq = 9; return append(m, d) }, "twice"},
		"early":             {func(m []Message) []Message { m[0].At = 999; return m }, "early"},
		"that had passed":   {func(m []Message) []Message { return append(m, warning(9, 6000, 1000, 7, 8000, 2, 4)) }, "unexpected"},
		"of an old version": {func(m []Message) []Message { return append(m, warning(9, 3000, 0, 5, 5000, 2, 2)) }, "unexpected"},
		"swapped":           {func(m []Message) []Message { m[0].Seq, m[1].Seq = 2, 1; return m }, "out of order"},
		"before": {func(m []Message) []Message {
			m[0].Data = []byte(strings.Replace(string(m[0].Data), `"before":4`, `"before":5`, 1))
			return m
		}, "wrong"},
		"the type":           {func(m []Message) []Message { m[0].Header["ce-type"] = []string{"lapse.document.expired.v1"}; return m }, "wrong"},
		"on another subject": {func(m []Message) []Message { m[0].Subject = bucketed("lapse.expired.c.a"); return m }, "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			l, messages := warned(t)
			if got := l.m.CompareEvents(tt.spoil(messages), 9000).String(); !strings.HasPrefix(got, tt.want+" (1):") || strings.Count(got, "):\n") != 1 {
				t.Errorf("got %q, want %q alone, once", got, tt.want)
			}
		})
	}
}
