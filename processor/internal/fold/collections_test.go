package fold

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestCollections compares the collections with a walk over all of them, through random
// changes: see Collections.
//
// Goes red if a change leaves a collection in the wrong set.
func TestCollections(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		configs := map[string]store.Config{}
		for i := range draw("stored", 3) {
			configs[fmt.Sprint("c", i)] = randomConfig(t)
			configs[fmt.Sprintf("c%d.%d", i, 90+i)] = store.Config{History: ttlrules.History{}.With(1, 1, 1).With(9, 2,
				ttlrules.Off)}
		}
		s := NewCollections(configs, []string{"c1", "plain"})
		for seq := range 30 {
			name := fmt.Sprint("c", draw("collection", 4))
			switch draw("change", 8) {
			case 0, 1:
				s.Configure(s.Make(name), randomConfig(t))
			case 2, 3:
				s.Note(s.Make(name), &store.Header{Ts: int64(draw("ts", 20_000)), TTL: ttlrules.TTL(draw("ttl",
					4) - 1)})
			case 4:
				s.LookedUp(s.Make(name), store.NoScore, int64(draw("score", 20_000)))
			case 5:
				if s.Collection(name) != nil {
					s.Move(name, GenerationName(name, uint64(100+seq)),
						store.Config{History: s.Config(name).History.With(50_000, 9, ttlrules.Off)})
				}
			case 6:
				if gens := s.older[name]; len(gens) > 0 {
					s.Remove(gens[draw("generation", len(gens))])
				} else {
					s.Remove(name)
				}
			case 7:
				s.Emptied(name)
				if c := s.Collection(name); c != nil && !c.stored {
					t.Fatalf("%s is empty, and not forgotten", name)
				}
			}
			checkCollections(t, s, int64(draw("until", 60_000)))
		}
	})
}

// TestCommittedLast: the fold forgets a collection with its last document, unless the collection has a configuration.
func TestCommittedLast(t *testing.T) {
	s := NewCollections(map[string]store.Config{"configured": {}}, []string{"configured", "plain"})
	for name, stays := range map[string]bool{"configured": true, "plain": false} {
		s.Committed(store.CollectionChanges{Collection: name, Changes: []store.Change{{ID: "1"}}}, new(DueQueue))
		if s.Collection(name) == nil {
			t.Errorf("%s has a document left, and is forgotten", name)
		}
		s.Committed(store.CollectionChanges{Collection: name, Emptied: true,
			Changes: []store.Change{{ID: "2"}}}, new(DueQueue))
		if known := s.Collection(name) != nil; known != stays {
			t.Errorf("%s has lost its last document: known %v, want %v", name, known, stays)
		}
	}
}

// TestFirstKnown: after a takeover any document may be due, and nobody is told of an
// instant until the owner has looked it up.
func TestFirstKnown(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(5000, 1, 1).Settled()}
	s := NewCollections(map[string]store.Config{"a": config, "b": config}, []string{"a", "b"})
	s.Note(s.Collection("b"), &store.Header{Ts: 9000})
	if due, known := s.FirstDue(), s.FirstDueKnown(); due != 5000 || known != math.MaxInt64 {
		t.Errorf("before a look-up: due %d, known %d", due, known)
	}
	s.LookedUp(s.Collection("a"), 7000, store.NoScore)
	s.LookedUp(s.Collection("b"), 9000, store.NoScore)
	if due, known := s.FirstDue(), s.FirstDueKnown(); due != 8000 || known != due {
		t.Errorf("after the look-ups: due %d, known %d", due, known)
	}
}

// TestBandsEndWhenTheyAreEmpty: the bands of a collection end with its history, but not while a document of one is in
// the index, or was looked up before it is due: the owner forgets the due queue, and has to find the document again.
func TestBandsEndWhenTheyAreEmpty(t *testing.T) {
	h := &store.Header{Ts: 9000, Etag: 9, Kept: 2000, Band: 1}
	s := NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(1000, 1, 2).With(8000, 2, 60),
		Bands: []uint64{2}}}, nil)
	c := s.Collection("c")
	bands := func(what string, queue *DueQueue, want int) {
		t.Helper()
		if settled := c.Settled(queue); len(settled.Bands) != want || len(settled.History) != 1 {
			t.Errorf("%s: it is settled with %+v, want %d bands", what, settled, want)
		}
	}
	var queue DueQueue
	bands("nothing is there", &queue, 0)
	s.Note(c, h)
	bands("a document is in the index", &queue, 1)
	if due := s.FirstDue(); due != 62_000 {
		t.Errorf("it is due at %d", due)
	}
	s.LookedUpBand(c, 1, store.NoScore)
	queue.Set([]*DueDocument{{Key: Key{"c", "x"}, Header: *h}})
	bands("it was looked up", &queue, 1)
	queue.Remove(Key{"c", "x"})
	bands("it is gone", &queue, 0)
}

func randomConfig(t *rapid.T) store.Config {
	var h ttlrules.History
	n := rapid.SampledFrom([]int{0, 1, 2, 3, MaxEpochs + 3}).Draw(t, "epochs")
	for i := range n {
		h = h.With(int64(i)*100, uint64(i), ttlrules.Default(1+i%3))
	}
	c := store.Config{History: h, NoIndex: rapid.IntRange(0, 3).Draw(t, "index") == 0}
	return c.Pause(rapid.IntRange(0, 3).Draw(t, "paused") == 0, 1000, 1000)
}

