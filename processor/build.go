package processor

import (
	"context"

	"github.com/seed18712806/lapse/sink"
)

// building is how far the index of a collection has been built. It is not stored:
// after a takeover the build begins anew, which adds nothing twice.
type building struct {
	cursor string // of the scan over the documents; "" at the beginning
	server string // process that the cursor is good for
}

// anyBuilding says whether the index of some collection is being built.
func (p *partition) anyBuilding() bool {
	for _, c := range p.configs {
		if c.config.Building {
			return true
		}
	}
	return false
}

// buildNext builds a chunk of the index of one collection, if one is being built.
func (p *partition) buildNext(ctx context.Context) (bool, error) {
	for name, c := range p.configs {
		if c.config.Building {
			return true, p.build(ctx, name, c)
		}
	}
	return false, nil
}

// build adds a chunk of a collection's documents to its index. Those that are
// written meanwhile come to the index with their own commits.
func (p *partition) build(ctx context.Context, name string, c *collection) error {
	if c.building.cursor == "" {
		c.building.cursor = "0"
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, next, server, err := p.store.Scan(callCtx, p.version, name, c.building.cursor, buildChunk)
	if err != nil {
		return err
	}
	if err := p.at(afterScan); err != nil {
		return err
	}
	if c.building.server != "" && c.building.server != server {
		c.building = building{} // the server was restarted: its cursors mean nothing any more
		return nil
	}
	changes := sink.CollectionChanges{Collection: name, Index: found}
	var configs []sink.ConfigChange
	built := c.config
	if next == "0" {
		built.Building = false
		configs = append(configs, sink.ConfigChange{Collection: name, Config: &built})
	}
	if err := p.commit(ctx, p.here(), configs, []sink.CollectionChanges{changes}); err != nil {
		return err
	}
	c.config = built
	c.building = building{cursor: next, server: server}
	if next == "0" {
		c.building = building{}
	}
	return nil
}
