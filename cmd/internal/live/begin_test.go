package live

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

// follows makes a connection, which ends with the test, and returns what gives its next events: the name, the id and
// the data of each.
func follows(t *testing.T, serve func(http.ResponseWriter, *http.Request, *access.Hold) (Reason, error)) (
	next func(n int) []string) {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", 256<<20))
		defer hold.Leave()
		if _, err := serve(w, r, hold); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(web.Close)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := web.Client().Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	return func(n int) (events []string) {
		t.Helper()
		for one := []string(nil); len(events) < n; {
			if !lines.Scan() {
				t.Fatalf("the connection has ended behind %q: %v", events, lines.Err())
			}
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "retry":
			case name != "":
				one = append(one, value)
			case len(one) > 0:
				events, one = append(events, strings.Join(one, " ")), nil
			}
		}
		return events
	}
}

// TestSince: a client that begins at an instant gets what was stored from then on, also what was stored before the ring,
// and then what is new. If nothing was, it gets what is new alone, and so does one that names no instant.
//
// It fails if the client begins one message too early or too late, or at the end of the ring.
func TestSince(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	r.publish("orders", "carts", "orders")
	r.tailAt(3)
	r.publish("orders", "carts", "orders")
	r.tailHas(6)
	stream, err := js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	begins := map[*time.Time][]string{nil: nil}
	for seq := uint64(1); seq <= 6; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, one := range []uint64{1, 3, 4, 6} {
			if one >= seq {
				want = append(want, fmt.Sprintf("%d {}", one))
			}
		}
		begins[&m.Time] = want
		if seq == 6 {
			begins[new(m.Time.Add(1))] = nil
		}
	}
	begins[new(time.Unix(0, 0))] = []string{"1 {}", "3 {}", "4 {}", "6 {}"}
	gets := make(map[*time.Time]func(int) []string)
	for at := range begins {
		gets[at] = follows(t, func(w http.ResponseWriter, q *http.Request, hold *access.Hold) (Reason, error) {
			return r.hub.Serve(w, q, Request{Collection: "orders", Since: at}, hold)
		})
	}
	last := r.publish("orders")[0]
	for at, want := range begins {
		want = append(want, fmt.Sprintf("%d {}", last))
		if got := gets[at](len(want)); !slices.Equal(got, want) {
			t.Errorf("since %v: %q, want %q", at, got, want)
		}
	}
}

// TestFind: a message is found by its sequence, with what it says. One that is not there is not found; without a
// stream, or without room, there is an error.
func TestFind(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	r.publish("carts", "orders")
	find := func(seq uint64, most int64) (Message, bool, error) {
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", most))
		defer hold.Leave()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if most < findHeld { // it would wait for room
			cancel()
		}
		return r.hub.Find(ctx, seq, hold)
	}
	for seq, collection := range map[uint64]string{1: "carts", 2: "orders"} {
		m, ok, err := find(seq, findHeld)
		_, at := m.Notification()
		if err != nil || !ok || m.Seq != seq || m.Collection != collection || m.Kind != Expired || string(m.Data) != `{}` ||
			time.Since(time.UnixMilli(int64(at))) > limit {
			t.Errorf("message %d: %+v, %v, %v", seq, m, ok, err)
		}
	}
	if m, ok, err := find(4, findHeld); ok || err != nil {
		t.Errorf("a message that is not there: %+v, %v, %v", m, ok, err)
	}
	if _, ok, err := find(1, 1); ok || err == nil {
		t.Errorf("without room: %v, %v", ok, err)
	}
	if err := js.DeleteStream(t.Context(), wire.DefaultPrefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := find(1, findHeld); ok || err == nil {
		t.Errorf("without a stream: %v, %v", ok, err)
	}
}

// TestChanges: a client gets the documents as they are, then a mark with the position, and then each change. With a
// position that the stream reaches back to, it gets what follows that, and no document. Without room, or in a collection
// that does not publish its changes, it gets an error and nothing else.
func TestChanges(t *testing.T) {
	l := clienttest.Start(t)
	h := New(l.Client())
	t.Cleanup(h.Close)
	orders, err := client.Open[map[string]string](l.Client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := orders.Configure(t.Context(), client.Config{DefaultTTL: client.Never}); err != nil {
		t.Fatal(err)
	}
	refused := func(says string, most int64) {
		t.Helper()
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", most))
		defer hold.Leave()
		w := httptest.NewRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if most < pageHeld {
			ctx, cancel = context.WithTimeout(ctx, time.Second)
			defer cancel()
		}
		reason, err := h.Changes(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil),
			Request{Collection: "orders"}, hold)
		if reason != Failed || err == nil || !strings.Contains(err.Error(), says) || w.Body.Len() > 0 {
			t.Errorf("it ends with %q, %v, and has sent %q, want an error with %q", reason, err, w.Body, says)
		}
	}
	refused("does not publish its changes", 256<<20)
	if _, err := orders.Configure(t.Context(), client.Config{DefaultTTL: client.Never, Changes: true}); err != nil {
		t.Fatal(err)
	}
	put := func(id, text string) {
		t.Helper()
		if _, err := orders.Upsert(t.Context(), id, map[string]string{"text": text}); err != nil {
			t.Fatal(err)
		}
	}
	put("1", "one")
	put("2", "two")
	refused("", streamHeld)
	changes := func(req Request) func(int) []string {
		return follows(t, func(w http.ResponseWriter, q *http.Request, hold *access.Hold) (Reason, error) {
			return h.Changes(w, q, req, hold)
		})
	}
	want := func(name string, got []string, parts ...string) {
		t.Helper()
		for i, part := range parts {
			for p := range strings.SplitSeq(part, " ") {
				if !strings.Contains(got[i], p) {
					t.Errorf("%s: event %d is %s, want one with %q", name, i, got[i], p)
				}
			}
		}
	}
	all, one := changes(Request{Collection: "orders"}), changes(Request{Collection: "orders", ID: "2"})
	begin := all(3)
	slices.Sort(begin[:2])
	want("all", begin, `stored {"id":"1" {"text":"one"}`, `stored {"id":"2" {"text":"two"}`, "current {}")
	want("one", one(2), `stored {"id":"2" {"text":"two"}`, "current {}")
	put("1", "again")
	put("2", "again")
	if _, err := orders.Delete(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	follow := all(3)
	want("all", follow, `updated "id":"1" {"text":"again"}`, `updated "id":"2" {"text":"again"}`, `deleted "id":"1"`)
	var position uint64
	if _, err := fmt.Sscanf(follow[0], "updated %d", &position); err != nil {
		t.Fatalf("%q: %v", follow[0], err)
	}
	want("one", one(1), `updated "id":"2" {"text":"again"}`)
	want("behind", changes(Request{Collection: "orders", After: &position})(2), `updated "id":"2"`, `deleted "id":"1"`)
	beyond := position + 1<<20
	want("beyond the end", changes(Request{Collection: "orders", After: &beyond})(2), `stored "id":"2" "again"`,
		"current {}")
}