// checkCollections walks over all.
func checkCollections(t *rapid.T, s *Collections, until int64) {
	in := map[string][]string{}
	var due []*Collection
	paused := 0
	for name, c := range s.all {
		if c.Config.Paused() {
			paused++
		}
		is := func(what string, there bool) {
			if there {
				in[what] = append(in[what], name)
			}
		}
		if c.Name != name || c.due.at != c.firstDue() {
			t.Fatalf("%s is %s, due %d, and %d is kept", name, c.Name, c.firstDue(), c.due.at)
		}
		drains := strings.Contains(name, ".")
		is("all", true)
		is("byDue", c.firstDue() < math.MaxInt64)
		is("long", len(c.Config.History) > MaxEpochs)
		is("draining", drains)
		is("unsettled", !drains && (len(c.Config.History) > 1 || c.Config.Paused()))
		if of, _, ok := strings.Cut(name, "."); ok {
			is("older "+of, true)
		}
		if c.due.at <= until {
			due = append(due, c)
		}
	}
	has := map[string][]string{}
	list := func(what string, of []*Collection) {
		for _, c := range of {
			has[what] = append(has[what], c.Name)
		}
	}
	list("all", s.verifying.list)
	list("byDue", s.byDue.list)
	list("long", slices.Collect(maps.Keys(s.long)))
	list("draining", s.draining.list)
	list("unsettled", s.unsettled.list)
	for name, older := range s.older {
		if !slices.IsSortedFunc(older, func(a, b string) int { return int(generationSeq(a)) - int(generationSeq(b)) }) {
			t.Fatalf("generations out of order: %v", older)
		}
		has["older "+name] = slices.Clone(older)
	}
	for _, m := range []map[string][]string{in, has} {
		for what := range m {
			slices.Sort(m[what])
		}
	}
	if !maps.EqualFunc(in, has, slices.Equal) {
		t.Fatalf("there are %v, and a walk finds %v", has, in)
	}
	slices.SortFunc(due, func(a, b *Collection) int {
		_, longA := s.long[a]
		_, longB := s.long[b]
		switch {
		case longA && !longB:
			return -1
		case longB && !longA:
			return 1
		}
		return s.byDue.compare(a, b)
	})
	first := int64(math.MaxInt64)
	for c := range maps.Values(s.all) {
		first = min(first, c.firstDue())
	}
	got := s.DueBy(until, 100)
	if !slices.Equal(got, due) || s.FirstDue() != first {
		t.Fatalf("due by %d are %d, want %d; the first at %d, want %d", until, len(got), len(due), s.FirstDue(), first)
	}
	for most := range 4 {
		if some := s.DueBy(until, most); len(some) != min(most, len(due)) {
			t.Fatalf("%d of the %d that are due, want %d", len(some), len(due), most)
		}
	}
	if s.Paused() != paused {
		t.Fatalf("%d are paused, and %d are counted", paused, s.Paused())
	}
	seen := map[string]int{}
	for range 2 {
		for _, name := range s.ToVerify(3) {
			seen[name]++
		}
	}
	if len(seen) < min(3, len(s.all)) {
		t.Fatalf("of %d collections, %d are verified in two turns", len(s.all), len(seen))
	}
	for range len(s.all) {
		for _, name := range s.ToVerify(1) {
			seen[name]++
		}
	}
	if len(seen) != len(s.all) {
		t.Fatalf("of %d collections, %d are verified at last", len(s.all), len(seen))
	}
}

// TestDueByLooksAtFew: a step that asks for some of what is due does not walk over all collections with a long history.
func TestDueByLooksAtFew(t *testing.T) {
	configs := map[string]store.Config{}
	for n := range 200 {
		var h ttlrules.History
		for i := range MaxEpochs + 3 {
			h = h.With(int64(i)*100, uint64(i), ttlrules.Default(1+i%3))
		}
		configs[fmt.Sprint("c", n)] = store.Config{History: h}
	}
	s := NewCollections(configs, nil)
	for n := range 200 {
		s.LookedUp(s.Collection(fmt.Sprint("c", n)), store.NoScore, store.NoScore)
	}
	before := s.Visited()
	if due := s.DueBy(1<<40, 2); len(due) > 0 || s.Visited()-before > 10 {
		t.Errorf("%d are due; it looked at %d", len(due), s.Visited()-before)
	}
}

// TestG3_WhatIsDueStaysDueWhileTheModeIsNone: the indexing mode changes nothing in what is known of the
// index: documents that had expired before stay due, and those that are written are known.
func TestG3_WhatIsDueStaysDueWhileTheModeIsNone(t *testing.T) {
	on := store.Config{History: ttlrules.History{}.With(0, 1, 10)}
	s := NewCollections(map[string]store.Config{"c": on}, nil)
	s.Note(s.Collection("c"), &store.Header{Ts: 5000})
	next := store.Config{History: on.History.With(30_000, 2, ttlrules.Off), NoIndex: true}
	configs := s.Reconfigure("c", next, 30_000)
	if !s.MayBeDue("c", 30_000, &DueQueue{}) || len(configs) != 1 || !configs[0].Config.NoIndex {
		t.Errorf("after the mode none, stored is %+v, and a document may be due: %t", configs, s.MayBeDue("c", 30_000,
			&DueQueue{}))
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

// TestNearest: the collection that a refusal suggests is one that a client can name, and is configured.
func TestNearest(t *testing.T) {
	s := NewCollections(map[string]store.Config{"orders": {}, "ordeal.7": {}, wire.LogRules: {}},
		[]string{"ordered"})
	for name, want := range map[string]string{"order": "orders", "ordeal7": "", "ordere": "orders", "collections": ""} {
		if got := s.Nearest(name); got != want {
			t.Errorf("the nearest to %s is %q, want %q", name, got, want)
		}
	}
}
