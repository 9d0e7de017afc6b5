package fold

import (
	"math"
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_WhatIsDueStaysDueWhileTheModeIsNone: the indexing mode changes nothing in what is known of the
// index: documents that had expired before stay due, and those that are written are known.
func TestG3_WhatIsDueStaysDueWhileTheModeIsNone(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(0, 1, 10)}
	s := NewCollections(map[string]store.Config{"c": on}, nil)
	s.Note(s.Collection("c"), &store.Header{Ts: 5000})
	next := store.Config{History: on.History.With(30_000, 2, ttlrules.Off), NoIndex: true}
	configs := s.Reconfigure("c", next, 30_000)
	if !s.MayBeDue("c", 30_000, &DueQueue{}) || len(configs) != 1 || !configs[0].Config.NoIndex {
		t.Errorf("after the mode none, stored is %+v, and a document may be due: %t", configs, s.MayBeDue("c", 30_000, &DueQueue{}))
	}
	s.LookedUp(s.Collection("c"), store.NoScore, store.NoScore)
	s.Note(s.Collection("c"), &store.Header{Ts: 40_000, TTL: 5})
	s.Reconfigure("c", store.Config{History: next.History.With(50_000, 3, ttlrules.NoDefault)}, 50_000)
	if s.FirstDue() > 50_000 {
		t.Errorf("what was written while the mode was none is due at %d, want at once", s.FirstDue())
	}
}

// TestNoteKnowsTheDeadline: a collection is not looked through before its first deadline.
func TestNoteKnowsTheDeadline(t *testing.T) {
	s := NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(0, 1, ttlrules.NoDefault)}}, nil)
	s.LookedUp(s.Collection("c"), store.NoScore, store.NoScore)
	for _, h := range []store.Header{{Ts: 1000, TTL: ttlrules.Never}, {Ts: 1000}} {
		if s.Note(s.Collection("c"), &h); s.FirstDue() != math.MaxInt64 {
			t.Errorf("%+v is due at %d", h, s.FirstDue())
		}
	}
	if s.Note(s.Collection("c"), &store.Header{Ts: 1000, TTL: 10}); s.FirstDue() != 11_000 {
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
