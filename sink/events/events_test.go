package events

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = wire.DefaultPrefix

// rig is a nats-server of a test's own, with a stream of events and a publisher.
type rig struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	p      *Publisher
}

func newRig(t *testing.T, opts server.Options, config jetstream.StreamConfig) *rig {
	t.Helper()
	js := natstest.Connect(t, opts)
	config.Name, config.Subjects, config.AllowDirect = prefix.EventsStream(), prefix.EventSubjects(), true
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(js.Conn(), prefix, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, js.Conn(), js, stream, p}
}

// stored is everything in the stream, in its order.
func (r *rig) stored() []*jetstream.RawStreamMsg {
	r.t.Helper()
	info, err := r.stream.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := r.stream.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func (r *rig) publish(messages ...Message) {
	r.t.Helper()
	if err := r.p.Publish(r.t.Context(), r.p.Unfenced(0), messages); err != nil {
		r.t.Fatal(err)
	}
}

// unsaid is what Unsaid returns of messages, by both ways of looking it up.
func (r *rig) unsaid(messages ...Message) []Message {
	r.t.Helper()
	var found [2][]Message
	for i, replicas := range []int{1, 3} {
		p := *r.p
		p.replicas = replicas
		var err error
		ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
		defer cancel()
		if found[i], err = p.Unsaid(ctx, messages); err != nil {
			r.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(orders(found[0]), orders(found[1])); diff != "" {
		r.t.Errorf("in bulk and of the leader differ:\n%s", diff)
	}
	return found[0]
}

func orders(messages []Message) []string {
	list := []string{}
	for _, m := range messages {
		list = append(list, m.msg.Subject+" "+strconv.FormatUint(m.order, 10))
	}
	return list
}

func event(id string, etag uint64, document string) Message {
	return Expired(prefix, wire.Event{
		ID: id, Collection: "orders", Document: []byte(document), Etag: wire.Etag(etag),
		Ts: 1_790_000_000_123, TTL: 60, ExpiredAt: 1_790_000_060_123,
	}, "", 1<<20)
}

func rejection(id string, seq uint64, body string, maxPayload int64) Message {
	return Rejected(prefix, Rejection{
		Subject: "lapse.write.create.orders." + id, Rest: "orders." + id, Seq: seq, Code: 409, Error: "it exists", Body: []byte(body),
	}, maxPayload)
}

// TestMessagesToTheByte pins what is stored in the stream: subjects, headers, bodies.
func TestMessagesToTheByte(t *testing.T) {
	r := newRig(t, server.Options{}, jetstream.StreamConfig{})
	const document = "{ \"a\" : \"<&>\u2028\" ,\r\n\"ttl\":60}"
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r.publish(
		Expired(prefix, wire.Event{
			ID: "a.b/é", Collection: "orders", Document: []byte(document), Etag: 42,
			Ts: 1_790_000_000_123, TTL: 60, ExpiredAt: 1_790_000_060_123,
		}, trace, 1<<20),
		event("x", 7, "{}"),
		Rejected(prefix, Rejection{
			Subject: "lapse.write.create.orders.a%2Eb", Rest: "orders.a%2Eb", Seq: 99, Code: 409, Error: "a sentence", Body: []byte(document), Trace: trace,
		}, 1<<20),
		Rejected(prefix, Rejection{Subject: "lapse.config.orders", Rest: "orders", Seq: 100, Code: 400, Error: "bad", Body: nil}, 1<<20),
	)
	expired := func(id, token, etag string) nats.Header {
		unique := "orders/" + token + "/" + etag
		return nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/collections/orders"},
			"ce-subject": {token}, "ce-id": {unique}, "ce-time": {"2026-09-21T14:14:20.123Z"}, "content-type": {"application/json"},
			"Nats-Msg-Id": {unique}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	rejected := func(code, text, subject, seq string) nats.Header {
		return nats.Header{
			"Lapse-Code": {code}, "Lapse-Error": {text}, "Lapse-Subject": {subject}, "Lapse-Seq": {seq},
			"Nats-Msg-Id": {"rejected/" + seq}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	want := []*jetstream.RawStreamMsg{
		{Subject: "lapse.expired.orders.a%2Eb%2F%C3%A9", Header: expired("a.b/é", "a%2Eb%2F%C3%A9", "42"),
			Data: []byte(`{"id":"a.b/é","collection":"orders","document":` + document + `,"etag":"42","ts":"2026-09-21T14:13:20.123Z","ttl":60,"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.expired.orders.x", Header: expired("x", "x", "7"),
			Data: []byte(`{"id":"x","collection":"orders","document":{},"etag":"7","ts":"2026-09-21T14:13:20.123Z","ttl":60,"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.rejected.orders.a%2Eb", Header: rejected("409", "a sentence", "lapse.write.create.orders.a%2Eb", "99"), Data: []byte(document)},
		{Subject: "lapse.rejected.orders", Header: rejected("400", "bad", "lapse.config.orders", "100")},
	}
	want[0].Header["traceparent"], want[2].Header["traceparent"] = []string{trace}, []string{trace}
	got := r.stored()
	for i, m := range got {
		if want[i].Sequence = uint64(i + 1); m.Time.IsZero() {
			t.Errorf("message %d has no time", i)
		}
		m.Time = time.Time{}
		for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			delete(m.Header, added) // by the server, to what is read
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestFence: once a partition is fenced anew, what was published behind its former
// fence is refused, and nothing else is.
//
// Goes red if a publication does not name the fence, or names one for all partitions.
func TestFence(t *testing.T) {
	r := newRig(t, server.Options{}, jetstream.StreamConfig{})
	fence := func(partition int) Fence {
		t.Helper()
		f, err := r.p.Fence(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	publish := func(f Fence, id string) error { return r.p.Publish(t.Context(), f, []Message{event(id, 1, "{}")}) }
	none, other := r.p.Unfenced(0), r.p.Unfenced(1)
	if err := publish(none, "a"); err != nil {
		t.Errorf("not fenced yet: %v", err)
	}
	first := fence(0)
	if err := publish(none, "b"); !errors.Is(err, ErrFenced) {
		t.Errorf("fenced: %v", err)
	}
	if err := publish(first, "b"); err != nil {
		t.Errorf("behind the fence: %v", err)
	}
	second := fence(0)
	if err := publish(first, "c"); !errors.Is(err, ErrFenced) {
		t.Errorf("fenced again: %v", err)
	}
	if err := publish(other, "c"); err != nil {
		t.Errorf("of another partition: %v", err)
	}
	if err := r.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := publish(second, "d"); !errors.Is(err, ErrFenced) {
		t.Errorf("after a purge: %v", err)
	}
	if n := len(r.stored()); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	if first.Stale(0) || first.Stale(time.Hour) || !first.Stale(time.Nanosecond) || none.Stale(time.Nanosecond) {
		t.Error("a fence is stale after maxAge, if there is one; none never is")
	}
}

// TestFenceRoom: what a fence adds fits into its room, however long the names are.
func TestFenceRoom(t *testing.T) {
	p := Publisher{prefix: wire.Prefix(strings.Repeat("p", 32)), replicas: 1}
	f := p.fence(1023, math.MaxUint64)
	m := event("a", 1, "{}").msg
	before := m.Size()
	f.guard(m)
	if added := m.Size() - before; added > FenceRoom {
		t.Errorf("a fence adds %d bytes", added)
	}
	p.replicas = 3
	if f := p.fence(0, 0); f.bars() {
		t.Error("a replicated stream is fenced")
	}
}

// TestG8_WhatIsTooLargeIsPublished has documents and rejected bodies of every size
// around the server's maximum payload: all can be published, and what was left out
// is said.
//
// Goes red if anything that the publication adds is not counted.
func TestG8_WhatIsTooLargeIsPublished(t *testing.T) {
	const most = 4096
	r := newRig(t, server.Options{MaxPayload: most + FenceRoom}, jetstream.StreamConfig{})
	if n := r.nc.MaxPayload(); n != most+FenceRoom {
		t.Fatalf("the server takes %d bytes", n)
	}
	omitted, truncated := 0, 0
	const from = most - 700
	for n := from; n < most+100; n++ {
		document := `{"a":"` + strings.Repeat("x", n-8) + `"}`
		m := Expired(prefix, wire.Event{ID: "e", Collection: "c", Document: []byte(document), Etag: wire.Etag(n)}, "", most)
		if !strings.Contains(string(m.msg.Data), document) {
			omitted++
			want := fmt.Sprintf(`{"id":"e","collection":"c","documentOmitted":true,"etag":"%d","ts":"1970-01-01T00:00:00.000Z","ttl":0,"expiredAt":"1970-01-01T00:00:00.000Z"}`, n)
			if string(m.msg.Data) != want {
				t.Fatalf("an event without its document is %s", m.msg.Data)
			}
		} else if omitted > 0 {
			t.Errorf("a document of %d bytes is in its event, but a shorter one was not", n)
		}
		rej := rejection("e", uint64(n), document, most)
		if text := rej.msg.Header.Get(wire.HeaderTruncated); text != "" {
			truncated++
			if text != strconv.Itoa(n) || !strings.HasPrefix(document, string(rej.msg.Data)) || len(rej.msg.Data) < most-700 ||
				!strings.Contains(rej.msg.Header.Get(wire.HeaderError), "only the beginning") {
				t.Errorf("a rejection of %d bytes has %d of them, and headers %v", n, len(rej.msg.Data), rej.msg.Header)
			}
		} else if string(rej.msg.Data) != document || truncated > 0 {
			t.Errorf("a rejection of %d bytes is not whole, and does not say so", n)
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{m, rej}); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if omitted == 0 || omitted == most+100-from || truncated == 0 || truncated == most+100-from {
		t.Errorf("%d documents were omitted, and %d bodies truncated", omitted, truncated)
	}
}

// TestPublishInOrder: many messages are stored in their order, and are when
// Publish returns. What is published again is not stored again.
func TestPublishInOrder(t *testing.T) {
	r := newRig(t, server.Options{}, jetstream.StreamConfig{})
	var messages []Message
	for i := range 4500 { // more than may be on their way at once
		messages = append(messages, event(strconv.Itoa(i%1500), uint64(i+1), "{}"))
	}
	r.publish(messages...)
	for i, m := range r.stored() {
		if want := messages[i].msg.Header.Get(ceID); m.Header.Get(ceID) != want {
			t.Fatalf("message %d is %s, want %s", i, m.Header.Get(ceID), want)
		}
	}
	r.publish(messages[4490:]...)
	if n := len(r.stored()); n != 4500 {
		t.Errorf("%d are stored, want 4500", n)
	}
	r.publish()
}

// TestG3_ARefusedEventIsNotOvertaken: of two events on one subject, the second is
// not stored if the first was refused. It would be taken for a sign that the first
// was said, and the first would be lost.
//
// Goes red if Publish sends a message before the one before it on its subject is
// acknowledged.
func TestG3_ARefusedEventIsNotOvertaken(t *testing.T) {
	r := newRig(t, server.Options{}, jetstream.StreamConfig{MaxBytes: 10_000, Discard: jetstream.DiscardNew})
	large, small := event("a", 1, `"`+strings.Repeat("x", 20_000)+`"`), event("a", 2, "{}")
	if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("b", 1, "{}"), large, small, event("c", 3, "{}")}); err == nil {
		t.Fatal("it was not refused")
	}
	for _, m := range r.stored() {
		if m.Header.Get(ceID) == "orders/a/2" {
			t.Error("the second event is stored, and the first is not")
		}
	}
	if diff := cmp.Diff(orders([]Message{large, small}), orders(r.unsaid(large, small))); diff != "" {
		t.Errorf("unsaid:\n%s", diff)
	}
}

func TestPublishErrors(t *testing.T) {
	t.Run("the stream is full", func(t *testing.T) {
		r := newRig(t, server.Options{}, jetstream.StreamConfig{MaxMsgs: 2, Discard: jetstream.DiscardNew})
		r.publish(event("a", 1, "{}"), event("b", 2, "{}"))
		err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")})
		var api *jetstream.APIError
		if !errors.As(err, &api) || !strings.Contains(err.Error(), "maximum messages") || !strings.Contains(err.Error(), "lapse.expired.orders.c") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the stream is deleted", func(t *testing.T) {
		r := newRig(t, server.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
			t.Error("published to a stream that is not there")
		}
		for _, replicas := range []int{1, 3} {
			r.p.replicas = replicas
			if _, err := r.p.Unsaid(t.Context(), []Message{event("c", 3, "{}")}); err == nil {
				t.Errorf("looked up in a stream that is not there, of %d replicas", replicas)
			}
		}
	})
	t.Run("another stream has the subjects", func(t *testing.T) {
		r := newRig(t, server.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"lapse.>"}}); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
			t.Error("published to another stream")
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		r := newRig(t, server.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		// Somebody listens in the stream's place, and says nothing.
		for _, subject := range []string{"lapse.expired.>", "$JS.API.DIRECT.GET.LAPSE_EVENTS"} {
			if _, err := r.nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := r.p.Publish(ctx, r.p.Unfenced(0), []Message{event("c", 3, "{}")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish: %v", err)
		}
		if _, err := r.p.Unsaid(ctx, []Message{event("c", 3, "{}")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unsaid: %v", err)
		}
		r.p.replicas = 3
		if _, err := r.p.Unsaid(ctx, []Message{event("c", 3, "{}")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unsaid, of the leader: %v", err)
		}
	})
}

// TestUnsaid looks up more subjects than fit one request, several messages on some.
func TestUnsaid(t *testing.T) {
	r := newRig(t, server.Options{}, jetstream.StreamConfig{})
	var said, asked, want []Message
	for i := range 2200 {
		id := strconv.Itoa(i)
		switch i % 4 {
		case 0: // nothing was said
			asked, want = append(asked, event(id, 5, "{}")), append(want, event(id, 5, "{}"))
		case 1: // the first was said, the others were not
			said = append(said, event(id, 5, "{}"))
			asked = append(asked, event(id, 5, "{}"), event(id, 6, "{}"), event(id, 9, "{}"))
			want = append(want, event(id, 6, "{}"), event(id, 9, "{}"))
		case 2: // all were said
			said = append(said, event(id, 5, "{}"), event(id, 10, "{}"))
			asked = append(asked, event(id, 5, "{}"), event(id, 10, "{}"))
		case 3: // rejections, each of a message of its own
			first, second := rejection(id, uint64(10*i), "", 1<<20), rejection(id, uint64(10*i+1), "", 1<<20)
			said = append(said, first)
			asked = append(asked, first, second, event(id, 1, "{}"))
			want = append(want, second, event(id, 1, "{}"))
		}
	}
	if diff := cmp.Diff(orders(asked), orders(r.unsaid(asked...))); diff != "" {
		t.Errorf("of an empty stream:\n%s", diff)
	}
	r.publish(said...)
	if diff := cmp.Diff(orders(want), orders(r.unsaid(asked...))); diff != "" {
		t.Error(diff)
	}
	if found := r.unsaid(); len(found) != 0 {
		t.Errorf("of nothing, %d are unsaid", len(found))
	}
}

// TestG3_ACutAnswerLosesNothing: the server ends an answer that has become too
// long; the rest is asked for again, and not taken for unsaid.
//
// Goes red if the end of an answer counts whatever it says is pending.
func TestG3_ACutAnswerLosesNothing(t *testing.T) {
	for _, large := range []int{4, 20} {
		t.Run(strconv.Itoa(large), func(t *testing.T) {
			r := newRig(t, server.Options{}, jetstream.StreamConfig{})
			var messages []Message
			for i := range 200 {
				size := 10
				if i%10 == 0 && i/10 < large {
					size = 1_000_000
				}
				messages = append(messages, event(strconv.Itoa(i), uint64(i+1), `"`+strings.Repeat("x", size)+`"`))
			}
			r.publish(messages...)
			if found := r.unsaid(messages...); len(found) > 0 {
				t.Errorf("%d of %d are said to be unsaid, the first %s", len(found), len(messages), found[0].msg.Subject)
			}
		})
	}
}

// TestMalformedStoredHeaders: what cannot be read of the last message on a subject
// is an error, and never taken for nothing.
func TestMalformedStoredHeaders(t *testing.T) {
	for name, header := range map[string]nats.Header{
		"none":               nil,
		"others":             {"A": {"b"}},
		"no number":          {ceID: {"orders/a/x"}},
		"an empty number":    {ceID: {"orders/a/"}},
		"a sequence of none": {wire.HeaderSeq: {"-1"}},
		"too large":          {wire.HeaderSeq: {"18446744073709551616"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, server.Options{}, jetstream.StreamConfig{})
			m := event("a", 3, "{}")
			if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: m.msg.Subject, Header: header}); err != nil {
				t.Fatal(err)
			}
			for _, replicas := range []int{1, 3} {
				r.p.replicas = replicas
				if found, err := r.p.Unsaid(t.Context(), []Message{event("b", 1, "{}"), m}); err == nil {
					t.Errorf("%d replicas: %d are unsaid, without an error", replicas, len(found))
				}
			}
		})
	}
}
