package service_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// FuzzRequest: whatever is asked, under any subject and with any body, is answered:
// with what was asked for, or with a reason on one line that puts it down to the
// request. What is stored is real, so that continuations and ids get to Redis.
func FuzzRequest(f *testing.F) {
	mini := miniredis.RunT(f)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	f.Cleanup(func() { _ = client.Close() })
	p := sink.NewStore(client, wire.DefaultPrefix, 1).Partition(0)
	changes := sink.CollectionChanges{Collection: "orders"}
	for i := range 20 {
		h := &sink.Header{Ts: 1_700_000_000_000, Etag: uint64(i + 1), TTL: []ttlrules.TTL{-1, 2_000_000_000}[i%2]}
		changes.Changes = append(changes.Changes, sink.Change{ID: "d" + strconv.Itoa(i), New: h, Body: []byte(`{"n":1}`)})
	}
	if err := p.Take(f.Context(), sink.State{Log: "1"}, "v0", 0); err != nil {
		f.Fatal(err)
	}
	if err := p.Commit(f.Context(), sink.Progress{Version: "v0", Next: "v1", Offset: 20}, nil, []sink.CollectionChanges{changes}); err != nil {
		f.Fatal(err)
	}
	reader, err := sink.NewReader(client, sink.ReaderOptions{Partitions: 1})
	if err != nil {
		f.Fatal(err)
	}
	page, err := reader.List(f.Context(), "orders", sink.ListOptions{Limit: 3})
	if err != nil {
		f.Fatal(err)
	}
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true})
	if err != nil {
		f.Fatal(err)
	}
	srv.Start()
	f.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(limit) {
		f.Fatal("the NATS server did not start")
	}
	var conns [2]*nats.Conn
	for i := range conns {
		if conns[i], err = nats.Connect(srv.ClientURL()); err != nil {
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
	f.Add("count", "nothing", []byte(`{}`))
	f.Add("forecast", "orders", []byte(`{"buckets":3,"within":"1h"}`))
	f.Add("forecast", "orders", []byte(`{"buckets":1e9,"within":"-1ns"}`))
	f.Add("config", "orders", []byte("{\"\u2028\":1}"))
	f.Fuzz(func(t *testing.T, verb, rest string, body []byte) {
		switch verb {
		case "get", "list", "count", "forecast", "config":
		default:
			verb = "get"
		}
		subject := "lapse.read." + verb + "." + rest
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
