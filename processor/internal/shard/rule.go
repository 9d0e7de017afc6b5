package shard

import (
	"fmt"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// OpenCollections reports whether collections are open ([wire.CollectionsRule]) by what TakeOver has found: by the
// snapshot that is to be loaded, or else by what is stored. It is for the time before Run.
func (p *Owner) OpenCollections() (bool, error) {
	if m := p.tenure.loads; m != nil {
		c, err := store.DecodeConfig(m.Configs[wire.CollectionsRule])
		if err != nil {
			err = fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
		}
		return c.Open, err
	}
	return p.collections != nil && p.collections.AllExist(), nil
}
