package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed count.lua
var countSource string

var countScript = redis.NewScript(countSource)

// Positions in the reply of count.lua.
const (
	countStatus = iota // 0 if the shard is at another version
	countDocuments
	countEmpty // the first collection that is empty, from 1; the rest follow
)

// countAtOnce is how many collections are counted in one call.
const countAtOnce = 500

// Count notes the sizes of collections in the state of a shard that is at a version (else
// store.ErrFenced), after it was filled. It returns those that are not empty, and how many
// documents they have. The collections that are not named must be empty. From then on package
// store may use the shard.
func (p *Shard) Count(ctx context.Context, version string, collections []string) (full []string, documents uint64, err error) {
	for some := range slices.Chunk(collections, countAtOnce) {
		keys, args := []string{p.keys.State()}, []any{version}
		for _, c := range some {
			keys = append(keys, p.keys.Docs(c), p.keys.Inherit(c), p.keys.Own(c))
			args = append(args, layout.SizePrefix+c)
		}
		v, err := countScript.Run(ctx, p.client, keys, args...).Slice()
		r := layout.Reply(v)
		if err = layout.Foreign(err); err == nil && r.Int(countStatus) == 0 {
			err = ErrFenced
		}
		if err != nil {
			return nil, 0, fmt.Errorf("count shard %d: %w", p.id, err)
		}
		documents += uint64(r.Int(countDocuments))
		empty := r[countEmpty:]
		for i, c := range some {
			if len(empty) > 0 && empty.Int(0) == int64(i+1) {
				empty = empty[1:]
			} else {
				full = append(full, c)
			}
		}
	}
	return full, documents, nil
}
