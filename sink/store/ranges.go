package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed ranges.lua
var rangesSource string

var rangesScript = redis.NewScript(layout.After + rangesSource)

// Positions in the reply of ranges.lua.
const (
	rangesStatus = iota
	rangesTime   // the server's clock
	rangesFirst  // the first range; the rest follow

	rangesWhich = 1 // instead of the time: the collection that lost something, from 1
)

// Statuses in the reply of ranges.lua, besides 1.
const (
	rangesFenced = 0
	rangesLost   = -2
)

// Positions in what ranges.lua returns of a range.
const (
	rangeNext = iota
	rangeIDs
	rangeValues
	rangeLeft
)

// NoScore is the next score of an index that is empty.
const NoScore = math.MaxInt64

// Place is a place in an index, which is ordered by score and then by id.
type Place struct {
	Score int64
	ID    string
}

// AfterAll is the place after all documents with a score.
func AfterAll(score int64) Place { return Place{Score: score, ID: "\xff"} } // no id begins so: it is UTF-8

// Before reports whether a place comes before another one.
func (p Place) Before(other Place) bool {
	return p.Score < other.Score || p.Score == other.Score && p.ID < other.ID
}

// Cut names a collection and the cuts through its indexes; or a band of the index of those that inherit, and the cut
// through that alone.
type Cut struct {
	Collection           string
	Cuts                 ttlrules.Cuts
	Band                 int // scores count from where it begins
	PassInherit, PassOwn int // how many of the lowest documents of each index are passed over
}

// IsIn reports whether a score of the index of those that inherit is in the band.
func (c Cut) IsIn(score int64) bool { return ttlrules.ByInherit.Band(score) == c.Band }

// Due is the documents of one collection that are due.
type Due struct {
	IDs       []string
	Documents []Stored
	// The lowest scores that remain in the indexes; NoScore if none does.
	NextInherit, NextOwn int64
	Left                 int64 // number of documents that are due and were not returned
}

// Slice is a part of an index.
type Slice struct {
	Index ttlrules.Index
	After Place
	UpTo  int64 // score
}

// Found are documents in a slice, in the order of the index.
type Found struct {
	IDs       []string
	Documents []Stored
	Next      int64 // the lowest score that comes after them in the index and is a deadline; NoScore if none does
	More      bool  // others come after them in the index
}

// Due finds documents that are at or under their cuts, in a shard that is at
// version (else ErrFenced). It stops after limit documents, and after that many bytes, but
// returns at least one document. Without whole, it returns no bodies.
func (p *Shard) Due(ctx context.Context, version string, cuts []Cut, limit, bytes int, whole bool) ([]Due, error) {
	q := ranges{limit: limit, bytes: bytes, whole: whole}
	for i, c := range cuts {
		q.collections = append(q.collections, c.Collection)
		after, inherit := any(""), c.Cuts.Inherit
		if c.Band > 0 {
			begin := int64(c.Band) * ttlrules.BandWidth
			if after = begin; inherit != ttlrules.NoCut {
				inherit += begin
			}
		}
		q.add(i, ttlrules.ByInherit, after, "", c.PassInherit, inherit)
		q.add(i, ttlrules.ByOwn, "", "", c.PassOwn, c.Cuts.Own)
	}
	found, err := p.find(ctx, version, q)
	if err != nil {
		return nil, fmt.Errorf("find the due documents of shard %d: %w", p.id, err)
	}
	due := make([]Due, len(cuts))
	for i, c := range cuts {
		inherit, own := found[2*i], found[2*i+1]
		due[i] = Due{IDs: append(inherit.IDs, own.IDs...), Documents: append(inherit.Documents, own.Documents...),
			NextInherit: NoScore, NextOwn: own.Next, Left: inherit.left + own.left}
		if inherit.More && c.IsIn(inherit.next) {
			due[i].NextInherit = inherit.next % ttlrules.BandWidth
		}
	}
	return due, nil
}

// Between finds the documents in some slices of the indexes of a collection, in a shard that is at
// version (else ErrFenced). It stops after limit documents in all, and after that many bytes, but
// returns at least one document.
func (p *Shard) Between(ctx context.Context, version, collection string, slices []Slice, limit, bytes int) ([]Found,
	error) {
	q := ranges{collections: []string{collection}, limit: limit, bytes: bytes, whole: true}
	for _, s := range slices {
		q.add(0, s.Index, s.After.Score, s.After.ID, 0, s.UpTo)
	}
	found, err := p.find(ctx, version, q)
	if err != nil {
		return nil, fmt.Errorf("find documents of shard %d in the order of an index: %w", p.id, err)
	}
	all := make([]Found, len(found))
	for i, one := range found {
		all[i] = one.Found
	}
	return all, nil
}

// ranges are the arguments of ranges.lua.
type ranges struct {
	collections  []string
	limit, bytes int
	whole        bool
	args         []any // of the ranges
	of           []int // the collection of each range
}

// add adds a range of an index of the i-th collection: after a score, which may be "", and an id, up to a score, but
// for the first ones.
func (q *ranges) add(i int, index ttlrules.Index, score any, id string, pass int, upTo int64) {
	end := any(upTo)
	if upTo == ttlrules.NoCut {
		end = ""
	}
	q.of = append(q.of, i)
	q.args = append(q.args, i+1, int(index), score, id, pass, end)
}

// foundRange is what ranges.lua returns of a range.
type foundRange struct {
	Found
	next int64 // the score behind it, if there are more
	left int64 // number of documents of the range that were not returned
}

// find finds the documents in some ranges.
func (p *Shard) find(ctx context.Context, version string, q ranges) ([]foundRange, error) {
	keys := []string{p.keys.State()}
	args := []any{version, q.limit, q.bytes, q.whole, len(q.collections)}
	for _, c := range q.collections {
		keys, args = append(keys, p.collectionKeys(c)...), append(args, layout.SizePrefix+c)
	}
	sent := time.Since(begun)
	r, err := p.scripts.Run(ctx, rangesScript, keys, append(args, q.args...)...)
	if err != nil {
		return nil, err
	}
	switch r.Int(rangesStatus) {
	case rangesFenced:
		return nil, ErrFenced
	case rangesLost:
		return nil, fmt.Errorf("%w: %s", ErrDamaged, lost(q.collections[r.Int(rangesWhich)-1]))
	}
	p.clock.learn(r.List(rangesTime), sent)
	found := make([]foundRange, len(q.of))
	for i := range found {
		if found[i], err = decodeRange(q.collections[q.of[i]], r.List(rangesFirst+i)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// decodeRange reads what ranges.lua returns of a range of a collection.
func decodeRange(collection string, r layout.Reply) (f foundRange, err error) {
	ids, values := r.List(rangeIDs), r.List(rangeValues)
	f.IDs, f.Documents = make([]string, len(ids)), make([]Stored, len(ids))
	f.left, f.Next = r.Int(rangeLeft), NoScore
	if f.next, f.More = r.Score(rangeNext); f.More && f.next != layout.NeverScore {
		f.Next = f.next
	}
	for i := range ids {
		s, err := storedAt(values, i)
		if err != nil || s == nil {
			return f, fmt.Errorf("%w: %s/%s is in the index, but is not a document: %v",
				ErrDamaged, collection, ids.Str(i), err)
		}
		f.IDs[i], f.Documents[i] = ids.Str(i), *s
	}
	return f, nil
}
