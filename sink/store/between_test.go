package store_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestBetween: slices of the indexes, in chunks of any size, have each document after the place and up
// to the score once, in order, however many share a score.
func TestBetween(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		for i := range 40 { // 10 share a score
			r.Put("orders", fmt.Sprintf("i%02d", i), store.Header{Ts: far + int64(i/10), Etag: uint64(i + 1)}, "{}")
			r.Put("orders", fmt.Sprintf("o%02d", i), store.Header{Ts: far + int64(i/10), Etag: uint64(i + 50), TTL: 5}, "{}")
		}
		r.Put("orders", "never", store.Header{Ts: far, Etag: 100, TTL: ttlrules.Never}, "{}")
		p := r.Shards[0]
		walk := func(slices []store.Slice, limit, bytes int) (all []string) {
			for {
				found, err := p.Between(ctx, r.At[0].Version, "orders", slices, limit, bytes)
				if err != nil {
					t.Fatal(err)
				}
				more := false
				for i, f := range found {
					all = append(all, f.IDs...)
					if n := len(f.IDs); n > 0 {
						if string(f.Documents[n-1].Body) != "{}" {
							t.Errorf("%s has body %q", f.IDs[n-1], f.Documents[n-1].Body)
						}
						score, _ := f.Documents[n-1].Header.Clock().Score()
						slices[i].After = store.Place{Score: score, ID: f.IDs[n-1]}
					}
					more = more || f.Next <= slices[i].UpTo
				}
				if !more {
					return all
				}
			}
		}
		want := func(prefix string, from, to int) (ids []string) {
			for i := from; i < to; i++ {
				ids = append(ids, fmt.Sprintf("%s%02d", prefix, i))
			}
			return ids
		}
		for _, limit := range []int{1, 7, 10, 1000} {
			both := func() []store.Slice {
				return []store.Slice{
					{Index: ttlrules.ByInherit, After: store.AfterAll(far), UpTo: far + 2},
					{Index: ttlrules.ByOwn, After: store.Place{Score: far + 5000, ID: "o04"}, UpTo: math.MaxInt64 >> 12},
				}
			}
			for _, bytes := range []int{1, 1 << 20} {
				all := strings.Join(walk(both(), limit, bytes), " ")
				if expected := strings.Join(append(want("i", 10, 30), want("o", 5, 40)...), " "); limit == 1000 && bytes > 1 && all != expected {
					t.Errorf("%s\nwant %s", all, expected)
				} else if len(all) != len(expected) {
					t.Errorf("chunks of %d have %s", limit, all)
				}
			}
		}
		found, err := p.Between(ctx, r.At[0].Version, "orders", []store.Slice{
			{Index: ttlrules.ByInherit, After: store.AfterAll(far - 1), UpTo: far - 1},
			{Index: ttlrules.ByOwn, After: store.AfterAll(far + 5003), UpTo: far + 9000},
		}, 10, 1<<20)
		if err != nil || len(found[0].IDs)+len(found[1].IDs) > 0 || found[0].Next != far || found[1].Next != store.NoScore {
			t.Errorf("empty slices: %+v, %v", found, err)
		}
	})
}
