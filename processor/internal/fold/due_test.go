package fold

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_DueQueue: documents come in the order of their deadlines, once, and those that were
// taken out do not.
func TestG3_DueQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s DueQueue
		left := map[Key]int64{}
		var docs []*DueDocument
		for i, at := range rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 20).Draw(t, "instants") {
			key := Key{[]string{"a", "b"}[i%2], fmt.Sprint(i)}
			docs = append(docs, &DueDocument{Key: key, Header: store.Header{Etag: uint64(i)},
				Expiry: ttlrules.Expiry{At: at}})
			left[key] = at
		}
		all := slices.Clone(docs)
		s.Set(docs)
		for range 25 {
			now := rapid.Int64Range(-1, 10).Draw(t, "now")
			var want []string
			next := map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64}
			for key, at := range left {
				next[key.Collection] = min(next[key.Collection], at)
				if at <= now {
					want = append(want, key.ID)
				}
			}
			var got []string
			due := s.Due(now)
			for _, d := range due {
				got = append(got, d.Key.ID)
			}
			if !slices.IsSortedFunc(due, func(a, b *DueDocument) int { return cmp.Compare(a.Expiry.At, b.Expiry.At) }) {
				t.Fatalf("due at %d, out of order: %v", now, got)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) || s.Len() != len(left) || s.FirstDue() != min(next["a"], next["b"]) ||
				s.firstDueOf("a") != next["a"] || s.firstDueOf("b") != next["b"] {
				t.Fatalf("due at %d: %v, want %v; next %d, of a %d, of b %d, want %v", now, got, want, s.FirstDue(),
					s.firstDueOf("a"), s.firstDueOf("b"), next)
			}
			if len(all) > 0 {
				key := rapid.SampledFrom(all).Draw(t, "gone").Key
				if _, there := left[key]; (s.byKey[key] != nil) != there {
					t.Fatalf("%v is there: %v, want %v", key, (s.byKey[key] != nil), there)
				}
				delete(left, key)
				s.Remove(key)
			}
		}
	})
}

// TestG3_TheQueueContinues: a look-up may pass over the documents of the queue while all others in the index come
// behind them, and not once a document came at or below the score that comes next, nor before the first look-up.
//
// It fails if a document with the same score as the next one counts as behind it: a look-up that passes over the queue
// would find a document of the queue again, and never find the one that came.
func TestG3_TheQueueContinues(t *testing.T) {
	own := func(deadline int64) *store.Header { return &store.Header{Ts: deadline - 1000, TTL: 1} }
	for _, tt := range []struct {
		came *store.Header
		want bool
	}{
		{nil, true},
		{own(4999), false}, {own(5000), false}, {own(5001), true},
		{&store.Header{Ts: 2999}, false}, {&store.Header{Ts: 3000}, false}, {&store.Header{Ts: 3001}, true},
		{&store.Header{Ts: 1, TTL: ttlrules.Never}, true},
	} {
		s := NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(1, 1, 9)}}, []string{"c"})
		if s.Collection("c").Continues() {
			t.Error("nothing was looked up, and the queue continues")
		}
		s.LookedUp(s.Collection("c"), 3000, 5000)
		if tt.came != nil {
			s.Note(s.Collection("c"), tt.came)
		}
		if got := s.Collection("c").Continues(); got != tt.want {
			t.Errorf("after %+v came: %t", tt.came, got)
		}
		s.Move("c", "c.9", store.Config{})
		if s.Collection("c.9").Continues() {
			t.Error("an old generation continues the queue of the collection")
		}
	}
}

// TestG3_DueQueueOf: the documents of each index of the collections that are asked for are counted, those that were
// added with the others, and none that was taken out.
func TestG3_DueQueueOf(t *testing.T) {
	var q DueQueue
	doc := func(collection, id string, ttl ttlrules.TTL, at int64) *DueDocument {
		return &DueDocument{Key: Key{collection, id}, Header: store.Header{Ts: 1, TTL: ttl},
			Expiry: ttlrules.Expiry{At: at}}
	}
	q.Set([]*DueDocument{doc("a", "1", ttlrules.Inherit, 7), doc("a", "2", 5, 3), doc("b", "1", 5, 1)})
	q.Remove(Key{"b", "1"})
	q.Add([]*DueDocument{doc("a", "3", 5, 2), doc("b", "2", ttlrules.Inherit, 4), doc("other", "1", 5, 9)})
	banded := doc("a", "4", ttlrules.Inherit, 8)
	banded.Header.Kept, banded.Header.Band = 1, 2
	q.Add([]*DueDocument{banded})
	want := map[Part]int{{"a", ttlrules.ByInherit, 0}: 1, {"a", ttlrules.ByInherit, 2}: 1, {"a", ttlrules.ByOwn, 0}: 2,
		{"b", ttlrules.ByInherit, 0}: 1}
	if got := q.Of([]*Collection{{Name: "a"}, {Name: "b"}, {Name: "none"}}); !maps.Equal(got, want) {
		t.Errorf("it counts %v, want %v", got, want)
	}
	var order []string
	for _, d := range q.Due(9) {
		order = append(order, d.Key.Collection+d.Key.ID)
	}
	if want := []string{"a3", "a2", "b2", "a1", "a4", "other1"}; !slices.Equal(order, want) {
		t.Errorf("they are due in the order %v, want %v", order, want)
	}
}
