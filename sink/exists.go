package sink

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// noCollection is an ErrNoCollection whose text is a sentence for the client.
type noCollection string

func (e noCollection) Error() string { return string(e) }
func (noCollection) Unwrap() error   { return ErrNoCollection }

// exists returns an ErrNoCollection about a collection that a shard has no configuration of, unless collections are
// open ([wire.CollectionsRule]).
func (ps *shards) exists(ctx context.Context, p int, collection string) error {
	k := ps.keys[p]
	keys := []string{k.State(), k.Config(), k.Docs(wire.CollectionsRule)}
	_, head, _, err := ps.run(ctx, getScript, p, keys, []any{wire.CollectionsRule})
	if err != nil {
		return err
	}
	rule, err := ps.configs.Decode(head.Config)
	if err != nil || rule.Open {
		return err
	}
	nearest, err := ps.nearest(ctx, collection, head.Configs)
	if err != nil {
		return err
	}
	return noCollection(wire.NoCollection(collection, nearest))
}

// Bounds of the search for a name that is near.
const (
	nearFor   = 5 * time.Second // how long the names are kept, unless the number of configurations changes
	nearPages = 10              // of namesChunk fields each, that are read of the configurations
)

// nearest is the name of the configured collection that is nearest to one that is not; "" if none is near.
// It uses the names that it found last as long as there are so many configurations: a command that configures a
// collection asks for it before, and the next one must find its name.
func (ps *shards) nearest(ctx context.Context, collection string, configs int64) (string, error) {
	near := &ps.names.near
	near.Lock()
	defer near.Unlock()
	if near.of != ps || near.configs != configs || time.Since(near.found) >= nearFor {
		names, _, err := ps.scanNames(ctx, 0, "config", nearPages)
		if err != nil {
			return "", err
		}
		near.of, near.configs, near.found, near.names = ps, configs, time.Now(), names
	}
	return wire.Nearest(collection, near.names), nil
}
