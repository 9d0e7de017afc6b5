package sink

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Count counts a collection's documents by its index: those that are live, and
// those that are expired but not reaped yet. It reads no document.
func (r *Reader) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.CountReply{}, err
	}
	counts := make([]wire.CountReply, len(r.parts))
	err := r.each(func(p int) error {
		h, n, err := r.counts(ctx, p, collection, func(h head) []scoreRange {
			cuts := h.config.History.Cuts(h.now)
			return []scoreRange{{byInherit, ttlrules.NoCut, cuts.Inherit}, {byOwn, ttlrules.NoCut, cuts.Own}}
		})
		if err != nil {
			return err
		}
		expired := n[0] + n[1]
		counts[p] = wire.CountReply{Live: h.docs - expired, Expired: expired}
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

// Forecast counts the documents that will expire within a time, in buckets of
// equal length, if nothing is written and nothing configured until then. It
// counts in the index and reads no document. Zero values are wire.DefaultBuckets
// and wire.DefaultWithin.
func (r *Reader) Forecast(ctx context.Context, collection string, buckets int, within time.Duration) (wire.ForecastReply, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return wire.ForecastReply{}, err
	}
	if buckets == 0 {
		buckets = wire.DefaultBuckets
	}
	if within == 0 {
		within = wire.DefaultWithin
	}
	if buckets < 1 || buckets > wire.MaxBuckets {
		return wire.ForecastReply{}, fmt.Errorf("%w: %d buckets: allowed are 1 to %d", ErrInvalidRequest, buckets, wire.MaxBuckets)
	}
	const longest = ttlrules.MaxSeconds * time.Second
	if within < time.Duration(buckets)*time.Millisecond || within > longest {
		return wire.ForecastReply{}, fmt.Errorf("%w: within %s: allowed is from a millisecond per bucket to %s", ErrInvalidRequest, within, longest)
	}
	// All partitions are asked about the same instants: those of the first.
	first, err := r.readHead(ctx, 0, collection)
	if err != nil {
		return wire.ForecastReply{}, err
	}
	reply := wire.ForecastReply{Buckets: make([]wire.Bucket, buckets)}
	bound := func(i int) int64 {
		whole, rest := within.Milliseconds()/int64(buckets), within.Milliseconds()%int64(buckets)
		return first.now + whole*int64(i) + rest*int64(i)/int64(buckets)
	}
	for i := range reply.Buckets {
		reply.Buckets[i] = wire.Bucket{From: wire.Time(bound(i)), Until: wire.Time(bound(i + 1))}
	}
	sums := make([][]int64, len(r.parts))
	err = r.each(func(p int) (err error) {
		_, sums[p], err = r.counts(ctx, p, collection, func(h head) []scoreRange {
			return forecastRanges(h.config.History, first.now, buckets, bound)
		})
		return err
	})
	if err != nil {
		return wire.ForecastReply{}, err
	}
	for _, counts := range sums {
		for i, n := range counts {
			reply.Buckets[i%buckets].Count += n
		}
	}
	return reply, nil
}

// forecastRanges are the ranges of the indexes that make the buckets: one per
// bucket of each index that the current default lets expire. What is expired
// already, by an earlier default too, is in none of them.
func forecastRanges(history ttlrules.History, now int64, buckets int, bound func(int) int64) (ranges []scoreRange) {
	d := history.Current()
	if d == ttlrules.Off {
		return nil
	}
	cuts := history.Cuts(now)
	for i := range buckets {
		ranges = append(ranges, scoreRange{byOwn, max(bound(i), cuts.Own), bound(i + 1)})
	}
	if d > 0 {
		ttl := int64(d) * 1000
		for i := range buckets {
			ranges = append(ranges, scoreRange{byInherit, max(bound(i)-ttl, cuts.Inherit), bound(i+1) - ttl})
		}
	}
	return ranges
}

// scoreRange is the members of an index above one score, up to another.
type scoreRange struct {
	in          index
	above, upTo int64
}

// counts counts ranges of the index, which follow from the head: so it takes two
// round trips, and begins anew if the configuration changes in between.
func (r *Reader) counts(ctx context.Context, p int, collection string, ranges func(head) []scoreRange) (head, []int64, error) {
	k := r.parts[p]
	before, err := r.readHead(ctx, p, collection)
	if err != nil {
		return head{}, nil, err
	}
	for {
		asked := ranges(before)
		args := []any{len(asked)}
		for _, s := range asked {
			key, low := 4, "-inf"
			if s.in == byOwn {
				key = 5
			}
			if s.above != ttlrules.NoCut {
				low = "(" + strconv.FormatInt(s.above, 10)
			}
			high := "-inf"
			if s.upTo != ttlrules.NoCut {
				high = strconv.FormatInt(s.upTo, 10)
			}
			args = append(args, key, low, high)
		}
		h, v, err := r.ask(ctx, countsScript, p, collection, []string{k.inherit(collection), k.own(collection)}, args...)
		if err != nil {
			return head{}, nil, err
		}
		if h.raw != before.raw {
			before = h
			continue
		}
		if h.config.Building && h.config.History.Current() != ttlrules.Off {
			return head{}, nil, fmt.Errorf("%w: the index of collection %s is being built", ErrUnavailable, collection)
		}
		if size := fmt.Sprintf("%d %d %d", h.docs, v.int(2), v.int(3)); size != h.size {
			return head{}, nil, fmt.Errorf("%w: partition %d has lost a part of the index of collection %s", ErrUnavailable, p, collection)
		}
		counts := make([]int64, len(asked))
		for i := range counts {
			counts[i] = v.list(1).int(i)
		}
		return h, counts, nil
	}
}
