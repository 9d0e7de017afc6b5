package sink

import (
	"context"
	_ "embed" // the scripts
	"math"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

var (
	//go:embed walk.lua
	walkSource string

	walkScript = layout.NewHeadScript(layout.After + walkSource)
)

// Positions in the reply of walk.lua.
const (
	_ = iota // the head
	walkInherit
	walkOwn
	walkIndex
	walkScore
	walkID
	walkLeft
	walkExamined
	walkDocuments
)

// Values of left in the reply of walk.lua, besides 1.
const (
	walkEnded = 0
	walkFull  = 2
)

// walk fills the page with what comes next in the indexes of a shard. ended reports that nothing does.
func (l *lister) walk(ctx context.Context, pos *listPosition) (full, ended bool, err error) {
	room, one := math.MaxInt32, len(l.documents) == 0
	if l.opts.MaxBytes > 0 {
		room = l.opts.MaxBytes - l.bytes
	}
	v, reply, err := l.read(ctx, pos, l.opts.Limit-len(l.documents), room, one)
	if err != nil {
		return false, false, err
	}
	for found := reply.List(walkDocuments); len(found) > 1; found = found[2:] {
		if !found.Has(1) {
			return false, false, l.lostDocuments(pos.Shard, l.collection)
		}
		d, ok, err := v.document(found.Str(0), found.Str(1))
		if err != nil {
			return false, false, err
		}
		l.loaded += len(found.Str(1))
		if ok {
			l.documents, l.bytes = append(l.documents, d), l.bytes+len(d.Body)+len(d.ID)
		}
	}
	l.examined += int(reply.Int(walkExamined))
	pos.Index, pos.At = layout.Index(reply.Int(walkIndex)), place{}
	if score, ok := reply.Score(walkScore); ok && reply.Str(walkID) != "" {
		pos.At = newPlace(score, reply.Str(walkID))
	}
	left := reply.Int(walkLeft)
	return left == walkFull, left == walkEnded, nil
}

// read reads so many documents from a position on, as many as have room, but with one set one in any case.
func (l *lister) read(ctx context.Context, pos *listPosition, most, room int, one bool) (view, layout.Reply, error) {
	k := l.keys[pos.Shard]
	for {
		args := []any{l.collection, l.cuts.Inherit, l.cuts.Own, int(pos.Index), pos.At.Score, pos.At.ID, l.opts.Prefix,
			most, room, one, listBytes, scriptExamined}
		v, reply, err := l.ask(ctx, walkScript, pos.Shard, l.collection, []string{k.Inherit(l.collection), k.Own(l.collection)}, args)
		switch {
		case err != nil:
			return view{}, nil, err
		case l.lowered(v):
			continue
		case layout.NewSize(v.documents, reply.Int(walkInherit), reply.Int(walkOwn)) != v.size:
			return view{}, nil, l.lostIndex(pos.Shard, l.collection)
		}
		return v, reply, nil
	}
}

// lowered takes the cuts of a view, and reports whether they are lower than those that a script was
// given: what it passed over may be live. The shard has another history of the configuration
// than the one asked before, or an earlier clock.
func (l *lister) lowered(v view) bool {
	asked := l.cuts
	l.cuts = v.cuts()
	return l.cuts.Inherit < asked.Inherit || l.cuts.Own < asked.Own
}
