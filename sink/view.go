package sink

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// view is what a script read of a shard and a collection, at one moment. Documents from
// the same reply are judged by it.
type view struct {
	now       int64 // the later of the server's clock and the watermark
	config    layout.Config
	raw       string      // config as it is stored
	documents int64       // number of documents of the collection
	size      layout.Size // of the collection after the last commit
}

// expired reports whether a document is expired.
func (v view) expired(h layout.Header) bool { return v.config.History.Expired(h.Clock(), v.now) }

// cuts are the greatest scores of expired documents.
func (v view) cuts() ttlrules.Cuts { return v.config.History.Cuts(v.now) }

// view reads a collection's view of one shard, and no document.
func (ps *shards) view(ctx context.Context, p int, collection string) (view, error) {
	v, _, err := ps.ask(ctx, getScript, p, collection, nil, []any{collection})
	return v, err
}

// ask runs a script about one collection, whose reply begins with a head. The script takes
// the keys of the state, the configurations and the documents, then more keys. ask returns an
// error if the shard must not be read.
func (ps *shards) ask(ctx context.Context, script *redis.Script, p int, collection string, more []string, args []any) (view, layout.Reply, error) {
	k := ps.keys[p]
	keys := append([]string{k.State(), k.Config(), k.Docs(collection)}, more...)
	reply, head, now, err := ps.run(ctx, script, p, keys, args)
	if err != nil {
		return view{}, nil, err
	}
	v := view{now: now, raw: head.Config, documents: head.Documents, size: head.Size}
	if v.size.Documents() != strconv.FormatInt(v.documents, 10) {
		return view{}, nil, ps.lostDocuments(p, collection)
	}
	if v.config, err = ps.configs.Decode(v.raw); err == nil && v.raw == "" {
		err = ps.exists(ctx, p, collection)
	}
	return v, reply, err
}

// run runs a script whose reply begins with a head. It returns an error if the shard must
// not be read, and else the instant by which documents are judged.
func (ps *shards) run(ctx context.Context, script *redis.Script, p int, keys []string, args []any) (reply layout.Reply, head layout.Head, now int64, err error) {
	// Replies may arrive in another order than the server sent them. So this one is compared
	// with the state that was seen before the request, not with the latest one.
	seen := ps.seen[p].get()
	if reply, err = ps.scripts[p].Run(ctx, script, keys, args...); err != nil {
		return nil, head, 0, fmt.Errorf("read %s: %w", ps.name(p), err)
	}
	head = reply.Head(0)
	if err = ps.check(ctx, p, head, seen); err != nil {
		return nil, head, 0, err
	}
	return reply, head, max(head.Clock, head.Watermark), nil
}

// check returns an error if a shard must not be read. seen is the state that this Reader
// had seen before.
func (ps *shards) check(ctx context.Context, p int, head layout.Head, seen position) error {
	unavailable := func(why string) error {
		return fmt.Errorf("%w: %s %s", ErrUnavailable, ps.name(p), why)
	}
	if !head.Initialised {
		return ps.missing(ctx, p, 0)
	}
	if err := wire.CheckFormat(ps.name(p), head.Format); err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if head.Shards != len(ps.keys) {
		return ps.missing(ctx, p, head.Shards)
	}
	switch head.Rebuild {
	case "":
	case layout.Refused:
		return unavailable("has lost data, and the log no longer reaches back to rebuild it; see /readyz of the process that owns the shard")
	default:
		return unavailable("is being rebuilt")
	}
	at := position{log: head.Log, offset: head.Offset}
	if at.before(seen) {
		return unavailable("went back to an older state, and is to be rebuilt")
	}
	ps.seen[p].advance(at)
	if head.Configs != head.ConfigsLeft {
		if _, err := ps.configs.Decode(head.Config); err != nil {
			return err // another program wrote it
		}
		return unavailable("has lost configurations")
	}
	return nil
}

func (ps *shards) lostDocuments(p int, collection string) error {
	return fmt.Errorf("%w: %s has lost documents of collection %s", ErrUnavailable, ps.name(p), collection)
}

func (ps *shards) lostIndex(p int, collection string) error {
	return fmt.Errorf("%w: %s has lost a part of the index of collection %s", ErrUnavailable, ps.name(p), collection)
}
