package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestQuery: a query asks the reader for what its body says, and its reply has the documents as they are, or the count.
func TestQuery(t *testing.T) {
	var asked sink.QueryOptions
	found := sink.QueryPage{Examined: 7, Continuation: "next", Documents: []sink.Document{{ID: "a", Etag: 3, Ts: 1,
		Clock: 1, Body: []byte(`{"a": "<"}`)}}}
	_, nc := start(t, fake{query: func(_ context.Context, _ string, opts sink.QueryOptions) (sink.QueryPage, error) {
		asked = opts
		return found, nil
	}}, service.Options{})
	const page = `{"documents":[{"id":"a","etag":"3","ts":"1970-01-01T00:00:00.001Z","document":{"a": "<"}}],"examined":7,"continuation":"next"}`
	body := `{"where":{"/price":{"gte":10},"/customer":"c1"},"order":"-/price","limit":2,"continuation":"c","scan":true}`
	if got := string(request(t, nc, "lapse.read.query.orders", body).Data); got != page {
		t.Errorf("%s\nwant %s", got, page)
	}
	where, err := entries.ParseWhere(map[string][]byte{"/customer": []byte(`"c1"`), "/price": []byte(`{"gte":10}`)})
	if err != nil {
		t.Fatal(err)
	}
	if asked.MaxBytes <= 0 || asked.MaxBytes >= 64<<10 {
		t.Errorf("asked for %d bytes", asked.MaxBytes)
	}
	asked.MaxBytes = 0
	all := sink.QueryOptions{Limit: 2, Continuation: "c", Where: where, Order: entries.Order{Pointer: "/price",
		Descending: true}, Scan: true}
	if diff := cmp.Diff(all, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n := int64(0)
	found = sink.QueryPage{Count: &n, Examined: 7}
	reply := request(t, nc, "lapse.read.query.orders", `{"order":"deadline","until":"1970-01-01T00:01:00Z","count":true}`)
	if got := string(reply.Data); got != `{"count":0,"examined":7}` {
		t.Error(got)
	}
	if !asked.Count || !asked.Order.ByDeadline || asked.Until == nil || *asked.Until != 60_000 {
		t.Errorf("asked for %+v", asked)
	}
	request(t, nc, "lapse.read.query.orders", `{"order":"deadline","within":"2d"}`)
	if asked.Within != 48*time.Hour || asked.Until != nil || asked.Where != nil {
		t.Errorf("asked for %+v", asked)
	}
}

// TestQueryFitsTheMaximumPayload: a page whose JSON is too large is read again, with fewer documents.
func TestQueryFitsTheMaximumPayload(t *testing.T) {
	documents := make([]sink.Document, 900)
	for i := range documents { // control characters in ids are six bytes of JSON each
		documents[i] = sink.Document{ID: strings.Repeat("\x01", 200) + fmt.Sprint(i), Etag: 1, Ts: 1, Body: []byte(`{}`)}
	}
	_, nc := start(t, fake{query: func(_ context.Context, _ string, opts sink.QueryOptions) (sink.QueryPage, error) {
		return sink.QueryPage{Documents: documents[:opts.Limit], Continuation: "next"}, nil
	}}, service.Options{})
	var reply wire.QueryReply
	msg := request(t, nc, "lapse.read.query.orders", `{"limit":900,"scan":true}`)
	if err := json.Unmarshal(msg.Data, &reply); err != nil || len(reply.Documents) == 0 || len(reply.Documents) >= 900 {
		t.Errorf("%d documents, %v, %v", len(reply.Documents), msg.Header, err)
	}
}

// TestQueryErrors: a request that is wrong is a 400 that says what is allowed; one that no index serves has a reason
// for programs.
func TestQueryErrors(t *testing.T) {
	var failure error
	_, nc := start(t, fake{query: func(context.Context, string, sink.QueryOptions) (sink.QueryPage, error) {
		return sink.QueryPage{}, failure
	}}, service.Options{})
	for _, c := range []struct {
		body, code, text, reason string
		err                      error
	}{
		{body: `{"where":["/a"]}`, code: "400", text: `{"/customer": "c1"`},
		{body: `{"where":{"a":1}}`, code: "400", text: `"a"`},
		{body: `{"where":{"/a":{}}}`, code: "400", text: "gte"},
		{body: `{"order":"price"}`, code: "400", text: "/price"},
		{body: `{"order":5}`, code: "400", text: `"-" and a pointer`},
		{body: `{"count":1}`, code: "400", text: "true or false"},
		{body: `{"scan":"yes"}`, code: "400", text: "true or false"},
		{body: `{"limit":1001}`, code: "400", text: "from 1 to 1000"},
		{body: `{"order":"deadline","until":"soon"}`, code: "400", text: "RFC 3339"},
		{body: `{"order":"deadline","within":"0s"}`, code: "400", text: "over 0"},
		{body: `{"prefix":"a"}`, code: "400", text: "where, order, until, within, count, scan, limit, continuation"},
		{err: sink.ErrNoIndex, code: "400", text: "no index", reason: wire.ReasonNoIndex},
		{err: sink.ErrIndexMade, code: "503", text: "being made", reason: wire.ReasonIndexMade},
		{err: sink.ErrNoCollection, code: "404", text: "no such collection", reason: wire.ReasonNoCollection},
	} {
		failure = c.err
		h := request(t, nc, "lapse.read.query.orders", c.body).Header
		text := h.Get(micro.ErrorHeader)
		if h.Get(micro.ErrorCodeHeader) != c.code || !strings.Contains(text, c.text) || h.Get(wire.HeaderReason) != c.reason {
			t.Errorf("%s: %v, want %s, %s and the reason %q", c.body, h, c.code, c.text, c.reason)
		}
	}
}
