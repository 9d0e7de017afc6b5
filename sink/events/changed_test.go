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

func change(id string, seq uint64, document string) Message {
	return Changed(testLog, wire.TypeCreated, seq, wire.Change{ID: id, Collection: "orders", Document: []byte(document),
		Etag: wire.Etag(seq), Ts: 1_790_000_000_123}, 1_790_000_000_123, "")
}

func dropOf(collection string, seq uint64) Message {
	return Changed(testLog, wire.TypeDropped, seq, wire.Change{Collection: collection, Ts: 1_790_000_000_123},
		1_790_000_000_123, "")
}

// TestChangesToTheByte pins what the stream stores of changes. The transform of the stream leaves the
// subject of a drop as it is.
func TestChangesToTheByte(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const token = "a%2Eb%2F%C3%A9"
	at := wire.Time(1_790_000_120_123)
	version := wire.Change{ID: "a.b/é", Collection: "orders", Document: []byte("{ \"a\" : \"<&>\" }"), Etag: 42,
		Ts: 1_790_000_000_123, ExpiresAt: &at}
	const begin = `{"id":"a.b/é","collection":"orders"`
	subject := prefix.Stored("lapse.changed.orders." + token)
	for _, c := range []struct {
		kind          string
		change        wire.Change
		subject, name string
		body          string
	}{
		{wire.TypeCreated, version, subject, token + "/42/changed",
			begin + `,"document":{ "a" : "<&>" },"etag":"42","ts":"2026-09-21T14:13:20.123Z",` +
				`"expiresAt":"2026-09-21T14:15:20.123Z"}`},
		{wire.TypeUpdated, wire.Change{ID: version.ID, Collection: "orders", Omitted: true, Unchanged: true, Etag: 42,
			Ts: version.Ts}, subject, token + "/42/changed",
			begin + `,"documentOmitted":true,"documentUnchanged":true,"etag":"42","ts":"2026-09-21T14:13:20.123Z"}`},
		{wire.TypeUpdated, wire.Change{ID: version.ID, Collection: "orders", Omitted: true, Etag: 42, Ts: version.Ts},
			subject, token + "/42/changed", begin + `,"documentOmitted":true,"etag":"42","ts":"2026-09-21T14:13:20.123Z"}`},
		{wire.TypeDeleted, wire.Change{ID: version.ID, Collection: "orders", Ts: version.Ts}, subject, token + "/42/changed",
			begin + `,"ts":"2026-09-21T14:13:20.123Z"}`},
		{wire.TypeDropped, wire.Change{Collection: "orders", Ts: version.Ts}, "lapse.changed.orders", "42/dropped",
			`{"collection":"orders","ts":"2026-09-21T14:13:20.123Z"}`},
	} {
		r.publish(Changed(testLog, c.kind, 42, c.change, c.change.Ts, trace))
		stored := r.stored()
		m := stored[len(stored)-1]
		want := nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {c.kind}, "ce-source": {"/lapse/1780000000456/collections/orders"},
			"ce-subject": {token}, "ce-id": {"orders/" + c.name}, "ce-time": {"2026-09-21T14:13:20.123Z"},
			"content-type": {"application/json"}, "ce-datacontenttype": {"application/json"}, "traceparent": {trace},
			"ce-traceparent": {trace}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
		if c.kind == wire.TypeDropped {
			delete(want, "ce-subject")
		}
		for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			delete(m.Header, added) // by the server, to what is read
		}
		if diff := cmp.Diff(want, m.Header); diff != "" {
			t.Errorf("%s: %s", c.kind, diff)
		}
		if m.Subject != c.subject || string(m.Data) != c.body {
			t.Errorf("%s is on %s: %s\nwant %s: %s", c.kind, m.Subject, m.Data, c.subject, c.body)
		}
	}
}

// TestG3_ATailFindsChanges: a takeover publishes no change and no drop again. Those of another log, and
// of another shard, are not found.
//
// Goes red if a tail passes over the subject, or takes the etag of a version for a change of it.
func TestG3_ATailFindsChanges(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	r.publish(Expired(testLog, wire.Event{ID: "a", Collection: "orders", Document: []byte("{}"), Etag: 7}, ""))
	all := []Message{change("a", 7, "{}"), change("a/dropped", 8, "{}"), dropOf("orders", 9), dropOf("changed", 10)}
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
	if diff := cmp.Diff(Named{Seq: 8, At: 3, By: 1_790_000_000_123_999_999}, r.tail(0).Named(7, 0)[0]); diff != "" {
		t.Error(diff)
	}
	again := NewSource(prefix.Log(0, 1), 1_780_000_000_457)
	other := Changed(again, wire.TypeDeleted, 11, wire.Change{ID: "c", Collection: "orders"}, 0, "")
	r.publish(other)
	if at, found := r.tail(0).Find(other); found {
		t.Errorf("the tail finds a change of another log at %s", at)
	}
	shard := wire.ShardOf(2, "orders", "a")
	for i := range 2 {
		source := NewSource(prefix.Log(i, 2), 1_780_000_000_456)
		document, drop := Changed(source, wire.TypeDeleted, 12, wire.Change{ID: "a", Collection: "orders"}, 0,
			""), Changed(source, wire.TypeDropped, 13, wire.Change{Collection: "orders"}, 0, "")
		_, isDocument := source.Output(1, document.msg.Subject, document.msg.Header)
		_, isDrop := source.Output(1, drop.msg.Subject, drop.msg.Header)
		if isDocument != (i == shard) || isDrop != (i == 0) {
			t.Errorf("shard %d, the document is of %d: it takes the change for its own: %t, and the drop: %t", i, shard,
				isDocument, isDrop)
		}
	}
}

// TestG8_AChangeThatIsTooLargeIsPublished without its document, and says so.
func TestG8_AChangeThatIsTooLargeIsPublished(t *testing.T) {
	r := newRig(t, natstest.Options{Config: "max_payload: 4096"}, jetstream.StreamConfig{})
	r.publish(change("a", 7, object(3000)), change("a", 8, object(4000)))
	stored := r.stored()
	if m := stored[0]; !strings.Contains(string(m.Data), object(3000)) {
		t.Errorf("the document is not in %s", m.Data)
	}
	if m := stored[1]; string(m.Data) != `{"id":"a","collection":"orders","documentOmitted":true,"etag":"8",`+
		`"ts":"2026-09-21T14:13:20.123Z"}` {
		t.Errorf("a change that does not fit is %s", m.Data)
	}
}
