package fold

import (
	"cmp"
	"fmt"
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
			docs = append(docs, &DueDocument{Key: key, Header: store.Header{Etag: uint64(i)}, Expiry: ttlrules.Expiry{At: at}})
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
			if !slices.Equal(got, want) || s.Len() != len(left) || s.Next() != min(next["a"], next["b"]) || s.nextOf("a") != next["a"] || s.nextOf("b") != next["b"] {
				t.Fatalf("due at %d: %v, want %v; next %d, of a %d, of b %d, want %v", now, got, want, s.Next(), s.nextOf("a"), s.nextOf("b"), next)
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
