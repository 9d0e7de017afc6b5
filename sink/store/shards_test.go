package store_test

import (
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_ConfiguredIsTheLeastOfAllShards: what one partition has not applied is still needed in the
// stream of configurations. A partition belongs to the shape that it was made with.
func TestG1_ConfiguredIsTheLeastOfAllShards(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		shape := wire.Shape{Shards: 2, Partitions: 2}
		first := store.NewShard(s.Client, "lapse", shape, 0)
		for number, applied := range []uint64{7, 5, 9, 6} {
			if n, err := first.Configured(ctx); n != 0 || err != nil {
				t.Errorf("%d partitions have applied configurations: %d, %v", number, n, err)
			}
			p := store.NewShard(s.Client, "lapse", shape, number/2).Partition(number % 2)
			if err := p.Take(ctx, store.State{Log: "log"}, "a", 0); err != nil {
				t.Fatal(err)
			}
			if err := p.Commit(ctx, store.Progress{Version: "a", Next: "b", Offset: 1, Configured: applied}, nil, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := p.Load(ctx); err != nil || got.Configured != applied {
				t.Errorf("load partition %d: %+v, %v", number, got, err)
			}
		}
		if n, err := first.Configured(ctx); n != 5 || err != nil {
			t.Errorf("all partitions have applied %d, %v, want 5", n, err)
		}
		if got, err := store.NewStore(s.Client, "lapse", 4).Partition(0).Load(ctx); err == nil {
			t.Errorf("a log without shards loads a partition of two: %+v", got)
		}
	})
}
