package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"
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
)

// Verify returns ErrFenced unless the shard is at the version, ErrDamaged if a
// collection does not have the documents or the index that the last commit left, and
// ErrForeign if one of its keys is of another type.
func (p *Shard) Verify(ctx context.Context, version string, collections []string) error {
	keys := []string{p.keys.State(), p.keys.Config()}
	args := make([]any, 0, len(collections))
	for _, c := range collections {
		keys = append(keys, p.collectionKeys(c)...)
		args = append(args, c)
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
		}
	}
	if err != nil {
		return fmt.Errorf("verify shard %d: %w", p.id, err)
	}
	return nil
}
