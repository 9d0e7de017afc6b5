package processor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestFormatBefore: a store of an earlier lapse, in which what never expires is in no index, is taken
// over as it is. Lists are whole all the time, the missing entries are added in the background, and
// also those of a collection that was never configured, which stays so.
//
// It fails if a takeover does not look at the sizes, or a build makes a configuration.
func TestFormatBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.config("c", `{"defaultTtl":-1}`)
		const n = 40
		for i := range n {
			r.put("c", fmt.Sprint(i), `{"ttl":-1}`)
			r.put("plain", fmt.Sprint(i), `{"ttl":-1}`)
		}
		r.put("c", "expires", `{"ttl":1000}`)
		p.stop(t)
		ctx := t.Context()
		for _, state := range keysOf(t, r, "*:state") {
			r.redis.HSet(ctx, state, "format", "1")
			for field, size := range r.redis.HGetAll(ctx, state).Val() {
				name, ok := strings.CutPrefix(field, "size:")
				if !ok {
					continue
				}
				own := strings.TrimSuffix(state, "state") + "own:" + name
				for _, id := range r.redis.ZRangeArgs(ctx, redis.ZRangeArgs{Key: own, Start: "9007199254740991", Stop: "+inf", ByScore: true}).Val() {
					r.redis.ZRem(ctx, own, id)
				}
				documents, inherit, _ := strings.Cut(size, " ")
				inherit, _, _ = strings.Cut(inherit, " ")
				r.redis.HSet(ctx, state, field, fmt.Sprint(documents, " ", inherit, " ", r.redis.ZCard(ctx, own).Val()))
			}
		}
		listed := func() (count int) {
			for _, c := range []string{"c", "plain"} {
				page, err := r.newReader().List(ctx, c, sink.ListOptions{Limit: wire.MaxListLimit})
				if err != nil {
					t.Fatal(err)
				}
				count += len(page.Documents)
			}
			return count
		}
		if got := listed(); got != 2*n+1 {
			t.Errorf("%d documents are listed before the takeover, want %d", got, 2*n+1)
		}
		r.run()
		eventually(t, "all is indexed", func() bool {
			total := int64(0)
			for _, own := range keysOf(t, r, "*own:*") {
				total += r.redis.ZCard(ctx, own).Val()
			}
			return total == 2*n+1
		})
		if got := listed(); got != 2*n+1 {
			t.Errorf("%d documents are listed, want %d", got, 2*n+1)
		}
		for _, state := range keysOf(t, r, "*:state") {
			if format := r.redis.HGet(ctx, state, "format").Val(); format != "2" {
				t.Errorf("%s has the format %q", state, format)
			}
		}
		for _, config := range keysOf(t, r, "*:config") {
			if r.redis.HExists(ctx, config, "plain").Val() {
				t.Error("a collection that was never configured has a configuration")
			}
		}
	})
}
