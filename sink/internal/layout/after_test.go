package layout

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestAfter: rank_after tells how many members of an index are not after a place, in the order of scores and then of
// the bytes of ids, whether the id is there or not.
func TestAfter(t *testing.T) {
	script := redis.NewScript(After + `return rank_after(KEYS[1], ARGV[1], ARGV[2])`)
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		ctx := context.Background()
		rapid.Check(t, func(t *rapid.T) {
			id := rapid.StringMatching(`[ab\x{1}é]{0,3}`)
			members := rapid.MapOfN(id.Filter(func(s string) bool { return s != "" }), rapid.IntRange(1, 3), 1, 12).Draw(t, "members")
			var all []redis.Z
			for name, score := range members {
				all = append(all, redis.Z{Score: float64(score), Member: name})
			}
			pipe := s.Client.Pipeline()
			pipe.Del(ctx, "index")
			pipe.ZAdd(ctx, "index", all...)
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
			score, after := rapid.IntRange(0, 4).Draw(t, "score"), id.Draw(t, "id")
			want := 0
			for name, at := range members {
				if at < score || at == score && after != "" && strings.Compare(name, after) <= 0 {
					want++
				}
			}
			if got, err := script.Run(ctx, s.Client, []string{"index"}, score, after).Int(); err != nil || got != want {
				t.Errorf("of %v, %d are not after %q at %d (%v), want %d", members, got, after, score, err, want)
			}
			if got, err := script.Run(ctx, s.Client, []string{"index"}, "", "").Int(); err != nil || got != 0 {
				t.Errorf("%d are not after the beginning (%v)", got, err)
			}
		})
	})
}
