package live

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// limit is the longest that a test waits.
const limit = time.Minute

// rig is a hub that HTTP clients reach, over a stream of events into which the test publishes.
type rig struct {
	t   *testing.T
	js  jetstream.JetStream
	hub *Hub
	web *httptest.Server
}

// newRig makes a stream by js, and a hub whose client connects to a server.
func newRig(t *testing.T, js jetstream.JetStream, server string, replicas int) *rig {
	t.Helper()
	r := &rig{t: t, js: js}
	natstest.CreateStream(t, js, jetstream.StreamConfig{Name: wire.DefaultPrefix.EventsStream(),
		Subjects: []string{"lapse.expired.>"}, AllowDirect: true, Storage: jetstream.MemoryStorage, Replicas: replicas})
	c, err := client.Connect(client.Options{Server: server, Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	r.hub = New(c)
	r.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", 256<<20))
		defer hold.Leave()
		ask := Request{Collection: req.URL.Query().Get("collection")}
		if id := req.Header.Get("Last-Event-ID"); id != "" {
			var after uint64
			if _, err := fmt.Sscan(id, &after); err != nil {
				t.Error(err)
			}
			ask.After = &after
		}
		if _, err := r.hub.Serve(w, req, ask, hold); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(func() {
		r.hub.Close()
		r.web.Close()
		c.Close()
		if n := len(r.hub.catching); n > 0 {
			t.Errorf("the hub still reads %d batches, but no client waits for them", n)
		}
	})
	return r
}

// publish publishes an event of each of some collections, and returns their sequences.
func (r *rig) publish(collections ...string) (seqs []uint64) {
	r.t.Helper()
	for _, c := range collections {
		ack, err := r.js.Publish(r.t.Context(), wire.DefaultPrefix.Expired(c, "1"), []byte(`{}`))
		if err != nil {
			r.t.Fatal(err)
		}
		seqs = append(seqs, ack.Sequence)
	}
	return seqs
}

// tailHas waits until the ring has a sequence.
func (r *rig) tailHas(seq uint64) {
	r.t.Helper()
	if err := poll.Met(limit, fmt.Sprintf("the ring has message %d", seq), func() bool {
		r.hub.mu.Lock()
		t := r.hub.tail
		r.hub.mu.Unlock()
		if t == nil {
			return false
		}
		_, last := t.ring.bounds()
		return last >= seq
	}); err != nil {
		r.t.Error(err)
	}
}

// tailAt starts the tail of the hub, so that its ring begins behind all that the stream has now.
func (r *rig) tailAt(seq uint64) {
	r.t.Helper()
	t, err := r.hub.join(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if from, _ := t.ring.bounds(); from != seq {
		r.t.Fatalf("the ring begins behind message %d, want %d", from, seq)
	}
	r.t.Cleanup(r.hub.leave)
}

// follower is a client that connects again after each end of its connection, with the id of its last event.
type follower struct {
	r     *rig
	query string
	after uint64
	got   []uint64 // the ids of its events

	gaps, dropped int // notices that something may be missing, and that the server ends the connection
}

// follow follows until the client has an event with a sequence that is not smaller.
func (f *follower) follow(upTo uint64) {
	f.r.t.Helper()
	for end := time.Now().Add(limit); len(f.got) == 0 || f.got[len(f.got)-1] < upTo; {
		if time.Now().After(end) {
			f.r.t.Fatalf("after %v, event %d has not come: %v", limit, upTo, f.got)
		}
		f.connect(upTo)
	}
}

// connect makes one connection, which ends with that event, or when the server ends it. The server then says why.
func (f *follower) connect(upTo uint64) {
	f.r.t.Helper()
	ctx, cancel := context.WithTimeout(f.r.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.r.web.URL+"?"+f.query, nil)
	if err != nil {
		f.r.t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", fmt.Sprint(f.after))
	resp, err := f.r.web.Client().Do(req)
	if err != nil {
		f.r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode == http.StatusOK && kind != "text/event-stream" {
		f.r.t.Errorf("a browser takes no events of the type %q", kind)
	}
	dropped := f.dropped
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); {
		case name == "event" && value == "gap":
			f.gaps++
		case name == "event" && value == "dropped":
			f.dropped++
		case name == "id":
			if _, err := fmt.Sscan(value, &f.after); err != nil {
				f.r.t.Fatal(err)
			}
			if f.got = append(f.got, f.after); f.after >= upTo {
				return
			}
		}
	}
	if resp.StatusCode == http.StatusOK && f.dropped == dropped {
		f.r.t.Error("a connection has ended without a reason")
	}
}
