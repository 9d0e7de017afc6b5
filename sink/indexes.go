package sink

import (
	"cmp"
	"context"
	_ "embed" // the script
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed indexes.lua
var indexesSource string

var indexesScript = layout.NewHeadScript(indexesSource)

// Positions in the reply of indexes.lua.
const (
	_ = iota // the head
	indexesMaking
	indexesFirst // the first index; the rest follow
)

// Positions in what indexes.lua returns of an index.
const (
	indexLeft = iota // its size after the last commit
	indexSize
	indexCounted
)

// ranges are parts of the index of a pointer.
type ranges struct {
	pointer string
	parts   []entries.Range
}

// indexState is how an index is, in one shard or in all.
type indexState struct {
	ranges
	there     bool // it is configured, in all shards
	making    bool
	size      int64 // entries
	counted   int64 // those in the ranges
	made      int64 // documents whose entries are made
	documents int64
}

// slotOf is the slot of the index of a pointer; ok is false if there is none.
func slotOf(c layout.Config, pointer string) (slot int, ok bool) {
	i := slices.IndexFunc(c.Indexes, func(x layout.PropertyIndex) bool { return x.Pointer == pointer })
	if i < 0 {
		return 0, false
	}
	return c.Indexes[i].Slot, true
}

// indexes counts entries in ranges of indexes, in all shards. first is a view of the first shard.
func (ps *shards) indexes(ctx context.Context, collection string, first view, asked []ranges) ([]indexState, error) {
	by := make([][]indexState, len(ps.keys))
	err := ps.each(func(p int) (err error) {
		by[p], err = ps.indexesIn(ctx, p, collection, first.config, asked)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := by[0]
	for _, states := range by[1:] {
		for i, s := range states {
			a := &all[i]
			a.there, a.making = a.there && s.there, a.making || s.making
			a.size, a.counted, a.made, a.documents = a.size+s.size, a.counted+s.counted, a.made+s.made, a.documents+s.documents
		}
	}
	return all, nil
}

// indexesIn is indexes in one shard. It begins with a configuration that may not be that of the shard.
func (ps *shards) indexesIn(ctx context.Context, p int, collection string, config layout.Config,
	asked []ranges) ([]indexState, error) {
	k := ps.keys[p]
	for {
		var keys []string
		args := []any{collection, layout.MakingPrefix + collection}
		for _, r := range asked {
			slot, ok := slotOf(config, r.pointer)
			if !ok {
				continue
			}
			keys = append(keys, k.By(slot, collection))
			args = append(args, layout.EntriesField(slot, collection), len(r.parts))
			for _, part := range r.parts {
				args = append(args, "["+part.From, "("+part.To)
			}
		}
		v, reply, err := ps.ask(ctx, indexesScript, p, collection, keys, args)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(v.config.Indexes, config.Indexes) {
			config = v.config
			continue
		}
		making, err := layout.DecodeMaking(reply.Str(indexesMaking))
		if err != nil {
			return nil, err
		}
		states, n := make([]indexState, len(asked)), indexesFirst
		for i, r := range asked {
			slot, ok := slotOf(config, r.pointer)
			s := indexState{ranges: r, there: ok, documents: v.documents}
			if ok {
				found := reply.List(n)
				n++
				s.size, s.counted, s.making = found.Int(indexSize), found.Int(indexCounted), slices.Contains(making.Slots, slot)
				if found.Int(indexLeft) != s.size {
					return nil, ps.lostEntries(p, collection, r.pointer)
				}
				if s.made = v.documents; s.making {
					s.made = min(making.Made, v.documents)
				}
			}
			states[i] = s
		}
		return states, nil
	}
}

func (ps *shards) lostEntries(p int, collection, pointer string) error {
	return fmt.Errorf("%w: %s has lost entries of the index %s of collection %s",
		ErrUnavailable, ps.name(p), wire.Quote(pointer), collection)
}

// ready returns those of some indexes that can serve a query, the one with the fewest entries in its ranges first. If
// there are none, making says which one is being made.
func (q *querier) ready(ctx context.Context, conditions []entries.Condition) (ready []indexState, making, err error) {
	var asked []ranges
	for _, c := range conditions {
		asked = append(asked, ranges{c.Pointer, c.Ranges()})
	}
	states, err := q.indexes(ctx, q.collection, q.first, asked)
	if err != nil {
		return nil, nil, err
	}
	for _, s := range states {
		switch {
		case s.there && !s.making:
			ready = append(ready, s)
		case making != nil:
		case !s.there:
			making = errReconfigured // it went after the first view, or has not reached a shard yet
		default:
			making = indexMade(fmt.Sprintf("the index %s of collection %s is being made: "+
				"%d of %d documents are done, try again later", wire.Quote(s.pointer), q.collection, s.made, s.documents))
		}
	}
	slices.SortStableFunc(ready, func(a, b indexState) int { return cmp.Compare(a.counted, b.counted) })
	return ready, making, nil
}

// indexed are those of some conditions whose pointers have an index.
func (q *querier) indexed(conditions []entries.Condition) (indexed []entries.Condition) {
	for _, c := range conditions {
		if _, ok := slotOf(q.first.config, c.Pointer); ok {
			indexed = append(indexed, c)
		}
	}
	return indexed
}

// declare is the command that declares an index beside those that the collection has.
func (q *querier) declare(pointer string) string {
	const plain = "/_-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	command := "lapse config " + q.collection
	for _, p := range append(q.first.config.Pointers(), pointer) {
		if strings.Trim(p, plain) != "" {
			p = "'" + strings.ReplaceAll(p, "'", `'\''`) + "'"
		}
		command += " --index " + p
	}
	return command
}
