package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
)

// TestG3_Changes: a client gets the documents as they are, and then each change, expiry and drop; after a
// lost connection it goes on behind its last id.
//
// It fails if the state is left out, if a change that the state has comes again, or if one is missing after
// the id.
func TestG3_Changes(t *testing.T) {
	r := start(t)
	r.do("GET", "/changes", "").want(t, 400, "?collection=orders")
	r.do("GET", "/changes?collection=orders&id=", "").want(t, 400, "id")
	r.do("GET", "/changes?collection=orders", "", "Last-Event-ID", "x").want(t, 400, "Last-Event-ID")
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	r.do("GET", "/changes?collection=orders", "").want(t, 400, "does not publish its changes")
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1,"changes":true}`).want(t, 200)
	r.do("PUT", "/collections/orders/documents/1", `{"n":"<1>"}`).want(t, 201)
	lives, one := r.follow("/changes?collection=orders"), r.follow("/changes?collection=orders&id=1")
	next := func(s *stream, name, part string) string {
		t.Helper()
		e := s.next()
		if e.name != name || !strings.Contains(e.data, part) || (e.id == "") != (name == "stored") {
			t.Fatalf("%+v, want %s with %s", e, name, part)
		}
		return e.id
	}
	for _, s := range []*stream{lives, one} {
		next(s, "stored", `"document":{"n":"<1>"}`)
		next(s, "current", "{}")
	}
	r.do("PUT", "/collections/orders/documents/1", `{"n":2}`).want(t, 200)
	r.do("PUT", "/collections/orders/documents/2", `{"ttl":1}`).want(t, 201)
	r.do("PUT", "/collections/orders/documents/3", `{"ttl":1}`, "Lapse-Target", "mail.send").want(t, 201)
	last := next(lives, "updated", `"document":{"n":2}`)
	next(lives, "created", `"id":"2"`)
	next(lives, "created", `"id":"3"`)
	ends := []string{lives.next().name, lives.next().name} // of two documents, in any order
	slices.Sort(ends)
	if fmt.Sprint(ends) != "[due expired]" {
		t.Errorf("the documents end with %s", ends)
	}
	r.do("DELETE", "/collections/orders/documents/1", "").want(t, 204)
	next(lives, "deleted", `"id":"1"`)
	next(one, "updated", `"document":{"n":2}`)
	next(one, "deleted", `"id":"1"`)
	r.do("DELETE", "/collections/orders", "").want(t, 204)
	next(lives, "collection-dropped", `"collection":"orders"`)
	next(one, "collection-dropped", `"collection":"orders"`)
	again := r.follow("/changes?collection=orders", "Last-Event-ID", last)
	next(again, "created", `"id":"2"`)
	next(again, "created", `"id":"3"`)
}

// TestG3_ChangesHaveNoGap: while somebody writes all the time, clients begin to follow. Each gets every version of each
// document from the one that it began with, once, and one consumer serves them all.
//
// It fails if a client goes on from the end of the stream, or gets what the documents have.
func TestG3_ChangesHaveNoGap(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1,"changes":true}`).want(t, 200)
	orders, err := client.Open[map[string]int](r.client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	const documents, streams, enough = 4, 12, 40
	done := make(chan struct{})
	var writers sync.WaitGroup
	for id := range documents {
		writers.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if _, err := orders.Upsert(t.Context(), fmt.Sprint(id), map[string]int{"n": n}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	eventually(t, "there is a document", func() bool {
		return r.do("GET", "/collections/orders/documents/0", "").StatusCode == 200
	})
	for range streams {
		s, last := r.follow("/changes?collection=orders"), make(map[string]int)
		for updates := 0; updates < enough; {
			e := s.next()
			var m struct {
				ID       string
				Document struct{ N int }
			}
			if err := json.Unmarshal([]byte(e.data), &m); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			if e.name == "current" {
				continue
			}
			if was := last[m.ID]; was != 0 && m.Document.N != was+1 {
				t.Fatalf("%s of %s: version %d follows version %d", e.name, m.ID, m.Document.N, was)
			}
			if last[m.ID] = m.Document.N; e.name == "updated" {
				updates++
			}
		}
		s.cancel()
	}
	close(done)
	writers.Wait()
	stream, err := natstest.JetStream(t, connect(t, r)).Stream(t.Context(), "LAPSE_EVENTS")
	if err != nil || stream.CachedInfo().State.Consumers != 1 {
		t.Errorf("%d consumers, %v", stream.CachedInfo().State.Consumers, err)
	}
}
