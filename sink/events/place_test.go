package events

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestPlaceRoundTrip: what String and MarshalText write is read back.
func TestPlaceRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Place{
			Seq: rapid.Uint64Min(1).Draw(t, "seq"),
			Key: Key{Kind: rapid.SampledFrom([]byte{keyExpired, keyExpiring, keyChanged, keyRejected, keyFence}).Draw(t, "kind"),
				Seq: rapid.Uint64().Draw(t, "of")},
		}
		if p.Key.Kind == keyExpiring {
			p.Key.Warning = Warning{rapid.Int32().Draw(t, "before"), rapid.Int64().Draw(t, "deadline")}
		}
		if got, err := ParsePlace(p.String()); err != nil || got != p {
			t.Fatalf("%s is read as %s: %v", p, got, err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got Place
		if err := json.Unmarshal(text, &got); err != nil || got != p {
			t.Fatalf("%s is read as %s: %v", text, got, err)
		}
	})
	if s := (Place{}).String(); s != "" {
		t.Errorf("nothing is written as %q", s)
	}
	if s := (Place{12, Key{Kind: keyFence, Seq: math.MaxUint64}}).String(); s != "12:f18446744073709551615" {
		t.Errorf("a fence is written as %q", s)
	}
	for _, text := range []string{"1", "1:", "1:e", "x:e1", ":e1", "1:ex", "1:e1 ", "-1:e1", "1:e18446744073709551616",
		"e1:1"} {
		if p, err := ParsePlace(text); err == nil || p != (Place{}) {
			t.Errorf("%q is read as %s: %v", text, p, err)
		}
	}
}

// TestG3_KeysDoNotMeet: no two outputs have one key, also if their headers look alike: those of two
// shards, of a log that was made anew, and a rejection beside an event whose ce-id is the same text.
// A tail finds those of its own log alone.
//
// Goes red if a key is the text of an id.
func TestG3_KeysDoNotMeet(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	const created = 1_780_000_000_456
	shards := []Source{NewSource(prefix.Log(0, 2), created), NewSource(prefix.Log(1, 2), created)}
	other := 0
	if wire.ShardOf(2, "rejected", "1") == 0 {
		other = 1
	}
	rejected := func(source Source) Message {
		return Rejected(source, Rejection{Subject: "lapse.config.1", Rest: "1", Seq: 9, Code: 400, Error: "bad"})
	}
	expired := func(source Source) Message {
		return Expired(source, wire.Event{Collection: "rejected", ID: "1", Etag: 9, Document: []byte("{}")}, "")
	}
	own := shards[1-other]
	again := NewSource(prefix.Log(1-other, 2), created+1)
	for _, one := range []struct {
		publish Message
		log     Source // whose tail is asked
		found   bool   // by it
	}{
		{rejected(shards[other]), shards[other], true},
		{rejected(shards[other]), own, false},
		{expired(own), own, true},
		{expired(own), shards[other], false},
		{expired(own), again, false},
	} {
		for _, beside := range []Message{rejected(one.log), expired(one.log)} {
			if err := r.stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			at := r.publish(one.publish)
			tail := r.p.NewTail(one.log)
			tail.Hold()
			if err := tail.Cover(t.Context(), 0, at.Seq); err != nil {
				t.Fatal(err)
			}
			want := one.found && beside.msg.Subject == one.publish.msg.Subject
			if got, found := tail.Find(beside); found != want || found && got != at {
				t.Errorf("a tail of %s finds %s: %t at %s, but %s was published at %s for %s", one.log.stream, beside.Key, found,
					got, one.publish.Key, at, one.publish.msg.Subject)
			}
		}
	}
}

// A region that was the first goes on publishing after another one was promoted, and what it publishes comes into the
// stream of events of that. It is of messages that the promotion has lost, so it is no output of the log there.
//
// It fails if an event counts by the name of its log alone (F15).
func TestG3_AFormerLogBehindItsEnd(t *testing.T) {
	t.Parallel()
	former := NewSource(prefix.Log(0, 1), 1000)
	now := NewSource(prefix.Log(0, 1), 2000).Continues([]wire.Former{{Identity: 1000 * int64(time.Millisecond), Last: 10,
		Events: 20}})
	for etag, ours := range map[wire.Etag]bool{9: true, 10: true, 11: false} {
		e := wire.Event{Collection: "c", ID: "x", Etag: etag, Document: []byte("{}")}
		for _, m := range []Message{Expired(former, e, ""), Expired(now, wire.Event{Collection: "c", ID: "x", Etag: 30,
			Document: []byte("{}")}, "")} {
			want := ours || m.Key.Seq == 30
			if _, ok := now.Output(40, m.msg.Subject, m.msg.Header); ok != want {
				t.Errorf("the event of version %d counts: %t, want %t", m.Key.Seq, ok, want)
			}
		}
	}
}
