package httpapi_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestG3_Events: each event comes once, in order, to whoever follows, also after a break.
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
	for _, path := range []string{"/events?collection=orders&since=1h", "/events?collection=orders&since=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)} {
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
		"/events?since=x": "not valid", "/events?since=2999-01-01T00:00:00Z": "future", "/events?collection=a.b": "a.b", "/events?x=1": "not known",
	} {
		r.do("GET", path, "").want(t, 400, part)
	}
	r.do("GET", "/events", "", "Last-Event-ID", "x").want(t, 400, "Last-Event-ID")
}

// TestRejections: a rejection comes with its reason and its body, also that of a configuration.
func TestRejections(t *testing.T) {
	r := start(t)
	lives := r.follow("/rejections?collection=orders")
	r.do("PUT", "/collections/carts", `{"defaultTtl":0}`).want(t, 400)
	r.do("PUT", "/collections/orders", `{"defaultTtl":0}`).want(t, 400)
	r.do("PUT", "/collections/orders/documents/1", `{"id":"2"}`).want(t, 400)
	for _, want := range []string{`"subject":"lapse.config.orders"`, `"subject":"lapse.write.upsert.orders.1"`} {
		if e := lives.next(); !strings.Contains(e.data, want) || !strings.Contains(e.data, `"code":400`) {
			t.Errorf("got %+v, want %s", e, want)
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
