package service_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// FuzzRequest sends requests with any subject and any body. The service answers each with a
// result, or with an error of one line that blames the request. It reads real documents, so
// that continuations and ids reach Redis.
func FuzzRequest(f *testing.F) {
	client := redistest.StartMini(f).Client
	p := store.New(client, wire.DefaultPrefix, 0, 1)
	changes := store.CollectionChanges{Collection: "orders"}
	for i := range 20 {
		h := &store.Header{Ts: 1_700_000_000_000, Etag: uint64(i + 2), TTL: []ttlrules.TTL{-1, 2_000_000_000}[i%2]}
		changes.Changes = append(changes.Changes, store.Change{ID: "d" + strconv.Itoa(i), New: h, Body: []byte(`{"n":1}`)})
	}
	if err := p.Take(f.Context(), store.State{Log: "1"}, "v0", 0); err != nil {
		f.Fatal(err)
	}
	configs := []store.ConfigChange{{Collection: "orders", Config: &store.Config{Etag: 1}}}
	if err := p.Commit(f.Context(), store.Progress{Version: "v0", Next: "v1", Offset: 21}, configs,
		[]store.CollectionChanges{changes}); err != nil {
		f.Fatal(err)
	}
	reader, err := sink.NewReader(client, sink.ReaderOptions{Shards: 1})
	if err != nil {
		f.Fatal(err)
	}
	page, err := reader.List(f.Context(), "orders", sink.ListOptions{Limit: 3})
	if err != nil {
		f.Fatal(err)
	}
	srv := inprocess.Start(f, &server.Options{})
	var conns [2]*nats.Conn
	for i := range conns {
		if conns[i], err = nats.Connect(srv.ClientURL(), nats.Timeout(limit)); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(conns[i].Close)
	}
	svc, err := service.Start(conns[0], reader, service.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(svc.Stop)
	if err := conns[0].Flush(); err != nil {
		f.Fatal(err)
	}

	f.Add("get", "orders.d1", []byte(nil))
	f.Add("get", "orders.%C3%BC", []byte(`{}`))
	f.Add("get", "or/ders.%zz", []byte(`{"limit":1}`))
	f.Add("list", "orders", []byte(`{"limit":2}`))
	f.Add("list", "orders", []byte(`{"limit":1001,"continuation":""}`))
	f.Add("list", "orders", []byte(`{"continuation":"`+page.Continuation+`"}`))
	f.Add("list", "orders.a.b", []byte(`[1]`))
	f.Add("query", "orders", []byte(`{"where":{"/n":1},"scan":true,"limit":2}`))
	f.Add("query", "orders", []byte(`{"where":{"/n":{"gte":1,"lt":"x"},"/a~2":null},"order":"-/n"}`))
	f.Add("query", "orders", []byte(`{"order":"deadline","within":"1h","count":true,"continuation":"eyJ3Ijp7fX0"}`))
	f.Add("count", "nothing", []byte(`{}`))
	f.Add("forecast", "orders", []byte(`{"buckets":3,"within":"1h"}`))
	f.Add("forecast", "orders", []byte(`{"buckets":1e9,"within":"-1ns"}`))
	f.Add("config", "orders", []byte("{\"\u2028\":1}"))
	f.Add("forecast", "orders", []byte(`{"defaultTtl":null,"within":"7d"}`))
	f.Add("forecast", "orders", []byte(`{"defaultTtl":5}`))
	f.Add("collections", "", []byte(`{"limit":1}`))
	f.Add("collections", "", []byte(`{"continuation":"eyJhIjoib3JkZXJzIiwidCI6MX0"}`))
	f.Fuzz(func(t *testing.T, verb, rest string, body []byte) {
		switch verb {
		case "get", "list", "query", "count", "forecast", "config", "collections":
		default:
			verb = "get"
		}
		subject := "lapse.read." + verb + "." + rest
		if verb == "collections" {
			subject = "lapse.read.collections"
		}
		if strings.ContainsAny(rest, "*>") {
			return // nobody can publish there
		}
		msg, err := conns[1].Request(subject, body, limit)
		if errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrMaxPayload) {
			return
		}
		if err != nil {
			t.Fatalf("request %q %q: %v", subject, body, err)
		}
		code := msg.Header.Get(micro.ErrorCodeHeader)
		switch code {
		case "":
			return
		case "400", "404", "413":
		default:
			t.Errorf("request %q %q: %s %s", subject, body, code, msg.Header.Get(micro.ErrorHeader))
		}
		text := msg.Header.Get(micro.ErrorHeader)
		bad := func(r rune) bool { return !unicode.IsPrint(r) }
		if text == "" || !utf8.ValidString(text) || strings.IndexFunc(text, bad) >= 0 {
			t.Errorf("request %q %q: the reason is not a line of printable text: %q", subject, body, text)
		}
	})
}
