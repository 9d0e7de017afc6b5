package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed fill.lua
var fillSource string

var fillScript = redis.NewScript(fillSource)

// CollectionFill is what a fill does to one collection. No id comes twice in it.
type CollectionFill struct {
	Collection string
	Drop       bool   // first removes all documents
	MoveTo     string // moves all documents to another collection, which has none, and nothing else
	Put        []Document
	// Renew gives documents another header, which is their Value, and keeps their bodies. What
	// does not exist is left out.
	Renew  []Document
	Remove []string
}

// Fill makes changes to the documents of a shard that is at a version (else
// store.ErrFenced), one after the other, and sets the next version: so the fill after it is
// refused by a replica that became the master without this one. All documents come to the
// indexes. It does not change the sizes that the state holds, so nothing else may use the
// shard before Count.
func (p *Shard) Fill(ctx context.Context, version, next string, changes []CollectionFill) error {
	keys, args := make([]string, 1, 1+3*len(changes)), []any{version, next}
	keys[0] = p.keys.State()
	var err error
	for _, c := range changes {
		keys = append(keys, p.collectionKeys(c.Collection)...)
		if c.MoveTo != "" {
			args = append(args, "move", 0, 0, 0, 0, 0)
			c = CollectionFill{Collection: c.MoveTo}
			keys = append(keys, p.collectionKeys(c.Collection)...)
		}
		if args, err = c.appendArgs(args); err != nil {
			return fmt.Errorf("fill shard %d, collection %s: %w", p.id, c.Collection, err)
		}
	}
	if err = p.fenced(ctx, fillScript, keys, args...); err != nil {
		return fmt.Errorf("fill shard %d: %w", p.id, err)
	}
	return nil
}

// appendArgs appends the arguments of fill.lua for this change.
func (c CollectionFill) appendArgs(args []any) ([]any, error) {
	first := ""
	if c.Drop {
		first = "drop"
	}
	var inherit, own []any
	args = append(args, first, len(c.Put))
	for _, d := range c.Put {
		h, err := layout.ParseHeader(d.Value)
		if err != nil {
			return nil, err
		}
		switch in, score := h.Index(); in {
		case layout.ByInherit:
			inherit = append(inherit, score, d.ID)
		case layout.ByOwn:
			own = append(own, score, d.ID)
		}
		args = append(args, d.ID, d.Value)
	}
	args = append(append(args, len(inherit)/2), inherit...)
	args = append(append(args, len(own)/2), own...)
	args = append(args, len(c.Renew))
	for _, d := range c.Renew {
		h, err := layout.ParseHeader(d.Value)
		if err != nil {
			return nil, err
		}
		in, score := h.Index()
		args = append(args, d.ID, d.Value, int(in), score)
	}
	args = append(args, len(c.Remove))
	for _, id := range c.Remove {
		args = append(args, id)
	}
	return args, nil
}

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
func (p *Shard) Count(ctx context.Context, version string, collections []string) (full []string, documents uint64,
	err error) {
	for some := range slices.Chunk(collections, countAtOnce) {
		keys, args := []string{p.keys.State()}, []any{version}
		for _, c := range some {
			keys = append(keys, p.collectionKeys(c)...)
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
