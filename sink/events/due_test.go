package events

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func due(target, id string, etag uint64, document string) Message {
	return Due(testLog, target, wire.Event{ID: id, Collection: "orders", Document: []byte(document), Etag: wire.Etag(etag),
		ExpiredAt: 1_790_000_120_123}, "")
}

// TestDueMessageToTheByte pins what the stream stores of a due message: the bytes of the document, and
// the headers of an event. The transform of the stream puts a number in place of the second token of a
// target that has two.
func TestDueMessageToTheByte(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const body = "{ \"a\" : \"<&>\" }"
	targets := []string{"mail", "mail.send", "mail.send.now", "1.2.3.4.5.6.7.8"}
	for _, target := range targets {
		r.publish(Due(testLog, target, wire.Event{ID: "a.b/é", Collection: "orders", Document: []byte(body), Etag: 42,
			Ts: 1_790_000_000_123, TTL: 120, ExpiredAt: 1_790_000_120_123}, trace))
	}
	const token = "a%2Eb%2F%C3%A9"
	for i, m := range r.stored() {
		want := nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.message.due.v1"},
			"ce-source":  {"/lapse/1780000000456/collections/orders"},
			"ce-subject": {token}, "ce-id": {"orders/" + token +
				"/42"}, "ce-time": {"2026-09-21T14:15:20.123Z"}, "Lapse-Target": {targets[i]},
			"content-type": {"application/json"}, "ce-datacontenttype": {"application/json"}, "traceparent": {trace},
			"ce-traceparent": {trace}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
		for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			delete(m.Header, added) // by the server, to what is read
		}
		if diff := cmp.Diff(want, m.Header); diff != "" {
			t.Errorf("%s: %s", targets[i], diff)
		}
		subject := "lapse.due." + targets[i]
		if i == 1 {
			subject = prefix.Stored(subject)
		}
		if m.Subject != subject || string(m.Data) != body {
			t.Errorf("%s is on %s: %s\nwant %s: %s", targets[i], m.Subject, m.Data, subject, body)
		}
	}
}

// TestG3_ATailFindsDueMessages, whatever their target: a takeover publishes none again. A due message is
// the event of its version, so it has the place of one. One of another log is not found.
//
// Goes red if a tail passes over the subject.
func TestG3_ATailFindsDueMessages(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	all := []Message{due("mail", "a", 7, "{}"), due("mail.send", "a", 8, "{}"), due("mail.send.now", "b", 9, "{}")}
	for i, m := range all {
		if lost := missing(r.tail(0), all[i:]); len(lost) != len(all)-i {
			t.Errorf("before %s is published, a tail lacks only %v", m.Key, lost)
		}
		at := r.publish(m)
		if found, ok := r.tail(0).Find(m); !ok || found != at {
			t.Errorf("%s: found %t, at %s, want %s", m.Key, ok, found, at)
		}
		if holds, err := r.p.Holds(t.Context(), testLog, at); err != nil || !holds {
			t.Errorf("the stream does not hold %s: %v", at, err)
		}
	}
	if diff := cmp.Diff(Named{Seq: 7, At: 1, By: 1_790_000_120_123_999_999}, r.tail(0).Named(0, 0)[0]); diff != "" {
		t.Error(diff)
	}
	again := NewSource(prefix.Log(0, 1), 1_780_000_000_457)
	other := Due(again, "mail.send", wire.Event{ID: "c", Collection: "orders", Document: []byte("{}"), Etag: 10}, "")
	r.publish(other)
	if at, found := r.tail(0).Find(other); found {
		t.Errorf("the tail finds a due message of another log at %s", at)
	}
}

// TestG8_ADueMessageThatIsTooLargeIsPublished: without its body, and with a note of that. A part of the
// document would be no JSON.
func TestG8_ADueMessageThatIsTooLargeIsPublished(t *testing.T) {
	r := newRig(t, natstest.Options{Config: "max_payload: 4096"}, jetstream.StreamConfig{})
	r.publish(due("mail.send", "a", 7, object(3000)), due("mail.send", "a", 8, object(4000)))
	stored := r.stored()
	if m := stored[0]; string(m.Data) != object(3000) || m.Header["Lapse-Truncated"] != nil {
		t.Errorf("the document is not in %s, with %v", m.Data, m.Header)
	}
	if m := stored[1]; len(m.Data) > 0 || m.Header.Get("Lapse-Truncated") != "4000" ||
		m.Header.Get("Lapse-Target") != "mail.send" {
		t.Errorf("a due message that does not fit is %s, with %v", m.Data, m.Header)
	}
}

// TestSpanOfADueMessage: it has the trace of its write, under the name of its kind.
func TestSpanOfADueMessage(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	m := Due(testLog, "mail.send", wire.Event{ID: "a", Collection: "orders", Etag: 7}, trace)
	if s, ok := m.Span(); !ok || s.Subject != "due.<target>" || s.Collection != "orders" || s.Parent != trace ||
		strings.Contains(s.Subject, "mail") {
		t.Errorf("its span is %+v, %t", s, ok)
	}
}
