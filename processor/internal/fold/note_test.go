package fold

import (
	"math"
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_MayBeDueWhileBuilding: while the index is being built, any document may be due, unless TTL
// is off. A drop keeps the documents then.
func TestG3_MayBeDueWhileBuilding(t *testing.T) {
	on := ttlrules.History{}.With(0, 1, 10)
	for name, want := range map[string]bool{"on": true, "off": false, "absent": false} {
		s := NewCollections(map[string]store.Config{"on": {History: on, Building: true}, "off": {Building: true}}, nil)
		if got := s.MayBeDue(name, 20_000, &DueQueue{}); got != want {
			t.Errorf("a document of collection %s may be due: %t, want %t", name, got, want)
		}
	}
}

// TestG3_AnIndexStaysWhileDocumentsAreDue: what is known of an index goes with it, and not before.
func TestG3_AnIndexStaysWhileDocumentsAreDue(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(0, 1, 10)}
	off := store.Config{History: on.History.With(30_000, 2, ttlrules.Off), NoIndex: true}
	for _, due := range []bool{true, false} {
		s := NewCollections(map[string]store.Config{"c": on}, nil)
		s.Note(s.Get("c"), &store.Header{Ts: 5000})
		configs, changes := s.Reconfigure("c", on, off, 1, due)
		c := s.Get("c")
		if kept := c.nextInherit == 5000; kept != due || configs[0].Config.Draining != due || (len(changes) == 0) != due {
			t.Errorf("documents are due: %t; the lowest score is %d, %+v, %+v", due, c.nextInherit, configs[0].Config, changes)
		}
	}
}

// TestNoteKnowsTheDeadline: a collection is not looked through before its first deadline.
func TestNoteKnowsTheDeadline(t *testing.T) {
	s := NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(0, 1, ttlrules.NoDefault)}}, nil)
	s.LookedUp(s.Get("c"), store.NoScore, store.NoScore)
	for _, h := range []store.Header{{Ts: 1000, TTL: ttlrules.Never}, {Ts: 1000}} {
		if s.Note(s.Get("c"), &h); s.FirstDue() != math.MaxInt64 {
			t.Errorf("%+v is due at %d", h, s.FirstDue())
		}
	}
	if s.Note(s.Get("c"), &store.Header{Ts: 1000, TTL: 10}); s.FirstDue() != 11_000 {
		t.Errorf("it is due at %d, want 11000", s.FirstDue())
	}
}

// TestIsCommitted: neither the offset nor the watermark alone is everything that was applied.
func TestIsCommitted(t *testing.T) {
	for _, tt := range []struct {
		to   Position
		want bool
	}{{Position{Seq: 5, Time: 50}, true}, {Position{Seq: 5, Time: 51}, false}, {Position{Seq: 6, Time: 50}, false}} {
		var p Progress
		p.Resume(store.State{Offset: 5, Watermark: 50}, "v", 0)
		if p.Advance(tt.to); p.IsCommitted() != tt.want {
			t.Errorf("applied up to %+v: committed is %t", tt.to, p.IsCommitted())
		}
	}
}
