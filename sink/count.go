package sink

import (
	"context"
	_ "embed" // the script
	"strconv"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed count.lua
var countSource string

var countScript = layout.NewHeadScript(countSource)

// Positions in the reply of count.lua.
const (
	_ = iota // the head
	countCounts
	countInherit
	countOwn
)

// Count counts a collection's live documents, and those that are expired but not yet reaped.
// It counts in the index and reads no document. It counts the entries of the property indexes too.
func (r *Reader) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.CountReply{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return wire.CountReply{}, err
	}
	counts := make([]wire.CountReply, len(ps.keys))
	var first view
	err = ps.each(func(p int) error {
		v, n, err := ps.counts(ctx, p, collection, func(v view) ([]scoreRange, error) {
			return expiredRanges(v.config, v.now),
				nil
		})
		if err != nil {
			return err
		}
		if p == 0 {
			first = v
		}
		expired := sum(n)
		counts[p] = wire.CountReply{Live: v.documents - expired, Expired: expired}
		return nil
	})
	if err != nil {
		return wire.CountReply{}, err
	}
	var all wire.CountReply
	for _, c := range counts {
		all.Live += c.Live
		all.Expired += c.Expired
	}
	all.Indexes, err = ps.countIndexes(ctx, collection, first)
	return all, err
}

// countIndexes counts the entries of a collection's indexes. first is a view of the first shard.
func (ps *shards) countIndexes(ctx context.Context, collection string, first view) (counts []wire.IndexCount,
	err error) {
	if len(first.config.Indexes) == 0 {
		return nil, nil
	}
	leftOut := entries.Range{From: entries.Member(entries.Value{Kind: entries.LeftOut}, ""),
		To: entries.Member(entries.Value{Kind: entries.Null}, "")}
	var asked []ranges
	for _, pointer := range first.config.Pointers() {
		asked = append(asked, ranges{pointer, []entries.Range{leftOut}})
	}
	states, err := ps.indexes(ctx, collection, first, asked)
	for _, s := range states {
		c := wire.IndexCount{Pointer: s.pointer, Entries: s.size - s.counted, NotIndexed: s.counted}
		if s.making || !s.there {
			c.Making = &wire.IndexMaking{Made: s.made, Of: s.documents}
		}
		counts = append(counts, c)
	}
	return counts, err
}

func sum(counts []int64) (n int64) {
	for _, one := range counts {
		n += one
	}
	return n
}

// expiredRanges are the ranges of a collection's indexes whose documents are expired at an instant.
func expiredRanges(c layout.Config, now int64) (ranges []scoreRange) {
	for band := range 1 + len(c.Bands) {
		ranges = append(ranges, inBand(band, ttlrules.NoCut, c.InheritCut(band, now)))
	}
	return append(ranges, scoreRange{layout.ByOwn, ttlrules.NoCut, c.History.Cuts(now).Own})
}

// inBand is the range of a band above one score, up to another, both from where the band begins.
func inBand(band int, above, upTo int64) scoreRange {
	begin := int64(band) * ttlrules.BandWidth
	switch {
	case upTo == ttlrules.NoCut:
		return scoreRange{layout.ByInherit, above, upTo}
	case band > 0:
		above = max(above, -1)
	}
	if above != ttlrules.NoCut {
		above += begin
	}
	return scoreRange{layout.ByInherit, above, upTo + begin}
}

// scoreRange is the members of an index above one score, up to another.
type scoreRange struct {
	in          layout.Index
	above, upTo int64
}

// bounds are the range as ZCOUNT takes it.
func (s scoreRange) bounds() (low, high string) {
	low, high = "-inf", "-inf"
	if s.above != ttlrules.NoCut {
		low = "(" + strconv.FormatInt(s.above, 10)
	}
	if s.upTo != ttlrules.NoCut {
		high = strconv.FormatInt(s.upTo, 10)
	}
	return low, high
}

// counts counts the members of ranges of the indexes. The ranges depend on the configuration,
// so counts takes two round trips, and repeats the second if the configuration changed
// between them.
func (ps *shards) counts(ctx context.Context, p int, collection string, ranges func(view) ([]scoreRange, error)) (view,
	[]int64, error) {
	k := ps.keys[p]
	before, err := ps.view(ctx, p, collection)
	if err != nil {
		return view{}, nil, err
	}
	for {
		asked, err := ranges(before)
		if err != nil {
			return view{}, nil, err
		}
		args := []any{collection}
		for _, s := range asked {
			index := "inherit"
			if s.in == layout.ByOwn {
				index = "own"
			}
			low, high := s.bounds()
			args = append(args, index, low, high)
		}
		v, reply, err := ps.ask(ctx, countScript, p, collection, []string{k.Inherit(collection), k.Own(collection)}, args)
		if err != nil {
			return view{}, nil, err
		}
		if v.raw != before.raw {
			before = v
			continue
		}
		if layout.NewSize(v.documents, reply.Int(countInherit), reply.Int(countOwn)) != v.size {
			return view{}, nil, ps.lostIndex(p, collection)
		}
		counts := make([]int64, len(asked))
		for i := range counts {
			counts[i] = reply.List(countCounts).Int(i)
		}
		return v, counts, nil
	}
}
