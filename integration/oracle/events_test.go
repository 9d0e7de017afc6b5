package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// scene is a small history that leads to each kind of event, with the right events.
func scene(t *testing.T) (*logbook, []Message) {
	l := newLogbook(t)
	l.add(0, "config.c", `{"defaultTtl":5}`)
	l.add(0, "write.upsert.c.a", `{"v": 1}`, "traceparent", parent)       // 2, expires
	l.add(0, "write.upsert.c.b", `{}`)                                    // 3, overwritten
	l.add(1000, "write.upsert.c.b", `{"ttl":-1}`)                         // 4
	l.add(5000, "write.create.c.a", `{"v":"<2>"}`, "traceparent", "00-1") // 5, expires; its traceparent is not valid
	l.add(5000, "write.create.c.a", `{}`)                                 // 6, rejected
	l.add(10500, "tick", ``)                                              // 7
	l.add(10500, "write.upsert.c.d%2Fe", `{}`)                            // 8, expires at 15500
	return l, []Message{
		expiry(
			1,
			5001,
			"c",
			"a",
			2,
			`{"id":"a","collection":"c","document":{"v": 1},"etag":"2","ts":"1970-01-01T00:00:00.000Z","ttl":5,"expiredAt":"1970-01-01T00:00:05.000Z"}`,
			"traceparent",
			parent,
			"ce-traceparent",
			parent,
		),
		{Seq: 2, At: 5002, Subject: "lapse.rejected.c.12", Data: []byte(`{}`), Header: nats.Header{
			"Lapse-Stream": {"LAPSE_LOG"}, "Lapse-Seq": {"6"}, "Lapse-Code": {"409"}, "Lapse-Error": {"it exists"},
			"Lapse-Subject": {"lapse.write.create.c.a"},
		}},
		expiry(3, 10501, "c", "a", 5,
			`{"id":"a","collection":"c","document":{"v":"<2>"},"etag":"5","ts":"1970-01-01T00:00:05.000Z","ttl":5,"expiredAt":"1970-01-01T00:00:10.000Z"}`),
	}
}

func expiry(seq uint64, at wire.Time, collection, token string, etag int, body string, headers ...string) Message {
	var e wire.Event
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		panic(err)
	}
	id := fmt.Sprintf("%s/%s/%d", collection, token, etag)
	h := nats.Header{
		"ce-id": {id}, "ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"},
		"ce-source": {"/lapse/456/collections/" + collection}, "ce-subject": {token}, "ce-time": {e.ExpiredAt.String()},
	}
	for i := 0; i < len(headers); i += 2 {
		h[headers[i]] = []string{headers[i+1]}
	}
	return Message{Seq: seq, At: at, Subject: bucketed("lapse.expired." + collection + "." + token), Header: h,
		Data: []byte(body)}
}

func TestCompareEventsAgrees(t *testing.T) {
	l, events := scene(t)
	if d := l.m.CompareEvents(events, 15499); len(d) > 0 {
		t.Errorf("the events are right, but the oracle found: %s", d)
	}
}

