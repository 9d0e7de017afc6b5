package client

import (
	"fmt"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestStateHasPlaces: of the documents that were written before the places, the state keeps nothing, and knows all the
// same which messages are about what they have. Behind its end nothing is in it.
//
// It fails if the state keeps all ids, or if an expiry in the millisecond of the place is lost.
func TestStateHasPlaces(t *testing.T) {
	s := State{End: 100, collection: "c", shards: []wire.SettledShard{{Seq: 50, Watermark: 5000}},
		written: map[string]wire.Etag{}}
	for n := range 10_000 {
		s.note(&wire.Document{ID: fmt.Sprint(n), Etag: wire.Etag(n%50 + 1), Ts: 4999})
	}
	s.note(&wire.Document{ID: "later", Etag: 60, Ts: 6000})
	s.note(&wire.Document{ID: "at once", Etag: 50, Ts: 5000})
	if len(s.written) != 2 || s.Held() > 2*(writtenHeld+10) {
		t.Errorf("it keeps %v, and holds %d bytes", s.written, s.Held())
	}
	change := func(id string, seq uint64) wire.About { return wire.About{Kind: wire.KindChanged, ID: id, Seq: seq} }
	expiry := func(id string, seq uint64, at wire.Time) wire.About {
		return wire.About{Kind: wire.KindExpired, ID: id, Seq: seq, At: at}
	}
	for _, c := range []struct {
		seq  uint64
		m    wire.About
		want bool
	}{
		{90, change("1", 50), true}, {90, change("1", 51), false}, {101, change("1", 50), false},
		{90, change("later", 60), true}, {90, change("later", 61), false}, {101, change("later", 60), false},
		{90, change("", 50), true}, {90, change("", 51), false}, // drops
		{90, expiry("1", 3, 4999), true}, {90, expiry("1", 3, 5000), false},
		{90, expiry("later", 59, 6000), true}, {90, expiry("later", 60, 6000), false},
		{90, expiry("at once", 49, 5000), true}, {90, expiry("at once", 50, 5000), false},
	} {
		if got := s.Has(c.seq, c.m); got != c.want {
			t.Errorf("message %d about %+v: %t", c.seq, c.m, got)
		}
	}
	old := State{End: 100, collection: "c", written: map[string]wire.Etag{}} // of a process that tells no places
	old.note(&wire.Document{ID: "1", Etag: 7, Ts: 1})
	if !old.Has(90, change("1", 7)) || old.Has(90, change("1", 8)) || old.Has(90, change("2", 1)) {
		t.Error("without places a state does not keep what it has read")
	}
	if (*State)(nil).Has(1, wire.About{}) {
		t.Error("no state has a message")
	}
}
