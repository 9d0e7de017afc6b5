package processor

import (
	"encoding/json"
	"errors"
	"fmt"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Every operation, on a document that exists and on one that does not, with its outcome and
// a read afterwards.
func TestOperations(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		r.config("c", `{"defaultTtl":3600}`)
		for _, step := range []struct {
			op      wire.Op
			body    string
			ifMatch string
			status  int
			want    string // read afterwards
		}{
			{wire.Replace, `{"n":0}`, "", 404, ""},
			{wire.Patch, `{"n":0}`, "", 404, ""},
			{wire.Touch, ``, "", 404, ""},
			{wire.Delete, ``, "", 404, ""},
			{wire.Upsert, `{"n":0}`, "*", 412, ""},
			{wire.Create, `{"n":1, "id":"d.1"}`, "", 201, `{"n":1, "id":"d.1"}`},
			{wire.Create, `{"n":2}`, "", 409, `{"n":1, "id":"d.1"}`},
			{wire.Upsert, `{ "n" : 2 }`, "", 200, `{ "n" : 2 }`},
			{wire.Upsert, `{"n":3}`, "1", 412, `{ "n" : 2 }`},
			{wire.Upsert, `{"n":3}`, "*", 200, `{"n":3}`},
			{wire.Touch, ``, "", 200, `{"n":3}`},
			{wire.Patch, `{"m":[1, 2],"n":null}`, "", 200, `{"m":[1, 2]}`},
			{wire.Replace, `{"n":4}`, "", 200, `{"n":4}`},
			{wire.Patch, `{"ttl":0}`, "", 400, `{"n":4}`},
			{wire.Delete, `x`, "", 400, `{"n":4}`},
			{wire.Delete, ``, "", 204, ""},
			{wire.Delete, ``, "", 404, ""},
			{wire.Upsert, `{"n":5,"ttl":-1}`, "", 201, `{"n":5,"ttl":-1}`},
		} {
			var headers []string
			if step.ifMatch != "" {
				headers = []string{wire.HeaderIfMatch, step.ifMatch}
			}
			o := r.must(step.status, prefix.Write(step.op, "c", "d.1"), step.body, headers...)
			if got := r.body("c", "d.1"); got != step.want {
				t.Fatalf("after %s %s the document is %q, want %q", step.op, step.body, got, step.want)
			}
			if (o.Error != "") != (step.status >= 400) || o.Ts == 0 {
				t.Fatalf("outcome of %s %s: %+v", step.op, step.body, o)
			}
			if step.status == 200 || step.status == 201 {
				d, err := r.reader.Get(t.Context(), "c", "d.1")
				if err != nil || d.Etag != o.Etag || d.Ts != o.Ts || !cmp.Equal(d.ExpiresAt, o.ExpiresAt) {
					t.Fatalf("after %s the document is %+v (%v), and its outcome was %+v", step.op, d, err, o)
				}
			}
		}
		if o := r.put("c", "e", `{}`); *o.ExpiresAt != o.Ts+3600_000 {
			t.Errorf("a document that inherits 3600 has outcome %+v", o)
		}
		if n := len(r.events("c")); n != 0 {
			t.Errorf("%d events, want none", n)
		}
	})
}