// TestCompareEventsCatches: each case spoils the events in one way. The oracle must find exactly that, with the right
// kind.
func TestCompareEventsCatches(t *testing.T) {
	e := func(events []Message, i int, change func(*Message)) []Message {
		change(&events[i])
		return events
	}
	header := func(name, v string) func(*Message) { return func(m *Message) { m.Header[name] = []string{v} } }
	replace := func(old, new string) func(*Message) {
		return func(m *Message) { m.Data = []byte(strings.Replace(string(m.Data), old, new, 1)) }
	}
	for name, test := range map[string]struct {
		at    wire.Time
		spoil func([]Message) []Message
		want  string
	}{
		"missing expiry":    {0, func(m []Message) []Message { return m[1:] }, "missing"},
		"missing last":      {0, func(m []Message) []Message { return m[:2] }, "missing"},
		"missing rejection": {0, func(m []Message) []Message { return slices.Delete(m, 1, 2) }, "missing"},
		"missing tick":      {15500, func(m []Message) []Message { return m }, "missing"},
		"doubled expiry":    {0, func(m []Message) []Message { d := m[0]; d.Seq = 4; return append(m, d) }, "twice"},
		"doubled rejection": {0, func(m []Message) []Message { d := m[1]; d.Seq = 4; return append(m, d) }, "twice"},
		"early by its stamp": {0, func(m []Message) []Message { return e(m, 0, func(m *Message) { m.At = 4999 }) },
			"early"},
		"early by the log": {15500, func(m []Message) []Message {
			return append(m,
				expiry(4, 15501, "c", "d%2Fe", 8,
					`{"id":"d/e","collection":"c","document":{},"etag":"8","ts":"1970-01-01T00:00:10.500Z","ttl":5,"expiredAt":"1970-01-01T00:00:15.500Z"}`))
		}, "early"},
		"of an overwritten version": {0, func(m []Message) []Message {
			return append(m, expiry(4, 5001, "c", "b", 3,
				`{"id":"b","collection":"c","document":{},"etag":"3","ts":"1970-01-01T00:00:00.000Z","ttl":5,"expiredAt":"1970-01-01T00:00:05.000Z"}`))
		}, "unexpected"},
		"rejection of a good message": {0, func(m []Message) []Message {
			d := Message{Seq: 4, Subject: "lapse.rejected.c.a",
				Header: nats.Header{"Lapse-Seq": {"5"}, "Lapse-Code": {"400"}}}
			return append(m, d)
		}, "unexpected"},
		"another subject": {0, func(m []Message) []Message {
			return append(m,
				Message{Seq: 4, Subject: "lapse.other"})
		}, "unexpected"},
		"swapped": {0, func(m []Message) []Message {
			m[1].Seq, m[2].Seq = 3, 2
			return []Message{m[0], m[2], m[1]}
		}, "out of order"},
		"rejection before the expiry": {0, func(m []Message) []Message {
			m[0].Seq, m[1].Seq = 2, 1
			return []Message{m[1], m[0], m[2]}
		}, "out of order"},
		"a space lost": {0, func(m []Message) []Message {
			return e(m, 0,
				replace(`{"v": 1}`, `{"v":1}`))
		}, "wrong"},
		"document escaped": {0, func(m []Message) []Message {
			return e(m, 2,
				replace(`<2>`, `\u003c2>`))
		}, "wrong"},
		"document left out": {0, func(m []Message) []Message {
			return e(m, 0,
				replace(`"document":{"v": 1},`, ``))
		}, "wrong"},
		"a member more": {0, func(m []Message) []Message {
			return e(m, 0,
				replace(`"ttl":5`, `"ttl":5,"x":1`))
		}, "wrong"},
		"ttl": {0, func(m []Message) []Message {
			return e(m, 0,
				replace(`"ttl":5`, `"ttl":6`))
		}, "wrong"},
		"expiredAt": {0, func(m []Message) []Message {
			return e(m, 0,
				replace(`05.000Z`, `05.001Z`))
		}, "wrong"},
		"ce-time": {0, func(m []Message) []Message {
			return e(m, 0,
				header("ce-time", "1970-01-01T00:00:05Z"))
		}, "wrong"},
		"Nats-Msg-Id": {0, func(m []Message) []Message {
			return e(m, 0,
				header("Nats-Msg-Id", "other"))
		}, "wrong"},
		"source of another": {0, func(m []Message) []Message {
			return e(m, 0,
				header("ce-source", "/lapse/457/collections/c"))
		}, "wrong"},
		"ce-traceparent": {0, func(m []Message) []Message {
			return e(m, 0,
				header("ce-traceparent", ""))
		}, "wrong"},
		"bad traceparent": {0, func(m []Message) []Message {
			return e(m, 2,
				header("traceparent", "00-1"))
		}, "wrong"},
		"another traceparent of a rejection": {0, func(m []Message) []Message {
			return e(m, 1,
				header("traceparent", parent))
		}, "wrong"},
		"stream": {0, func(m []Message) []Message { return e(m, 1, header("Lapse-Stream", "")) }, "wrong"},
		"traceparent": {0, func(m []Message) []Message { return e(m, 0, header("traceparent", "00-2")) },
			"wrong"},
		"subject": {0, func(m []Message) []Message {
			return e(m, 0,
				func(m *Message) { m.Subject += "x" })
		}, "wrong"},
		"code": {0, func(m []Message) []Message { return e(m, 1, header("Lapse-Code", "400")) },
			"wrong"},
		"no reason":         {0, func(m []Message) []Message { return e(m, 1, header("Lapse-Error", "")) }, "wrong"},
		"body of rejection": {0, func(m []Message) []Message { return e(m, 1, replace(`{}`, `{ }`)) }, "wrong"},
		"truncated and whole": {0, func(m []Message) []Message { return e(m, 1, header("Lapse-Truncated", "2")) },
			"wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			l, events := scene(t)
			got := l.m.CompareEvents(test.spoil(events), max(test.at, 10500)).String()
			if !strings.HasPrefix(got, test.want+" (1):") || strings.Count(got, "):\n") != 1 {
				t.Errorf("got %q, want %q alone, once", got, test.want)
			}
		})
	}
}

