package events

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// warning is 60 s before the deadline, 1_790_000_120_123 and so many milliseconds.
func warning(id string, etag uint64, before int32, after wire.Time, document string) Message {
	return Expiring(testLog, wire.Expiring{
		ID: id, Collection: "orders", Document: []byte(document), Etag: wire.Etag(etag),
		Ts: 1_790_000_000_123, TTL: 120, ExpiresAt: 1_790_000_120_123 + after, Before: before,
	}, "")
}

// TestWarningToTheByte pins what the stream stores of a warning.
func TestWarningToTheByte(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r.publish(Expiring(testLog, wire.Expiring{
		ID: "a.b/é", Collection: "orders", Document: []byte("{ \"a\" : \"<&>\" " +
			"}"), Etag: 42, Ts: 1_790_000_000_123, TTL: 120, ExpiresAt: 1_790_000_120_123, Before: 60,
	}, trace))
	m := r.stored()[0]
	const token = "a%2Eb%2F%C3%A9"
	want := nats.Header{
		"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expiring.v1"},
		"ce-source":  {"/lapse/1780000000456/collections/orders"},
		"ce-subject": {token}, "ce-id": {"orders/" + token +
			"/42/expiring/60/1790000120123"}, "ce-time": {"2026-09-21T14:14:20.123Z"},
		"content-type": {"application/json"}, "ce-datacontenttype": {"application/json"}, "traceparent": {trace},
		"ce-traceparent": {trace}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
		"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
	}
	for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
		delete(m.Header, added) // by the server, to what is read
	}
	if diff := cmp.Diff(want, m.Header); diff != "" {
		t.Error(diff)
	}
	const body = `{"id":"a.b/é","collection":"orders","document":{ "a" : "<&>" },"etag":"42",` +
		`"ts":"2026-09-21T14:13:20.123Z","ttl":120,"expiresAt":"2026-09-21T14:15:20.123Z","before":60}`
	if subject := prefix.Stored("lapse.expiring.orders." + token); m.Subject != subject || string(m.Data) != body {
		t.Errorf("on %s: %s\nwant %s: %s", m.Subject, m.Data, subject, body)
	}
}

// TestG3_KeysOfWarningsDoNotMeet: the warnings of one version have keys of their own, for each before
// and each deadline, beside its expiry event. A tail finds each, also after a round trip of its place.
//
// Goes red if a key is without the deadline, which a change of the default TTL moves.
func TestG3_KeysOfWarningsDoNotMeet(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	all := []Message{
		warning("a", 7, 60, 0, "{}"), warning("a", 7, 30, 0, "{}"), warning("a", 7, 60, 1000, "{}"), event("a", 7,
			"{}"), warning("b", 8, 60, 0, "{}"),
		warning("b", 9, math.MaxInt32, 0, "{}"), rejection("a", 10, "{}"),
	}
	for i, m := range all {
		if lost := missing(r.tail(0), all[i:]); len(lost) != len(all)-i {
			t.Errorf("before %s is published, a tail lacks only %v", m.Key, lost)
		}
		at := r.publish(m)
		if found, ok := r.tail(0).Find(m); !ok || found != at {
			t.Errorf("%s: found %t, at %s, want %s", m.Key, ok, found, at)
		}
		if read, err := ParsePlace(at.String()); err != nil || read != at || read.Key != m.Key {
			t.Errorf("%s is read as %s: %v", at, read, err)
		}
		if holds, err := r.p.Holds(t.Context(), testLog, at); err != nil || !holds {
			t.Errorf("the stream does not hold %s: %v", at, err)
		}
	}
	if s := (Place{5, all[0].Key}).String(); s != "5:w7/60/1790000120123" {
		t.Errorf("the place of a warning is written as %s", s)
	}
	for _, text := range []string{"5:w7", "5:w7/60", "5:w7/60/", "5:w7//1", "5:w7/x/1", "5:w7/60/1/1", "5:w7/2147483648/1",
		"5:w/60/1", "5:e7/60/1"} {
		if p, err := ParsePlace(text); err == nil || p != (Place{}) {
			t.Errorf("%q is read as %s: %v", text, p, err)
		}
	}
}

// TestG12_ATailNamesTheLogOfAWarning: the write of the version, which is not later than the warning.
func TestG12_ATailNamesTheLogOfAWarning(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	r.publish(warning("a", 7, 60, 0, "{}"))
	if diff := cmp.Diff([]Named{{Seq: 7, At: 1, By: 1_790_000_060_123_999_999}}, r.tail(0).Named(0, 0)); diff != "" {
		t.Error(diff)
	}
}

// TestG8_ATailIgnoresWarningsThatAreNotOfItsLog: of another log, and what strangers publish.
func TestG8_ATailIgnoresWarningsThatAreNotOfItsLog(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	again := NewSource(prefix.Log(0, 1), 1_780_000_000_457)
	r.publish(Expiring(again, wire.Expiring{ID: "a", Collection: "orders", Etag: 7, Document: []byte("{}"), Before: 60,
		ExpiresAt: 1_790_000_120_123}, ""))
	ids := []string{"", "orders/a/7", "orders/a/7/expiring", "orders/a/7/expiring/60", "orders/a/7/60/1",
		"orders/a/x/expiring/60/1", "orders/a/7/expiring/60/1/expiring/60/1", "orders/a/7/expiring/1.5/1",
		"orders/b/7/expiring/60/1"}
	for _, id := range ids {
		m := warning("a", 7, 60, 0, "{}").msg
		m.Header[ceID] = []string{id}
		if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	tail := r.tail(0)
	if len(tail.stored) > 0 {
		t.Errorf("the tail has %v", places(tail))
	}
	if n := len(r.stored()); n != 1+len(ids) {
		t.Errorf("%d messages are stored", n)
	}
}

// TestG8_AWarningThatIsTooLargeIsPublished: without its document, and with a note of that.
func TestG8_AWarningThatIsTooLargeIsPublished(t *testing.T) {
	r := newRig(t, natstest.Options{Config: "max_payload: 4096"}, jetstream.StreamConfig{})
	r.publish(warning("a", 7, 60, 0, object(3000)), warning("a", 8, 60, 0, object(4000)))
	stored := r.stored()
	if !strings.Contains(string(stored[0].Data), object(3000)) {
		t.Errorf("the document is not in %s", stored[0].Data)
	}
	const want = `{"id":"a","collection":"orders","documentOmitted":true,"etag":"8","ts":"2026-09-21T14:13:20.123Z",` +
		`"ttl":120,"expiresAt":"2026-09-21T14:15:20.123Z","before":60}`
	if got := string(stored[1].Data); got != want {
		t.Errorf("a warning without its document is %s", got)
	}
	if id, want := stored[1].Header.Get(ceID), fmt.Sprint("orders/a/8/expiring/60/", 1_790_000_120_123); id != want {
		t.Errorf("its id is %s, want %s", id, want)
	}
}