// TestG3_AnEventPerExpiredVersion: a version that expires gets one event, with the
// document's bytes, its etag, the seconds that counted, the deadline and the trace; one
// that was overwritten or deleted before gets none. It fails if a reap does not publish,
// if it commits without the body, or if an overwritten version stays in the index.
func TestG3_AnEventPerExpiredVersion(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":1}`)
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		written := map[string]wire.Outcome{}
		for i := range 20 {
			id := fmt.Sprint("a b.", i)
			written[id] = r.must(201, prefix.Write(wire.Upsert, "c", id), fmt.Sprintf(`{ "n": %d }`, i), wire.HeaderTrace, trace)
		}
		// The second write comes well before the deadline of the first.
		then := func(status int, op wire.Op, id, body string) wire.Outcome {
			r.sendAsync(prefix.Write(wire.Upsert, "c", id), `{"x":1,"ttl":60}`)
			return r.must(status, prefix.Write(op, "c", id), body)
		}
		then(200, wire.Upsert, "overwritten", `{"ttl":60}`)
		then(204, wire.Delete, "deleted", ``)
		then(200, wire.Patch, "never", `{"ttl":-1}`)
		patched := then(200, wire.Patch, "patched", `{"ttl":2}`)

		log, err := r.js.Stream(t.Context(), prefix.LogStream())
		if err != nil {
			t.Fatal(err)
		}
		created := log.CachedInfo().Created.UnixMilli()
		for _, e := range r.waitEvents("c", 21) {
			o, body, ttl := written[e.ID], "", int32(1)
			if e.ID == "patched" {
				o, body, ttl = patched, `{"x":1,"ttl":2}`, 2
			} else {
				body = fmt.Sprintf(`{ "n": %s }`, e.ID[len("a b."):])
				if e.stored.header.Get("traceparent") != trace {
					t.Errorf("event of %s has headers %v", e.ID, e.stored.header)
				}
			}
			want := wire.Event{ID: e.ID, Collection: "c", Document: []byte(body), Etag: o.Etag, Ts: o.Ts, TTL: ttl,
				ExpiredAt: *o.ExpiresAt}
			if d := cmp.Diff(want, e.Event); d != "" {
				t.Error(d)
			}
			source := fmt.Sprintf("/lapse/%d/collections/c", created)
			if h := e.stored.header; h.Get("ce-source") != source || h.Get("ce-traceparent") != h.Get("traceparent") {
				t.Errorf("event of %s has headers %v, want source %s", e.ID, h, source)
			}
			id := "c/" + wire.EscapeID(e.ID) + "/" + o.Etag.String()
			if h := e.stored.header; h.Get("ce-id") != id || h.Get(nats.MsgIdHdr) != "" ||
				h.Get("ce-time") != o.ExpiresAt.String() {
				t.Errorf("event of %s has headers %v", e.ID, h)
			}
			delete(written, e.ID)
		}
		if len(written) > 0 {
			t.Errorf("no event of %v", written)
		}
		r.caughtUp(p) // an event comes before the commit
		c, err := r.reader.Count(t.Context(), "c")
		if err != nil || c.Live != 2 || c.Expired != 0 {
			t.Errorf("count: %+v, %v", c, err)
		}
	})
}

// TestG4_AnExpiredDocumentIsAbsent: a write stamped at or after the deadline finds the
// document gone, whether it was reaped or not, and the event comes first. It fails if a
// write decides only by what is stored.
func TestG4_AnExpiredDocumentIsAbsent(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":1}`)
		ops := []wire.Op{wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch, wire.Delete}
		last := r.put("c", "last", `{}`)
		for _, op := range ops {
			last = r.put("c", string(op), `{"v":1}`)
		}
		// Documents that expire while no processor runs are met, not reaped, by messages of the log
		// when the next one starts.
		p.stop(t)
		eventually(t, "the deadline passes", func() bool { return time.Now().UnixMilli() > int64(*last.ExpiresAt) })
		inbox, err := r.nc.SubscribeSync(r.nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			body := ""
			if op.HasBody() {
				body = `{"v":2}`
			}
			r.send(prefix.Write(op, "c", string(op)), body, wire.HeaderReplyTo, inbox.Subject)
		}
		r.run()
		got := map[int]int{}
		for range ops {
			m, err := inbox.NextMsg(limit)
			if err != nil {
				t.Fatal(err)
			}
			var o wire.Outcome
			if err := json.Unmarshal(m.Data, &o); err != nil {
				t.Fatal(err)
			}
			got[o.Status]++
		}
		if want := map[int]int{201: 2, 404: 4}; !cmp.Equal(got, want) {
			t.Errorf("statuses %v, want %v", got, want)
		}
		seen := map[string]int{}
		for _, e := range r.waitEvents("c", len(ops)+1+2) { // the second versions expire too
			seen[e.ID]++
			want := fmt.Sprintf(`{"v":%d}`, seen[e.ID])
			if e.ID == "last" {
				want = `{}`
			}
			if string(e.Document) != want {
				t.Errorf("event %d of %s has %s, want %s", seen[e.ID], e.ID, e.Document, want)
			}
		}
		if seen["upsert"] != 2 || seen["create"] != 2 || seen["touch"] != 1 {
			t.Errorf("events %v", seen)
		}
	})
}

