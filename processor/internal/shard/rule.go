package shard

import (
	"fmt"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// OpenCollections reports whether collections are open ([wire.CollectionsRule]) by what TakeOver has found: by the
// snapshot that is to be loaded, or else by what is stored. known is false if a person has begun the shard anew, and
// neither has a rule: then the log needs one. OpenCollections is for the time before Run.
func (p *Owner) OpenCollections() (open, known bool, err error) {
	if m := p.tenure.loads; m != nil {
		c, err := store.DecodeConfig(m.Configs[wire.CollectionsRule])
		if err != nil {
			err = fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
		}
		return c.Open, true, err
	}
	if p.collections == nil { // the shard could not be taken over yet, and Run tries again: the last rule of the log tells
		return false, true, nil
	}
	return p.collections.Config(wire.CollectionsRule).Open, !p.collections.Unruled(), nil
}
