package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// expire makes n documents of a collection expire, and waits for the last one's end.
func (r *rig) expire(collection string, from, n int) {
	r.t.Helper()
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, "{\"id\":\"%d\",\"ttl\":1}\n", from+i)
	}
	r.do("POST", "/collections/"+collection+"/documents", input.String(), "Content-Type", linesType).want(r.t, 200)
	eventually(r.t, "the documents expire", func() bool {
		return strings.HasPrefix(r.do("GET", "/collections/"+collection+"/count", "").body, `{"live":0,"expired":0`)
	})
}

// TestG3_Events: each client gets each event once and in order, also after a lost connection.
func TestG3_Events(t *testing.T) {
	r := start(t)
	for _, c := range []string{"orders", "carts"} {
		r.do("PUT", "/collections/"+c, `{"defaultTtl":-1}`).want(t, 200)
	}
	const n = 50
	lives := r.follow("/events?collection=orders")
	r.expire("carts", 0, n)
	r.expire("orders", 0, n)
	var ids []string
	last := uint64(0)
	check := func(e sse, collection string) {
		t.Helper()
		seq, err := strconv.ParseUint(e.id, 10, 64)
		if err != nil || seq <= last || e.name != "" || !strings.Contains(e.data, `"collection":"`+collection+`"`) {
			t.Fatalf("event %+v after %d", e, last)
		}
		last = seq
	}
	for range n {
		e := lives.next()
		check(e, "orders")
		ids = append(ids, e.id)
	}
	lives.cancel()

	last = 0
	for _, path := range []string{"/events?collection=orders&since=1h", "/events?collection=orders&since=" +
		time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)} {
		past := r.follow(path)
		for i := range n {
			if e := past.next(); e.id != ids[i] {
				t.Fatalf("%s: event %d has id %s, want %s", path, i, e.id, ids[i])
			}
		}
	}
	r.expire("orders", n, n) // while nobody of this client follows
	for _, after := range []int{0, 10, n - 1} {
		again := r.follow("/events?collection=orders&since=1s", "Last-Event-ID", ids[after])
		seen := map[string]bool{}
		last, _ = strconv.ParseUint(ids[after], 10, 64)
		for range 2*n - after - 1 {
			e := again.next()
			check(e, "orders")
			seen[e.data] = true
		}
		if len(seen) != 2*n-after-1 {
			t.Errorf("after %d: %d events, want %d", after, len(seen), 2*n-after-1)
		}
	}
	all := r.follow("/events?since=1h")
	for range 3 * n {
		all.next()
	}
	for path, part := range map[string]string{
		"/events?since=x": "not valid", "/events?since=2999-01-01T00:00:00Z": "future", "/events?collection=a.b": "a.b",
		"/events?x=1": "not known",
	} {
		r.do("GET", path, "").want(t, 400, part)
	}
	r.do("GET", "/events", "", "Last-Event-ID", "x").want(t, 400, "Last-Event-ID")
}

// TestGap: a client whose last id the stream does not have any more, or not yet, is told so, and
// gets what comes from then on.
func TestGap(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	r.expire("orders", 0, 3)
	js, err := jetstream.New(connect(t, r))
	if err != nil {
		t.Fatal(err)
	}
	events, err := js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if err := events.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := events.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last := info.State.LastSeq // was purged too
	for id, why := range map[uint64]string{1: "no longer reaches back", last - 1: "no longer reaches back", last: "",
		1000000: "ends before this id"} {
		again := r.follow("/events", "Last-Event-ID", strconv.FormatUint(id, 10))
		if why != "" {
			if e := again.next(); e.name != "gap" || e.id != "" || !strings.Contains(e.data, why) {
				t.Errorf("after %d: %+v, want a gap: %s", id, e, why)
			}
		}
		r.expire("orders", 0, 1)
		if e := again.next(); e.name != "" || !strings.Contains(e.data, `"id":"0"`) {
			t.Errorf("after %d: %+v, want the event", id, e)
		}
		again.cancel()
	}
}

