package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/ttlrules"
)

//go:embed due.lua
var dueSource string

var dueScript = redis.NewScript(dueSource)

// Positions in the reply of due.lua.
const (
	dueStatus      = iota
	dueTime        // the server's clock
	dueCollections // the first collection; the rest follow

	dueWhich = 1 // instead of the time: the collection that lost something, from 1
)

// Statuses in the reply of due.lua, besides 1.
const (
	dueFenced = 0
	dueLost   = -2
)

// Positions in what due.lua returns of a collection.
const (
	dueNextInherit = iota
	dueNextOwn
	dueIDs
	dueValues
	dueLeft
)

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

// NoScore is the next score of an index that is empty.
const NoScore = math.MaxInt64

// Due finds documents that are at or under their cuts, in a shard that is at
// version (else ErrFenced). It stops after limit documents, and after that many bytes, but
// returns at least one document. Without whole, it returns no bodies.
func (p *Shard) Due(ctx context.Context, version string, cuts []Cut, limit, bytes int, whole bool) ([]Due, error) {
	found, err := p.due(ctx, version, cuts, limit, bytes, whole)
	if err != nil {
		return nil, fmt.Errorf("find the due documents of shard %d: %w", p.id, err)
	}
	return found, nil
}

func (p *Shard) due(ctx context.Context, version string, cuts []Cut, limit, bytes int, whole bool) ([]Due, error) {
	keys := make([]string, 1, 1+3*len(cuts))
	keys[0] = p.keys.State()
	args := []any{version, limit, bytes, whole, len(cuts)}
	for _, c := range cuts {
		keys = append(keys, p.keys.Docs(c.Collection), p.keys.Inherit(c.Collection), p.keys.Own(c.Collection))
		args = append(args, layout.SizePrefix+c.Collection)
	}
	for _, c := range cuts {
		below, inherit := "-inf", c.Cuts.Inherit
		if c.Band > 0 {
			begin := int64(c.Band) * ttlrules.BandWidth
			if below = strconv.FormatInt(begin, 10); inherit != ttlrules.NoCut {
				inherit += begin
			}
		}
		args = append(args, below, formatCut(inherit), formatCut(c.Cuts.Own), c.PassInherit, c.PassOwn)
	}
	sent := time.Since(begun)
	r, err := p.scripts.Run(ctx, dueScript, keys, args...)
	if err != nil {
		return nil, err
	}
	switch r.Int(dueStatus) {
	case dueFenced:
		return nil, ErrFenced
	case dueLost:
		return nil, fmt.Errorf("%w: %s", ErrDamaged, lost(cuts[r.Int(dueWhich)-1].Collection))
	}
	p.clock.learn(r.List(dueTime), sent)
	out := make([]Due, len(cuts))
	for i := range cuts {
		if out[i], err = decodeDue(cuts[i], r.List(dueCollections+i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decodeDue(c Cut, r layout.Reply) (Due, error) {
	ids, values := r.List(dueIDs), r.List(dueValues)
	d := Due{IDs: make([]string, len(ids)), NextInherit: NoScore, NextOwn: NoScore, Left: r.Int(dueLeft)}
	if s, ok := r.Score(dueNextInherit); ok && c.IsIn(s) {
		d.NextInherit = s % ttlrules.BandWidth
	}
	if s, ok := r.Score(dueNextOwn); ok && s != layout.NeverScore {
		d.NextOwn = s
	}
	for i := range ids {
		d.IDs[i] = ids.Str(i)
	}
	var err error
	d.Documents, err = documents(c.Collection, ids, values)
	return d, err
}

// formatCut writes a cut as due.lua takes it; "" if there is none.
func formatCut(cut int64) string {
	if cut == ttlrules.NoCut {
		return ""
	}
	return strconv.FormatInt(cut, 10)
}