// shelf is a way to read documents that a test has put there.
type shelf struct {
	docs     map[Name]sink.Document
	listed   []sink.Document
	expiring []sink.Document
	count    wire.CountReply
	config   wire.Config
}

func (shelf) String() string { return "the shelf" }

func (s shelf) Get(_ context.Context, collection, id string) (sink.Document, error) {
	if d, ok := s.docs[Name{collection, id}]; ok {
		return d, nil
	}
	return sink.Document{}, fmt.Errorf("shelf: %w", sink.ErrNotFound)
}

func (s shelf) List(context.Context, string) ([]sink.Document, error) { return s.listed, nil }
func (s shelf) Expiring(context.Context, string) ([]sink.Document, error) {
	return s.expiring, nil
}
func (s shelf) Count(context.Context, string) (wire.CountReply, error) { return s.count, nil }
func (s shelf) Config(context.Context, string) (wire.Config, error)    { return s.config, nil }

func TestCompareReadsCatches(t *testing.T) {
	expires, five := wire.Time(15500), int32(5)
	b := sink.Document{ID: "b", Etag: 4, Ts: 1000, Clock: 1000, Body: []byte(`{"ttl":-1}`)}
	de := sink.Document{ID: "d/e", Etag: 8, Ts: 10500, Clock: 10500, ExpiresAt: &expires, Body: []byte(`{}`)}
	put := func(s *shelf, d sink.Document) { s.docs[Name{"c", d.ID}] = d }
	for name, test := range map[string]struct {
		spoil func(*shelf)
		want  string
	}{
		"all is right": {func(*shelf) {}, ""},
		"lost":         {func(s *shelf) { delete(s.docs, Name{"c", "b"}) }, "missing"},
		"expired":      {func(s *shelf) { put(s, sink.Document{ID: "a", Etag: 5}) }, "unexpected"},
		"old version":  {func(s *shelf) { d := b; d.Etag = 3; put(s, d) }, "wrong"},
		"bytes":        {func(s *shelf) { d := b; d.Body = []byte(`{"ttl": -1}`); put(s, d) }, "wrong"},
		"ts":           {func(s *shelf) { d := b; d.Ts = 1; put(s, d) }, "wrong"},
		"expiry":       {func(s *shelf) { d := b; d.ExpiresAt = &expires; put(s, d) }, "wrong"},
		"no expiry":    {func(s *shelf) { d := de; d.ExpiresAt = nil; put(s, d) }, "wrong"},
		"list lacks":   {func(s *shelf) { s.listed = s.listed[:1] }, "missing"},
		"list has more": {func(s *shelf) { s.listed = append(s.listed, sink.Document{ID: "a", Etag: 2}) },
			"unexpected"},
		"list has both":          {func(s *shelf) { s.listed = append(s.listed, b) }, "twice"},
		"by deadline: lacks one": {func(s *shelf) { s.expiring = nil }, "missing"},
		"by deadline: never":     {func(s *shelf) { s.expiring = append(s.expiring, b) }, "unexpected"},
		"by deadline: both":      {func(s *shelf) { s.expiring = append(s.expiring, s.expiring[0]) }, "twice"},
		"count of more":          {func(s *shelf) { s.count.Live = 3 }, "unexpected"},
		"count of fewer":         {func(s *shelf) { s.count.Live = 1 }, "missing"},
		"config":                 {func(s *shelf) { s.config.DefaultTTL = nil }, "wrong"},
		"config's etag":          {func(s *shelf) { s.config.Etag = 2 }, "wrong"},
		"config's mode":          {func(s *shelf) { s.config.IndexingMode = wire.Lazy }, "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := scene(t)
			s := shelf{
				docs: map[Name]sink.Document{{"c", "b"}: b, {"c", "d/e"}: de}, listed: []sink.Document{b, de},
				expiring: []sink.Document{de},
				count:    wire.CountReply{Live: 2}, config: wire.Config{DefaultTTL: &five,
					IndexingMode: wire.Consistent, Etag: 1},
			}
			test.spoil(&s)
			got := l.m.CompareReads(t.Context(), s, func() wire.Time { return 11000 }).String()
			if test.want == "" && got != "" || test.want != "" && !strings.HasPrefix(got, test.want+" (1):") {
				t.Errorf("got %q, want %q alone, once", got, test.want)
			}
		})
	}
}
