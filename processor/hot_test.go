package processor

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG9_RejectionsOfOneID: thousands of writes to one id that are refused, and those of
// other ids of its shard among them. Each is rejected once, in the order of the log,
// and the processor waits for few answers of the stream of events.
//
// Goes red if each rejection waits for the one before it.
func TestG9_RejectionsOfOneID(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[1], Options{})
	const refused = 6000
	r.run().stop(t) // so the streams are there
	r.send(prefix.Write(wire.Create, "c", "hot"), `{}`)
	for i := range refused {
		r.sendAsync(prefix.Write(wire.Create, "c", "hot"), `{}`)
		if i%10 == 0 {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		if i%1000 == 0 {
			r.flush()
		}
	}
	r.flush()
	var answers atomic.Int64 // of the stream of events
	listener := r.connect(r.url)
	if _, err := listener.Subscribe("_INBOX.>", func(m *nats.Msg) {
		if bytes.HasPrefix(m.Data, []byte(`{"stream":"LAPSE_EVENTS"`)) || bytes.HasPrefix(m.Data, []byte(`{"type":`)) {
			answers.Add(1)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p := r.run()
	r.caughtUp(p)
	t.Logf("%d rejections took %s", refused, time.Since(began))

	var sequences []int
	for _, m := range r.outputs() {
		if m.subject != "lapse.rejected.c.hot" {
			t.Fatalf("%s was published", m.subject)
		}
		seq, err := strconv.Atoi(m.header.Get(wire.HeaderSeq))
		if err != nil {
			t.Fatal(err)
		}
		sequences = append(sequences, seq)
	}
	if len(sequences) != refused || !slices.IsSorted(sequences) || len(slices.Compact(sequences)) != refused {
		t.Errorf("%d rejections, in the order of the log: %t", len(sequences), slices.IsSorted(sequences))
	}
	if n := answers.Load(); n == 0 || n > refused/3 {
		t.Errorf("the stream of events answered %d times", n)
	}
}

// TestG8_TheStreamOfEventsTakesLess: an operator sets max_msg_size of the stream of events
// while a processor runs. The event of a document that no longer fits is published without
// it, once, and the shard goes on.
//
// Goes red if an event is published as large as the server allows.
func TestG8_TheStreamOfEventsTakesLess(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":-1}`)
		large := `{"x":"` + strings.Repeat("x", 50_000) + `"}`
		r.put("c", "kept", `{"ttl":-1}`)
		r.put("c", "large", large)
		r.put("c", "small", `{}`)
		r.changeEvents(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 16 << 10 })
		r.must(409, prefix.Write(wire.Create, "c", "kept"), large)
		r.config("c", `{"defaultTtl":1}`)
		for _, e := range r.waitEvents("c", 2) {
			if e.Omitted != (e.ID == "large") || string(e.Document) != map[string]string{"small": `{}`}[e.ID] {
				t.Errorf("the event of %s is %.200s", e.ID, e.stored.data)
			}
		}
		r.put("c", "after", `{"ttl":-1}`)
		r.caughtUp(p)
		rejected := 0
		for _, m := range r.outputs() {
			if m.subject == "lapse.rejected.c.kept" {
				rejected++
				if m.header.Get(wire.HeaderTruncated) != strconv.Itoa(len(large)) || len(m.data) < 12<<10 {
					t.Errorf("the rejection has %d bytes, and headers %v", len(m.data), m.header)
				}
			}
		}
		if rejected != 1 {
			t.Errorf("%d rejections", rejected)
		}
	})
}

// changeEvents changes the configuration of the stream of events.
func (r *rig) changeEvents(change func(*jetstream.StreamConfig)) {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), prefix.EventsStream())
	if err != nil {
		r.t.Fatal(err)
	}
	config := s.CachedInfo().Config
	change(&config)
	if _, err := r.js.UpdateStream(r.t.Context(), config); err != nil {
		r.t.Fatal(err)
	}
}

// TestG11_AFullStreamOfEventsIsNamed: while the stream of events is full, the shard has
// a problem that says what to do. When the stream has room again, the shard goes on.
func TestG11_AFullStreamOfEventsIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run()
	r.changeEvents(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1, jetstream.DiscardNew })
	r.send(prefix.Config("c"), `[]`)
	r.send(prefix.Config("d"), `[]`)
	comes(t, "the trouble is named", func() error {
		err := p.Ready()
		for _, part := range []string{"stream LAPSE_EVENTS refuses it", "max_msgs", "discard policy to old"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("%q is not in: %w", part, err)
			}
		}
		return nil
	})
	r.changeEvents(func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = -1, jetstream.DiscardOld })
	r.caughtUp(p)
	if n := len(r.outputs()); n != 2 {
		t.Errorf("%d rejections", n)
	}
}
