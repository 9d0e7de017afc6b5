package client_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// reads has a function answer the reads on a subject.
func (b *bench) reads(t *testing.T, subject string, answer nats.MsgHandler) {
	t.Helper()
	if _, err := b.nc.Subscribe(subject, answer); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestQueryRequests: what the options say is in the request, all pages are read, and counts are added up.
func TestQueryRequests(t *testing.T) {
	b := newBench(t, false)
	var requests []wire.QueryRequest
	b.reads(t, "lapse.read.query.orders", func(m *nats.Msg) {
		var req wire.QueryRequest
		if err := json.Unmarshal(m.Data, &req); err != nil {
			t.Error(err)
		}
		requests = append(requests, req)
		page := wire.QueryReply{Documents: []wire.Document{{ID: "a" + req.Continuation, Etag: 1, Ts: 1,
			Document: json.RawMessage(`{"item":"tea"}`)}}}
		if req.Count {
			n := int64(3)
			page = wire.QueryReply{Count: &n}
		}
		if req.Continuation == "" {
			page.Continuation = "2"
		}
		if err := m.Respond(page.Encode()); err != nil {
			t.Error(err)
		}
	})
	orders := b.orders(t)
	options := []client.QueryOption{
		client.Where("/customer").Eq("c1"), client.Where("/price").Gte(10), client.Where("/price").Lt(20.5),
		client.Where("/status").In("new", nil,
			true), client.Where("/seat/row").Prefix("A<"), client.OrderBy("-/price"), client.Scan(),
	}
	var ids []string
	for d, err := range orders.Query(t.Context(), options...) {
		if err != nil || d.Value.Item != "tea" {
			t.Fatalf("%+v, %v", d, err)
		}
		ids = append(ids, d.ID)
	}
	if diff := cmp.Diff([]string{"a", "a2"}, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	where := map[string]json.RawMessage{
		"/customer": json.RawMessage(`{"eq":"c1"}`), "/price": json.RawMessage(`{"gte":10,"lt":20.5}`),
		"/status": json.RawMessage(`{"in":["new",null,true]}`), "/seat/row": json.RawMessage(`{"prefix":"A\u003c"}`),
	}
	want := wire.QueryRequest{Limit: wire.MaxListLimit, Where: where, Order: "-/price", Scan: true}
	next := want
	next.Continuation = "2"
	if diff := cmp.Diff([]wire.QueryRequest{want, next}, requests); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	requests = nil
	n, err := orders.QueryCount(t.Context(), client.Where("/price").Gt(1), client.ExpiringUntil(time.UnixMilli(7)))
	if n != 6 || err != nil || len(requests) != 2 || !requests[1].Count || requests[0].Order != wire.ByDeadline ||
		*requests[0].Until != 7 {
		t.Errorf("%d, %v, %+v", n, err, requests)
	}
}

// TestQueryErrors: options that contradict each other are an error before anything is sent, and the answers are errors
// of their kind.
func TestQueryErrors(t *testing.T) {
	b := newBench(t, false)
	code, reason := "400", wire.ReasonNoIndex
	b.reads(t, "lapse.read.query.orders", func(m *nats.Msg) {
		answer := nats.NewMsg(m.Reply)
		answer.Header = nats.Header{micro.ErrorCodeHeader: {code}, micro.ErrorHeader: {"why"}, wire.HeaderReason: {reason}}
		if err := m.RespondMsg(answer); err != nil {
			t.Error(err)
		}
	})
	orders := b.orders(t)
	for what, options := range map[string][]client.QueryOption{
		"there are two conditions eq on": {client.Where("/a").Eq(1), client.Where("/a").Eq(2)},
		"use a string, a number":         {client.Where("/a").Gt(math.NaN())},
		"which is for List":              {client.WithPrefix("a")},
	} {
		_, err := orders.QueryCount(t.Context(), options...)
		wantIs(t, err, client.ErrInvalid)
		wantError(t, err, what)
	}
	for _, err := range orders.Query(t.Context(), client.Where("/a").Eq(1)) {
		wantIs(t, err, client.ErrNoIndex)
		wantError(t, err, "orders: 400: why")
	}
	code, reason = "503", wire.ReasonIndexMade
	_, err := orders.QueryCount(t.Context(), client.Where("/a").Eq(1))
	wantIs(t, err, client.ErrIndexMade, client.ErrUnavailable)
}
