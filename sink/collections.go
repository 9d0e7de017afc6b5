package sink

import (
	"cmp"
	"context"
	_ "embed" // the script
	"slices"
	"strconv"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed collections.lua
var collectionsSource string

var collectionsScript = layout.NewHeadScript(collectionsSource)

// Positions in the reply of collections.lua.
const (
	_                = iota // the head
	collectionsFirst        // the first collection; the rest follow
)

// Positions in what collections.lua returns of a collection.
const (
	collectionConfig = iota
	collectionLeft   // its size after the last commit
	collectionSize
	collectionCount
)

// manyCollections is how many collections one script counts.
const manyCollections = 100

// CollectionsOptions ask for a page of the collections.
type CollectionsOptions struct {
	Limit        int    // 1 to wire.MaxListLimit; wire.DefaultListLimit if 0
	Continuation string // of the page before
	// Among are the only collections that are listed, or named in a continuation; all if nil.
	Among []string
}

// Collections lists the collections that are configured or hold documents, in the order of
// their names, in pages. A collection that exists from the first page to the last is in
// exactly one of them. As in [Reader.Config], the configuration is that of the first
// shard. Documents are counted as in [Reader.Count].
func (r *Reader) Collections(ctx context.Context, opts CollectionsOptions) (wire.CollectionsReply, error) {
	if err := wire.CheckLimit(opts.Limit); err != nil {
		return wire.CollectionsReply{}, err
	}
	limit := cmp.Or(opts.Limit, wire.DefaultListLimit)
	pos, err := decodeNamesPosition(opts.Continuation)
	if err != nil {
		return wire.CollectionsReply{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return wire.CollectionsReply{}, err
	}
	sorted, err := ps.collectionNames(ctx, &pos)
	if err != nil {
		return wire.CollectionsReply{}, err
	}
	if opts.Among != nil {
		sorted = slices.DeleteFunc(slices.Clone(sorted), func(name string) bool { return !slices.Contains(opts.Among, name) })
	}
	at, found := slices.BinarySearch(sorted, pos.After)
	if found {
		at++
	}
	some := sorted[at:min(at+limit, len(sorted))]
	reply := wire.CollectionsReply{}
	if reply.Collections, err = ps.describe(ctx, some); err != nil {
		return wire.CollectionsReply{}, err
	}
	if at+limit < len(sorted) {
		pos.After = some[limit-1]
		reply.Continuation = encodeContinuation(pos)
	}
	return reply, nil
}

// described is what one shard knows of a collection.
type described struct {
	config        layout.Config
	exists        bool // it is configured, or has documents
	live, expired int64
}

// describe reads collections from all shards. It leaves out those that no longer exist.
func (ps *shards) describe(ctx context.Context, names []string) ([]wire.Collection, error) {
	by := make([][]described, len(ps.keys))
	err := ps.each(func(p int) error {
		for some := range slices.Chunk(names, manyCollections) {
			found, err := ps.describeIn(ctx, p, some)
			if err != nil {
				return err
			}
			by[p] = append(by[p], found...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	collections := []wire.Collection{}
	for i, name := range names {
		config := by[0][i].config.Wire()
		var sum described
		for _, in := range by {
			sum.exists = sum.exists || in[i].exists
			sum.live += in[i].live
			sum.expired += in[i].expired
		}
		if !sum.exists {
			continue
		}
		collections = append(collections, wire.Collection{Name: name, DefaultTTL: config.DefaultTTL,
			IndexingMode: config.IndexingMode,
			MaxLife:      config.MaxLife, Paused: config.Paused, Indexes: config.Indexes, Etag: config.Etag, Live: sum.live,
			Expired: sum.expired})
	}
	return collections, nil
}

// question is a collection that collections.lua is asked about.
type question struct {
	i       int          // of the collection
	raw     string       // the configuration from which the ranges follow
	expired []scoreRange // whose documents are expired; nil: not known yet
}

// describeIn reads a few collections from one shard. The configuration decides which
// documents are expired, so they are counted in a second round trip. It is repeated for the
// collections whose configuration changed between the two.
func (ps *shards) describeIn(ctx context.Context, p int, names []string) ([]described, error) {
	k := ps.keys[p]
	found := make([]described, len(names))
	asked := make([]question, len(names))
	for i := range names {
		asked[i].i = i
	}
	for len(asked) > 0 {
		keys, args := []string{k.State(), k.Config()}, []any{p == 0}
		for _, q := range asked {
			name := names[q.i]
			keys = append(keys, k.Docs(name), k.Inherit(name), k.Own(name))
			args = append(args, name, len(q.expired))
			for _, r := range q.expired {
				low, high := r.bounds()
				args = append(args, int(r.in), low, high)
			}
		}
		reply, _, now, err := ps.run(ctx, collectionsScript, p, keys, args)
		if err != nil {
			return nil, err
		}
		var again []question
		for n, q := range asked {
			answer := reply.List(collectionsFirst + n)
			raw, left := answer.Str(collectionConfig), answer.Str(collectionLeft)
			documents, err := ps.checkSize(p, names[q.i], layout.SizeOf(left), layout.Size(answer.Str(collectionSize)))
			if err != nil {
				return nil, err
			}
			config, err := ps.configs.Decode(raw)
			if err != nil {
				return nil, err
			}
			d := described{config: config, exists: raw != "" || left != ""}
			cuts := config.History.Cuts(now) // the greatest ones: in a band fewer epochs count
			switch {
			case q.expired != nil && q.raw == raw:
				d.expired = answer.Int(collectionCount)
				d.live = documents - d.expired
			case cuts == ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: ttlrules.NoCut}, documents == 0:
				d.live = documents
			default:
				again = append(again, question{q.i, raw, expiredRanges(config, now)})
			}
			found[q.i] = d
		}
		asked = again
	}
	return found, nil
}

// checkSize checks that a collection has as many documents and index members as the last
// commit left, and returns the number of documents.
func (ps *shards) checkSize(p int, collection string, left, size layout.Size) (documents int64, err error) {
	switch {
	case left.Documents() != size.Documents():
		return 0, ps.lostDocuments(p, collection)
	case left != size:
		return 0, ps.lostIndex(p, collection)
	}
	documents, _ = strconv.ParseInt(size.Documents(), 10, 64) // Redis counted them
	return documents, nil
}