// TestG8_BadInputIsRejected: a bad message ends as one rejection with its code and its
// bytes, its client gets an outcome, and nothing else is harmed. It fails if a refusal of
// the decoder is dropped, or a message that names no shard.
func TestG8_BadInputIsRejected(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		r.config("c", `{"defaultTtl":60}`)
		bad := []struct{ subject, body, rejected string }{
			{"lapse.write.frob.c.x", `{}`, "lapse.rejected.c.x"},
			{"lapse.write.upsert.c.%zz", `{}`, "lapse.rejected.c.%zz"},
			{"lapse.write.upsert.c", `{}`, "lapse.rejected.c"},
			{"lapse.write.upsert.c.a.b", `{}`, "lapse.rejected.c.a.b"},
			{"lapse.write.upsert.c.x", `{`, "lapse.rejected.c.x"},
			{"lapse.config.c", `{"ttl":1}`, "lapse.rejected.c"},
			{"lapse.config.c.d", `{}`, "lapse.rejected.c"},
			{"lapse.drop.c", `{}`, "lapse.rejected.c"},
		}
		for _, b := range bad {
			seq := uint64(0)
			o := r.ask(b.subject, b.body)
			if o.Status != 400 || o.Error == "" {
				t.Errorf("%s: outcome %+v", b.subject, o)
			}
			for _, m := range r.outputs() {
				if m.header.Get(wire.HeaderSubject) == b.subject && string(m.data) == b.body {
					seq = m.seq
					if m.subject != b.rejected || m.header.Get(wire.HeaderCode) != "400" || m.header.Get(wire.HeaderError) != o.Error {
						t.Errorf("%s: rejected on %s with %v", b.subject, m.subject, m.header)
					}
				}
			}
			if seq == 0 {
				t.Errorf("%s: no rejection", b.subject)
			}
		}
		if n := len(r.outputs()); n != len(bad) {
			t.Errorf("%d rejections, want %d", n, len(bad))
		}
		r.put("c", "x", `{"ok":true}`)
	})
}

// A message without a body and with a header Status, which clients take for one of the
// server's own, is a message like others.
//
// Goes red if the log is read by the client library's consumers: they pass over it, or
// stop at it, again and again.
func TestG8_StatusInAHeader(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.run()
		for _, status := range []string{"100", "404", "408", "409", "503", "777", ""} {
			r.put("c", "x", `{}`)
			r.must(204, prefix.Write(wire.Delete, "c", "x"), ``, "Status", status, "Description", "Consumer Deleted",
				"Nats-Pending-Messages", "9999")
			r.must(404, prefix.Write(wire.Touch, "c", "x"), ``, "Status", status)
			r.must(400, prefix.Write(wire.Upsert, "c", "x"), ``, "Status", status)
			r.must(204, prefix.Drop("c"), ``, "Status", status)
		}
	})
}

// unreadable are headers that the client library cannot read.
var unreadable = []string{
	"NATS/1.0\r\nLapse-If-Match: 99\r\nno colon\r\n\r\n", "NATS/1.0\r\nLapse-If-Match: 99\r\n",
	"HTTP/1.0\r\nLapse-If-Match: 99\r\n\r\n",
}

// raw connects to NATS without the client library, and returns a function that publishes a
// message with any bytes as its headers.
func (r *rig) raw() (publish func(subject, header, body string)) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.nc.ConnectedAddr())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	write := func(format string, args ...any) {
		if _, err := fmt.Fprintf(conn, format, args...); err != nil {
			r.t.Fatal(err)
		}
	}
	write("CONNECT {\"verbose\":false,\"headers\":true}\r\n")
	return func(subject, header, body string) {
		write("HPUB %s %d %d\r\n%s%s\r\n", subject, len(header), len(header)+len(body), header, body)
	}
}

