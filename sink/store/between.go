package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed between.lua
var betweenSource string

var betweenScript = redis.NewScript(layout.After + betweenSource)

// Positions in the reply of between.lua.
const (
	betweenStatus = iota
	betweenTime   // the server's clock
	betweenSlices // the first slice; the rest follow
)

// Positions in what between.lua returns of a slice.
const (
	betweenNext = iota
	betweenIDs
	betweenValues
)

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

// Between finds the documents in some slices of the indexes of a collection, in a shard that is at
// version (else ErrFenced). It stops after limit documents in all, and after that many bytes, but
// returns at least one document.
func (p *Shard) Between(ctx context.Context, version, collection string, slices []Slice, limit, bytes int) ([]Found, error) {
	args := []any{version, layout.SizePrefix + collection, limit, bytes}
	for _, s := range slices {
		index := 1
		if s.Index == ttlrules.ByOwn {
			index = 2
		}
		args = append(args, index, s.After.Score, s.After.ID, s.UpTo)
	}
	sent := time.Since(begun)
	r, err := p.scripts.Run(ctx, betweenScript, append([]string{p.keys.State()}, p.collectionKeys(collection)...), args...)
	switch {
	case err != nil:
	case r.Int(betweenStatus) == dueFenced:
		err = ErrFenced
	case r.Int(betweenStatus) == dueLost:
		err = fmt.Errorf("%w: %s", ErrDamaged, lost(collection))
	}
	if err != nil {
		return nil, fmt.Errorf("find documents of shard %d in the order of an index: %w", p.id, err)
	}
	p.clock.learn(r.List(betweenTime), sent)
	found := make([]Found, len(slices))
	for i := range found {
		one := r.List(betweenSlices + i)
		ids, values := one.List(betweenIDs), one.List(betweenValues)
		if found[i].Documents, err = documents(collection, ids, values); err != nil {
			return nil, err
		}
		for j := range ids {
			found[i].IDs = append(found[i].IDs, ids.Str(j))
		}
		found[i].Next = NoScore
		score, ok := one.Score(betweenNext)
		if found[i].More = ok; ok && score != layout.NeverScore {
			found[i].Next = score
		}
	}
	return found, nil
}

// documents are the documents that an index names, with their values.
func documents(collection string, ids, values layout.Reply) ([]Stored, error) {
	all := make([]Stored, len(ids))
	for i := range ids {
		s, err := storedAt(values, i)
		if err != nil || s == nil {
			return nil, fmt.Errorf("%w: %s/%s is in the index, but is not a document: %v", ErrDamaged, collection, ids.Str(i), err)
		}
		all[i] = *s
	}
	return all, nil
}