// TestRejections: a rejection comes with its reason and its body, also that of a configuration.
func TestRejections(t *testing.T) {
	r := start(t)
	lives := r.follow("/rejections?collection=orders")
	r.do("PUT", "/collections/carts", `{"defaultTtl":0}`).want(t, 400)
	r.do("PUT", "/collections/orders", `{"defaultTtl":0}`).want(t, 400)
	r.do("PUT", "/collections/orders/documents/1", `{"id":"2"}`).want(t, 400)
	for _, want := range []string{`"subject":"lapse.config.orders"`, `"subject":"lapse.write.upsert.orders.1"`} {
		if e := lives.next(); !strings.Contains(e.data, want) || !strings.Contains(e.data, `"code":400`) ||
			strings.Contains(e.data, `"seq":0`) {
			t.Errorf("got %+v, want %s with its sequence in the log", e, want)
		}
	}
	past := r.follow("/rejections?since=1h")
	if e := past.next(); !strings.Contains(e.data, "carts") {
		t.Errorf("got %+v", e)
	}
	if e := r.follow("/rejections?collection=orders&since=1h").next(); !strings.Contains(e.data, "lapse.config.orders") {
		t.Errorf("got %+v", e)
	}
}

// TestWarnings: a client that asks for warnings gets each once, in order, also after a lost connection, and
// no expiry event; one that does not gets none.
//
// Goes red if the type is ignored, or if a client goes on from the wrong place.
func TestWarnings(t *testing.T) {
	r := start(t)
	nc := connect(t, r)
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	lives, all, expired := r.follow("/events?type=expiring&collection=orders"), r.follow("/events?type=expiring"),
		r.follow("/events?type=expired")
	warn := func(collection, id string) {
		t.Helper()
		e := wire.Expiring{ID: id, Collection: collection, Document: []byte(`{"a": 1}`), Etag: 7, Ts: 1769860800000,
			TTL: 30, ExpiresAt: 1769860830000, Before: 5}
		if err := harness.Warn(t.Context(), nc, e, ""); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	check := func(s *stream, collection, id string) {
		t.Helper()
		e := s.next()
		want := `{"id":"` + id + `","collection":"` + collection +
			`","document":{"a": 1},"etag":"7","ts":"2026-01-31T12:00:00.000Z","ttl":30,` +
			`"expiresAt":"2026-01-31T12:00:30.000Z","before":5}`
		if e.data != want || e.name != "" {
			t.Errorf("got %+v, want %s", e, want)
		}
		ids = append(ids, e.id)
	}
	warn("orders", "1")
	r.expire("orders", 100, 1)
	warn("carts", "2")
	warn("orders", "3")
	for _, id := range []string{"1", "3"} {
		check(lives, "orders", id)
	}
	check(all, "orders", "1")
	check(all, "carts", "2")
	check(all, "orders", "3")
	lives.cancel()
	warn("orders", "4")
	again := r.follow("/events?type=expiring&collection=orders", "Last-Event-ID", ids[0])
	check(again, "orders", "3")
	check(again, "orders", "4")
	check(r.follow("/events?type=expiring&since=1h"), "orders", "1")
	for _, s := range []*stream{expired, r.follow("/events?since=1h")} {
		if e := s.next(); !strings.Contains(e.data, `"id":"100"`) || !strings.Contains(e.data, `"expiredAt"`) {
			t.Errorf("got %+v, want the expiry event", e)
		}
	}
	r.do("GET", "/events?type=rejected", "").want(t, 400, "type", "rejected",
		"use expired for expiry events, due for messages, or expiring for warnings")
	r.do("GET", "/rejections?type=expiring", "").want(t, 400, "not known")
}

// TestTraceparent: the event carries the trace of the write.
func TestTraceparent(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":1}`).want(t, 200)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	nc := connect(t, r)
	sub, err := nc.SubscribeSync(wire.DefaultPrefix.Expired("orders", "1"))
	if err != nil {
		t.Fatal(err)
	}
	r.do("PUT", "/collections/orders/documents/1", `{}`, "traceparent", trace).want(t, 201)
	msg, err := sub.NextMsg(limit)
	if err != nil {
		t.Fatal(err)
	}
	if got := msg.Header.Get(wire.HeaderTrace); got != trace {
		t.Errorf("traceparent %q", got)
	}
}

// TestStreamsEndWithTheProcess: nobody waits for a client that follows events.
func TestStreamsEndWithTheProcess(t *testing.T) {
	r := start(t)
	s := r.follow("/events")
	begin := time.Now()
	r.stop()
	for range s.events {
		t.Error("an event")
	}
	t.Logf("ended after %s", time.Since(begin))
}

// TestSlowStream: a client that takes one event, and nothing while more is published than lapse keeps, is
// dropped, delays nobody else, and misses nothing once it is back with its last id.
func TestSlowStream(t *testing.T) {
	const n, size = 36, 900_000 // more than the ring and the buffers of a connection
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":1}`).want(t, 200)
	at := strings.TrimSuffix(strings.TrimPrefix(r.base, "http://"), "/v1")
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/events HTTP/1.1\r\nHost: %s\r\n\r\n", at); err != nil {
		t.Fatal(err)
	}
	slow, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || slow.StatusCode != 200 {
		t.Fatal(slow, err)
	}
	var got []string
	first, goesOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		readEvents(slow.Body, func(e sse) {
			switch e.name {
			case "":
				if got = append(got, e.id); len(got) == 1 {
					close(first)
					<-goesOn
				}
			case "dropped":
				t.Logf("dropped: %s", e.data)
			default:
				t.Errorf("event %+v", e)
			}
		})
	}()
	fast := r.follow("/events")
	var all []string
	for id := range n {
		r.do("PUT", fmt.Sprintf("/collections/orders/documents/%d", id), `{"x":"`+strings.Repeat("x", size)+`"}`).want(t, 201)
		if id == 0 {
			all = append(all, fast.next().id)
			<-first
		}
	}
	for len(all) < n {
		all = append(all, fast.next().id)
	}
	fast.cancel()
	close(goesOn)
	<-ended
	if len(got) == n {
		t.Fatalf("the slow client has got %d events before it was dropped", len(got))
	}
	eventually(t, "the drop is counted", func() bool {
		return strings.Contains(metrics(t, r),
			`lapse_http_streams_ended_total{reason="slow"} 1`)
	})
	again := r.follow("/events", "Last-Event-ID", got[len(got)-1])
	for len(got) < n {
		got = append(got, again.next().id)
	}
	if !slices.Equal(got, all) {
		t.Errorf("events %v, want %v", got, all)
	}
}

