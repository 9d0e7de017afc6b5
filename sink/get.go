package sink

import (
	"context"
	_ "embed" // the script

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed get.lua
var getSource string

var getScript = layout.NewHeadScript(getSource)

// Positions in the reply of get.lua.
const (
	_ = iota // the head
	getValues
)

// mostIDs is how many ids get.lua takes.
const mostIDs = 4000

// Get reads one document.
func (r *Reader) Get(ctx context.Context, collection, id string) (Document, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return Document{}, err
	}
	if err := wire.CheckID(id); err != nil {
		return Document{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return Document{}, err
	}
	found, err := ps.get(ctx, ps.of(collection, id), collection, []string{id})
	if err != nil {
		return Document{}, err
	}
	if len(found) == 0 {
		return Document{}, ErrNotFound
	}
	return found[0], nil
}

// GetMany reads many documents of a collection, and returns them in the order of the ids. It
// leaves out those that do not exist.
func (r *Reader) GetMany(ctx context.Context, collection string, ids []string) ([]Document, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if err := wire.CheckID(id); err != nil {
			return nil, err
		}
	}
	ps, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	byPart := make([][]string, len(ps.keys))
	for _, id := range ids {
		p := ps.of(collection, id)
		byPart[p] = append(byPart[p], id)
	}
	found := make([][]Document, len(ps.keys))
	err = ps.each(func(p int) (err error) {
		for ids := byPart[p]; len(ids) > 0 && err == nil; {
			var some []Document
			some, err = ps.get(ctx, p, collection, ids[:min(mostIDs, len(ids))])
			found[p] = append(found[p], some...)
			ids = ids[min(mostIDs, len(ids)):]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	documents := make([]Document, 0, len(ids))
	for _, id := range ids {
		p := ps.of(collection, id)
		if f := found[p]; len(f) > 0 && f[0].ID == id {
			documents, found[p] = append(documents, f[0]), f[1:]
		}
	}
	return documents, nil
}

// get reads live documents of one shard, in the order of the ids.
func (ps *shards) get(ctx context.Context, p int, collection string, ids []string) ([]Document, error) {
	args := make([]any, 1, 1+len(ids))
	args[0] = collection
	for _, id := range ids {
		args = append(args, id)
	}
	view, reply, err := ps.ask(ctx, getScript, p, collection, nil, args)
	if err != nil {
		return nil, err
	}
	var found []Document
	for i, values := 0, reply.List(getValues); i < len(ids); i++ {
		if !values.Has(i) {
			continue
		}
		d, ok, err := view.document(ids[i], values.Str(i))
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, d)
		}
	}
	return found, nil
}

// Config reads a collection's configuration. If that was never configured, the error is an [ErrNoCollection], unless
// collections are open: then TTL is off.
func (r *Reader) Config(ctx context.Context, collection string) (wire.Config, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.Config{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return wire.Config{}, err
	}
	view, err := ps.view(ctx, 0, collection)
	return view.config.Wire(), err
}
