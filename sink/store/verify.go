package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed verify.lua
var verifySource string

var verifyScript = redis.NewScript(verifySource)

// Positions in the reply of verify.lua.
const (
	verifyStatus = iota
	verifyVersion
	verifyWhich // the key or the collection that the status is about, from 1
)

// Statuses in the reply of verify.lua, besides 1.
const (
	verifyOtherType = -1
	verifyLost      = -2
	verifyLostIndex = -3
)

// IndexOf names one of the property indexes of a collection.
type IndexOf struct {
	Collection string
	Slot       int
}

// Verify returns ErrFenced unless the shard is at the version, ErrDamaged if a collection does not have the documents
// or the index that the last commit left, or one of the property indexes does not have its entries, and ErrForeign if
// one of their keys is of another type.
func (p *Shard) Verify(ctx context.Context, version string, collections []string, indexes ...IndexOf) error {
	keys := []string{p.keys.State(), p.keys.Config()}
	args := make([]any, 1, 1+len(collections)+len(indexes))
	args[0] = len(collections)
	for _, c := range collections {
		keys = append(keys, p.collectionKeys(c)...)
		args = append(args, c)
	}
	for _, x := range indexes {
		keys = append(keys, p.keys.By(x.Slot, x.Collection))
		args = append(args, layout.EntriesField(x.Slot, x.Collection))
	}
	r, err := p.scripts.Run(ctx, verifyScript, keys, args...)
	if err == nil && r.Str(verifyVersion) != version {
		err = ErrFenced
	}
	if err == nil {
		switch which := r.Int(verifyWhich); r.Int(verifyStatus) {
		case verifyOtherType:
			err = fmt.Errorf("%w: key %s is of another type", ErrForeign, keys[which-1])
		case verifyLost:
			what := lostConfigs
			if which > 0 {
				what = lost(collections[which-1])
			}
			err = fmt.Errorf("%w: %s", ErrDamaged, what)
		case verifyLostIndex:
			err = fmt.Errorf("%w: %s", ErrDamaged, lostEntries(keys[which-1]))
		}
	}
	if err != nil {
		return fmt.Errorf("verify shard %d: %w", p.id, err)
	}
	return nil
}