// TestShards: the API over three shards is as over one.
func TestShards(t *testing.T) {
	r := start(t, func(o *serve.Options) { o.Processor.Shards = 3 })
	const n = 60
	var input strings.Builder
	for i := range n {
		fmt.Fprintf(&input, "{\"id\":\"%d\",\"ttl\":%d}\n", i, 1+3599*(i%2))
	}
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	r.do("PUT", "/collections/orders", `{"defaultTtl":0}`).want(t, 400)
	lives, rejections := r.follow("/events"), r.follow("/rejections?since=1h")
	for i, o := range outcomes(t, r.do("POST", "/collections/orders/documents", input.String(), "Content-Type",
		linesType).body) {
		if o.Line != i+1 || o.Status != 201 {
			t.Errorf("line %d: %+v", i+1, o)
		}
	}
	ids := map[string]bool{}
	for range n / 2 {
		var event wire.Event
		if err := json.Unmarshal([]byte(lives.next().data), &event); err != nil {
			t.Fatal(err)
		}
		ids[event.ID] = true
	}
	if len(ids) != n/2 {
		t.Errorf("%d documents have expired, want %d", len(ids), n/2)
	}
	if e := rejections.next(); !strings.Contains(e.data, `"code":400`) || !strings.Contains(e.data,
		"lapse.config.orders") {
		t.Errorf("the rejection is %+v", e)
	}
	for i := range n {
		path, live := fmt.Sprintf("/collections/orders/documents/%d", i), i%2 == 1
		if !live {
			r.do("GET", path, "").want(t, 404)
			r.do("PUT", path, `{}`, "If-Match", "*").want(t, 412)
			continue
		}
		etag := r.do("GET", path, "").want(t, 200, fmt.Sprintf(`"id":"%d"`, i)).Header.Get("Etag")
		r.do("PATCH", path, `{"n":1}`, "If-Match", etag).want(t, 200)
		r.do("PATCH", path, `{"n":2}`, "If-Match", etag).want(t, 412)
	}
	page := r.do("GET", "/collections/orders/documents", "").want(t, 200)
	if found := strings.Count(page.body, `"document":`); found != n/2 {
		t.Errorf("the list has %d documents, want %d", found, n/2)
	}
	r.do("GET", "/collections/orders/count", "").want(t, 200, fmt.Sprintf(`"live":%d`, n/2))
	r.do("PATCH", "/collections/orders", `{"defaultTtl":null}`).want(t, 200)
	r.do("GET", "/collections/orders", "").want(t, 200, `"defaultTtl":null`)
	r.do("DELETE", "/collections/orders", "").want(t, 204)
	eventually(t, "the collection is empty", func() bool {
		return strings.HasPrefix(r.do("GET", "/collections/orders/count", "").body, `{"live":0`)
	})
}
