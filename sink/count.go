package sink

import (
	"context"
	_ "embed" // the script
	"strconv"

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
// It counts in the index and reads no document.
func (r *Reader) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.CountReply{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return wire.CountReply{}, err
	}
	counts := make([]wire.CountReply, len(ps.keys))
	err = ps.each(func(p int) error {
		v, n, err := ps.counts(ctx, p, collection, func(v view) ([]scoreRange, error) {
			cuts := v.cuts()
			return []scoreRange{{layout.ByInherit, ttlrules.NoCut, cuts.Inherit}, {layout.ByOwn, ttlrules.NoCut, cuts.Own}}, nil
		})
		if err != nil {
			return err
		}
		expired := n[0] + n[1]
		counts[p] = wire.CountReply{Live: v.documents - expired, Expired: expired}
		return nil
	})
	if err != nil {
		return wire.CountReply{}, err
	}
	var sum wire.CountReply
	for _, c := range counts {
		sum.Live += c.Live
		sum.Expired += c.Expired
	}
	return sum, nil
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
func (ps *shards) counts(ctx context.Context, p int, collection string, ranges func(view) ([]scoreRange, error)) (view, []int64, error) {
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
