package store_test

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// TestG1_ConfiguredIsTheLeastOfAllShards: what one shard has not applied is still needed in the
// stream of configurations. A shard belongs to the number of shards that it was made with.
func TestG1_ConfiguredIsTheLeastOfAllShards(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		const shards = 4
		first := store.New(s.Client, "lapse", 0, shards)
		for i, applied := range []uint64{7, 5, 9, 6} {
			if n, err := first.Configured(ctx); n != 0 || err != nil {
				t.Errorf("%d shards have applied configurations: %d, %v", i, n, err)
			}
			p := store.New(s.Client, "lapse", i, shards)
			if err := p.Take(ctx, store.State{Log: "log"}, "a", 0); err != nil {
				t.Fatal(err)
			}
			if err := p.Commit(ctx, store.Progress{Version: "a", Next: "b", Offset: 1, Configured: applied}, nil,
				nil); err != nil {
				t.Fatal(err)
			}
			if got, err := p.Load(ctx); err != nil || got.Configured != applied {
				t.Errorf("load shard %d: %+v, %v", i, got, err)
			}
		}
		if n, err := first.Configured(ctx); n != 5 || err != nil {
			t.Errorf("all shards have applied %d, %v, want 5", n, err)
		}
		// The keys of shard 0 of 3 are those of shard 0 of 4.
		if got, err := store.New(s.Client, "lapse", 0, 3).Load(ctx); err == nil ||
			!strings.Contains(err.Error(), "4 shards") {
			t.Errorf("shard 0 of 3 loads the state of one of 4: %+v, %v", got, err)
		}
	})
}
