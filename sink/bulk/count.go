package bulk

import (
	"context"
	_ "embed" // the script
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/store"
)

//go:embed count.lua
var countSource string

var countScript = redis.NewScript(countSource)

// countAtOnce is how many collections are counted in one call.
const countAtOnce = 500

// Count notes the sizes of collections in the state of a partition that is at a version (else
// store.ErrFenced), after it was filled, and returns how many documents they have. The
// collections that are not named must be empty. From then on package store may use the partition.
func (p *Partition) Count(ctx context.Context, version string, collections []string) (documents uint64, err error) {
	for some := range slices.Chunk(collections, countAtOnce) {
		keys, args := []string{p.keys.State()}, []any{version}
		for _, c := range some {
			keys = append(keys, p.keys.Docs(c), p.keys.Inherit(c), p.keys.Own(c))
			args = append(args, layout.SizePrefix+c)
		}
		v, err := countScript.Run(ctx, p.client, keys, args...).Slice()
		r := layout.Reply(v)
		if err = layout.Foreign(err); err == nil && r.Int(0) == 0 {
			err = store.ErrFenced
		}
		if err != nil {
			return 0, fmt.Errorf("count partition %d: %w", p.id, err)
		}
		documents += uint64(r.Int(1))
	}
	return documents, nil
}
