package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// Each request is recorded with the code of its answer and with its traceparent, however the client
// wrote the name of that header, and without one that is not valid.
//
// It fails if a name that a client chose freely becomes the subject or the collection of a span.
func TestTraced(t *testing.T) {
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	spans := make(chan trace.Span, 1)
	_, nc := start(t, fake{
		get: func(_ context.Context, _, id string) (sink.Document, error) {
			if id == "absent" {
				return sink.Document{}, sink.ErrNotFound
			}
			return sink.Document{ID: id, Body: []byte(`{}`)}, nil
		},
		collections: func(context.Context, sink.CollectionsOptions) (wire.CollectionsReply, error) {
			return wire.CollectionsReply{}, nil
		},
	}, service.Options{Trace: func(s trace.Span) { spans <- s }})
	for _, c := range []struct {
		subject, header, value string
		want                   trace.Span
	}{
		{wire.DefaultPrefix.ReadGet("c", "a.b"), "traceparent", traceparent, trace.Span{Subject: "read.get.<collection>.<id>",
			Collection: "c", Status: 200, Parent: traceparent}},
		{wire.DefaultPrefix.ReadGet("c", "absent"), "Traceparent", traceparent,
			trace.Span{Subject: "read.get.<collection>.<id>", Collection: "c", Status: 404, Parent: traceparent}},
		{"lapse.read.get.no+name.a", "traceparent", "00-0", trace.Span{Subject: "read.get.<collection>.<id>", Status: 400}},
		{"lapse.read.collections", "other", traceparent, trace.Span{Subject: "read.collections", Status: 200}},
	} {
		began := time.Now()
		if _, err := nc.RequestMsg(&nats.Msg{Subject: c.subject, Header: nats.Header{c.header: {c.value}}},
			limit); err != nil {
			t.Fatal(err)
		}
		var got trace.Span
		select {
		case got = <-spans:
		case <-time.After(limit):
			t.Fatalf("%s: nothing was recorded", c.subject)
		}
		c.want.Kind = trace.Read
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(trace.Span{}, "Began", "Ended")); diff != "" ||
			got.Began.Before(began) || got.Ended.Before(got.Began) {
			t.Errorf("%s: from %v to %v (-want +got):\n%s", c.subject, got.Began, got.Ended, diff)
		}
	}
}
