package sink

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// ForecastOptions ask for a forecast.
type ForecastOptions = wire.ForecastOptions

// Forecast counts the documents that will expire within a duration, in buckets of equal
// length, if nobody writes or configures anything until then except opts.Default and opts.MaxLife. It counts in
// the index and reads no document, unless opts has limits. Warnings are not counted: each comes its
// warnBefore earlier than one of these documents expires.
//
// It returns ErrInvalidRequest for a Default in a collection whose indexing mode is none.
func (r *Reader) Forecast(ctx context.Context, collection string, opts ForecastOptions) (wire.ForecastReply, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.ForecastReply{}, err
	}
	if err := opts.Check(); err != nil {
		return wire.ForecastReply{}, err
	}
	opts.Buckets = cmp.Or(opts.Buckets, wire.DefaultBuckets)
	opts.Within = cmp.Or(opts.Within, wire.DefaultWithin)
	ps, err := r.all(ctx)
	if err != nil {
		return wire.ForecastReply{}, err
	}
	// All shards are asked about the same instants: those of the first.
	first, err := ps.view(ctx, 0, collection)
	if err != nil {
		return wire.ForecastReply{}, err
	}
	f := forecast{now: first.now, buckets: opts.Buckets, within: opts.Within.Milliseconds(), change: opts.Default,
		life: opts.MaxLife}
	sums, into := make([][]int64, len(ps.keys)), make([][]int, len(ps.keys))
	err = ps.each(func(p int) (err error) {
		_, sums[p], err = ps.counts(ctx, p, collection, func(v view) (ranges []scoreRange, err error) {
			ranges, into[p], err = f.ranges(v.config, collection)
			return ranges, err
		})
		return err
	})
	if err != nil {
		return wire.ForecastReply{}, err
	}
	reply := f.reply(sums, into)
	if opts.Least != 0 || opts.Most != 0 {
		n, more, err := ps.outside(ctx, collection, opts.Least, opts.Most)
		if err != nil {
			return wire.ForecastReply{}, err
		}
		reply.Outside, reply.OutsideMore = &n, more
	}
	return reply, nil
}

// forecast is a forecast that is being made.
type forecast struct {
	now     int64 // where the first bucket begins
	buckets int
	within  int64             // milliseconds
	change  *ttlrules.Default // as in ForecastOptions
	life    *int32            // likewise
}

// changed reports whether the forecast is for another configuration.
func (f forecast) changed() bool { return f.change != nil || f.life != nil }

// lasting is the default that would count then for documents that were written once.
func (f forecast) lasting(c layout.Config) ttlrules.Default {
	d, life := c.Configured(), c.MaxLife
	if f.change != nil {
		d = *f.change
	}
	if f.life != nil {
		life = *f.life
	}
	return d.Within(life)
}

// bound is where the i-th bucket begins.
func (f forecast) bound(i int) int64 {
	n := int64(f.buckets)
	return f.now + f.within/n*int64(i) + f.within%n*int64(i)/n
}

// atOnce stands in place of a bucket for the documents that another default expires at once.
const atOnce = -1

// ranges are the ranges of the indexes that are counted, and the bucket of each. No range has documents that are
// expired already.
func (f forecast) ranges(c layout.Config, collection string) (ranges []scoreRange, into []int, err error) {
	add := func(bucket int, r scoreRange) { ranges, into = append(ranges, r), append(into, bucket) }
	now, with := f.now, func(h ttlrules.History) ttlrules.History { return h }
	if f.changed() {
		if c.NoIndex && f.change != nil && *f.change != ttlrules.Off {
			return nil, nil, invalid("collection %s has the indexingMode none, so its defaultTtl cannot be set: configure the "+
				"indexingMode consistent first", collection)
		}
		if len(c.History) > 0 {
			now = max(now, c.History[len(c.History)-1].Since) // this shard may be ahead of the first one
		}
		change := f.lasting(c)
		with = func(h ttlrules.History) ttlrules.History { return h.With(now, 0, change) }
		for band := range 1 + len(c.Bands) {
			add(atOnce, inBand(band, c.InheritCut(band, now), with(c.Band(band)).Cuts(now).Inherit))
		}
		add(atOnce, scoreRange{layout.ByOwn, c.History.Cuts(now).Own, with(c.History).Cuts(now).Own})
	}
	d := with(c.History).Current()
	if d == ttlrules.Off {
		return ranges, into, nil
	}
	own, ttl := with(c.History).Cuts(now).Own, int64(d)*1000
	for i := range f.buckets {
		add(i, scoreRange{layout.ByOwn, max(f.bound(i), own), f.bound(i + 1)})
	}
	for band := 0; band <= len(c.Bands) && d > 0; band++ {
		cut := with(c.Band(band)).Cuts(now).Inherit
		for i := range f.buckets {
			add(i, inBand(band, max(f.bound(i)-ttl, cut), f.bound(i+1)-ttl))
		}
	}
	return ranges, into, nil
}

// reply adds up the counts of the ranges, over all shards, in their buckets.
func (f forecast) reply(counted [][]int64, into [][]int) wire.ForecastReply {
	reply := wire.ForecastReply{Buckets: make([]wire.Bucket, f.buckets)}
	for i := range reply.Buckets {
		reply.Buckets[i] = wire.Bucket{From: wire.Time(f.bound(i)), Until: wire.Time(f.bound(i + 1))}
	}
	if f.changed() {
		reply.AtOnce = new(int64)
	}
	for shard, counts := range counted {
		for i, n := range counts {
			if bucket := into[shard][i]; bucket == atOnce {
				*reply.AtOnce += n
			} else {
				reply.Buckets[bucket].Count += n
			}
		}
	}
	return reply
}

// outsideFor is how long outside reads headers. A million documents of 300 bytes take Redis about two
// seconds of work; the read service answers within two.
const outsideFor = time.Second

// outside counts the live documents that do not keep to limits of the TTL in seconds, of which 0 is none: by
// their own TTL or absolute deadline. Those that inherit the TTL keep to them, as the default does.
//
// The index does not tell, so outside reads the header of each document that does not inherit, some at a
// time. It stops after a second; then more reports that there may be more of them.
func (ps *shards) outside(ctx context.Context, collection string, least, most int32) (n int64, more bool, err error) {
	until := time.Now().Add(outsideFor)
	var sum atomic.Int64
	var cut atomic.Bool
	seed := maphash.MakeSeed()
	err = ps.each(func(p int) error {
		counted := map[uint64]bool{} // by the hash of the id: there may be a million
		l := lister{shards: ps, collection: collection, headers: true, cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut,
			Own: ttlrules.NoCut}}
		for at := (listPosition{Shard: p, Index: layout.ByOwn}); ; {
			v, reply, err := l.read(ctx, &at, scriptExamined, math.MaxInt32, true)
			if err != nil {
				return err
			}
			for found := reply.List(walkDocuments); len(found) > 1; found = found[2:] {
				if !found.Has(1) {
					continue
				}
				h, err := layout.ParseHeader(found.Str(1))
				if err != nil {
					return fmt.Errorf("a document of %s: %w: %w", collection, ErrForeign, err)
				}
				id := maphash.String(seed, found.Str(0))
				if !v.expired(h) && !h.Clock().Keeps(least, most) && !counted[id] {
					counted[id] = true
					sum.Add(1)
				}
			}
			if at.advance(reply); reply.Int(walkLeft) == walkEnded {
				return nil
			}
			if time.Now().After(until) {
				cut.Store(true)
				return nil
			}
		}
	})
	return sum.Load(), cut.Load(), err
}
