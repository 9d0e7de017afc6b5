//go:build held

package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// body is a reader whose documents have a body of a size.
func body(size int) fake {
	return fake{get: func(context.Context, string, string) (sink.Document, error) {
		return sink.Document{ID: "a", Etag: 1, Body: []byte(`"` + strings.Repeat("x", size) + `"`)}, nil
	}}
}

// TestHeldSubscribe: the connection is lost between two subscriptions of a service that begins. It answers every verb
// all the same, and PING, INFO and STATS.
func TestHeldSubscribe(t *testing.T) {
	held.Each(t, "sink/service.Service.subscribe", held.Reconnection, func(t *testing.T, during func(happen func())) {
		_, client := connect(t, 64<<10)
		through := proxy.New(t, strings.TrimPrefix(client.ConnectedUrl(), "nats://"))
		nc, err := nats.Connect("nats://"+through.Address(), natstest.Patient, nats.MaxReconnects(-1),
			nats.ReconnectWait(10*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		during(func() {
			before := nc.Stats().Reconnects
			through.Cut()
			if err := poll.Met(limit, "the service has connected again", func() bool {
				return nc.Stats().Reconnects > before && nc.IsConnected()
			}); err != nil {
				t.Error(err)
			}
		})
		svc, err := service.Start(nc, fake{}, service.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(svc.Stop)
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, read := range []string{"get.orders.a", "list.orders", "query.orders", "count.orders", "forecast.orders",
			"config.orders", "collections", "settled.orders"} {
			if m := request(t, client, "lapse.read."+read, ""); m.Header.Get(micro.ErrorCodeHeader) == "" {
				t.Errorf("%s is answered by %v", read, m)
			}
		}
		for _, verb := range []string{"PING", "INFO", "STATS"} {
			request(t, client, "$SRV."+verb+".lapse", "")
		}
	})
}

// TestHeldAnswerWhileItStops: the service begins to stop between an answer that is too large and the failure that the
// client gets in its place. The client gets that, and Stop waits for it.
func TestHeldAnswerWhileItStops(t *testing.T) {
	held.Each(t, "sink/service.Service.answer", held.Restart, func(t *testing.T, during func(happen func())) {
		svc, client := start(t, body(100<<10), service.Options{})
		var stopping sync.WaitGroup
		var stopped, before atomic.Bool
		during(func() {
			stopping.Go(func() { svc.Stop(); stopped.Store(true) })
			if err := poll.Met(limit, "the service accepts no more requests", func() bool {
				_, err := client.Request("lapse.read.get.orders.b", nil, limit)
				return errors.Is(err, nats.ErrNoResponders)
			}); err != nil {
				t.Error(err)
			}
			before.Store(stopped.Load())
		})
		m := request(t, client, "lapse.read.get.orders.a", "")
		stopping.Wait()
		if code := m.Header.Get(micro.ErrorCodeHeader); code != "413" || before.Load() {
			t.Errorf("the code is %q; the service stopped before it answered: %t", code, before.Load())
		}
	})
}

// TestHeldStopWhileRequestsCome: requests come while the service stops. Each is answered, or is told at once that nobody
// answers, so that the client asks another process: none is lost.
func TestHeldStopWhileRequestsCome(t *testing.T) {
	held.Each(t, "sink/service.Service.Stop", held.Write, func(t *testing.T, during func(happen func())) {
		svc, client := start(t, body(10), service.Options{})
		const requests = 20
		inbox := client.NewInbox()
		answers, err := client.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		sent := 0
		ask := func() {
			for range requests {
				sent++
				if err := client.PublishRequest("lapse.read.get.orders.a", inbox, nil); err != nil {
					t.Error(err)
				}
			}
			if err := client.Flush(); err != nil {
				t.Error(err)
			}
		}
		ask()
		during(ask)
		svc.Stop()
		refused := 0
		for i := range sent {
			m, err := answers.NextMsg(limit)
			switch {
			case errors.Is(err, nats.ErrNoResponders):
				refused++
			case err != nil:
				t.Fatalf("answer %d of %d: %v", i+1, sent, err)
			case !strings.Contains(string(m.Data), "xxx"):
				t.Errorf("answer %d is %v", i+1, m)
			}
		}
		if refused > sent-requests { // those that came before Stop
			t.Errorf("nobody answers %d of %d requests", refused, sent)
		}
	})
}

// TestHeldCollections: collections are made and dropped while a page of them, which does not fit, is read again. Each
// that was there all the time is on one page, and each page fits.
func TestHeldCollections(t *testing.T) {
	held.Each(t, "sink/service.collections", held.Write, func(t *testing.T, during func(happen func())) {
		var mu sync.Mutex
		var names []string
		for i := range 600 {
			names = append(names, fmt.Sprintf("c%03d%s", i, strings.Repeat("x", 100)))
		}
		always := slices.Clone(names[1:])
		_, client := start(t, fake{collections: func(_ context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply,
			error) {
			mu.Lock()
			defer mu.Unlock()
			from, _ := slices.BinarySearch(names, opts.Continuation+" ")
			if opts.Continuation == "" {
				from = 0
			}
			var reply wire.CollectionsReply
			for _, name := range names[from:] {
				if opts.Limit > 0 && len(reply.Collections) == opts.Limit {
					reply.Continuation = reply.Collections[len(reply.Collections)-1].Name
					break
				}
				reply.Collections = append(reply.Collections, wire.Collection{Name: name})
			}
			return reply, nil
		}}, service.Options{})
		during(func() {
			mu.Lock()
			defer mu.Unlock()
			for i := range 100 {
				names = append(names, fmt.Sprintf("c%03dy", i))
			}
			slices.Sort(names)
			names = names[1:]
		})
		var got []string
		for continuation := ""; ; {
			text, err := json.Marshal(map[string]any{"limit": 1000, "continuation": continuation})
			if err != nil {
				t.Fatal(err)
			}
			m := request(t, client, "lapse.read.collections", string(text))
			var page wire.CollectionsReply
			if err := json.Unmarshal(m.Data, &page); err != nil {
				t.Fatalf("%v: %s %v", err, m.Data, m.Header)
			}
			for _, c := range page.Collections {
				got = append(got, c.Name)
			}
			if continuation = page.Continuation; continuation == "" {
				break
			}
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("the pages have %q", got)
		}
		for _, name := range always {
			if !slices.Contains(got, name) {
				t.Errorf("no page has %s", name)
			}
		}
	})
}