// A message whose headers cannot be read is rejected: one of them could be a condition.
//
// Goes red if it is taken for one without headers, as the client library has it.
func TestG8_MalformedHeaders(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run()
	r.put("c", "x", `{"n":1}`)
	const body = `{"n":2}`
	raw := r.raw()
	send := func(subject, header string) { raw(subject, header, body) }
	headers := append(slices.Clone(unreadable), "x")
	for _, header := range headers {
		send(prefix.Write(wire.Upsert, "c", "x"), header)
		send(prefix.Config("c"), header)
	}
	send(prefix.Write(wire.Create, "c", "y"), "NATS/1.0\r\n\r\n") // none is fine
	eventually(t, "the last is applied", func() bool { return r.body("c", "y") == body })
	r.caughtUp(p)
	if got := r.body("c", "x"); got != `{"n":1}` {
		t.Errorf("the document has become %s", got)
	}
	published := r.outputs()
	for _, m := range published {
		if code, text := m.header.Get(wire.HeaderCode), m.header.Get(wire.HeaderError); code != "400" ||
			!strings.HasPrefix(text, "the headers cannot be read") {
			t.Errorf("%s, %s: %s %s", m.subject, m.header, code, text)
		}
	}
	if len(published) != 2*len(headers) {
		t.Errorf("%d rejections of %d messages", len(published), 2*len(headers))
	}
}

// An event or a rejection always fits: a document of the largest size gets its
// event whole, a larger write is 413 and comes back as far as it fits.
func TestG8_TheLargestFits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run()
	most := int(r.nc.MaxPayload()) - 8<<10
	object := func(size int) string { return `{"x":"` + strings.Repeat("x", size-len(`{"x":""}`)) + `"}` }
	r.put("c", "x", object(most))
	r.must(413, prefix.Write(wire.Upsert, "c", "y"), object(most+1))
	r.sendAsync(prefix.Write(wire.Upsert, "c", "w"), object(most-100))
	r.must(413, prefix.Write(wire.Patch, "c", "w"), `{"more":"`+strings.Repeat("x", 100)+`"}`)
	r.must(413, prefix.Write(wire.Upsert, "c", "z"), object(int(r.nc.MaxPayload())-200))
	r.config("c", `{"defaultTtl":1}`)
	for _, e := range r.waitEvents("c", 2) {
		if want := map[string]int{"x": most, "w": most - 100}[e.ID]; string(e.Document) != object(want) {
			t.Errorf("the event of %s has a document of %d bytes, want %d", e.ID, len(e.Document), want)
		}
	}
	var cut []string
	for _, m := range r.outputs() {
		if m.header.Get(wire.HeaderTruncated) != "" {
			cut = append(cut, m.subject)
		}
	}
	if len(cut) != 1 || cut[0] != "lapse.rejected.c.z" {
		t.Errorf("rejections that were cut: %v, want that of z", cut)
	}
	for i := range 3 * shard.PullBytes / most / 2 { // more than is read ahead
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), object(most))
	}
	r.flush()
	r.put("c", "last", object(most))
}

// A message that is larger than one request, because the server takes larger messages than
// when the log was made, is rejected as too large, and the message after it is applied.
//
// Goes red if a request for messages is too small for one of them: it never comes.
func TestG8_LargerThanEver(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, natstest.Start(t, natstest.Options{Config: fmt.Sprintf("max_payload: %d", 3*shard.PullBytes)}),
		backends[0], Options{})
	_, err := streams.Provision(t.Context(), r.js,
		streams.Options{Prefix: prefix, MaxPayload: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r.run()
	r.must(413, prefix.Write(wire.Upsert, "c", "x"), `{"x":"`+strings.Repeat("x", 3*shard.PullBytes/2)+`"}`)
	r.put("c", "x", `{}`)
}

// Documents that expire while nothing runs get their events, with their deadlines,
// when something runs again.
func TestG3_ExpiredWhileStopped(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":1}`)
		want := map[string]wire.Time{}
		last := wire.Time(0)
		for i := range 10 {
			id := fmt.Sprint(i)
			last = *r.put("c", id, `{}`).ExpiresAt
			want[id] = last
		}
		p.stop(t)
		eventually(t, "the deadlines pass", func() bool { return time.Now().UnixMilli() > int64(last) })
		if _, err := r.reader.Get(t.Context(), "c", "0"); !errors.Is(err, sink.ErrNotFound) {
			t.Errorf("get of an expired document: %v", err)
		}
		r.run()
		for _, e := range r.waitEvents("c", 10) {
			if e.ExpiredAt != want[e.ID] {
				t.Errorf("%s expired at %s, want %s", e.ID, e.ExpiredAt, want[e.ID])
			}
		}
	})
}
