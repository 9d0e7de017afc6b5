package sink

import (
	"context"
	_ "embed" // the script
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed headers.lua
var headersSource string

var headersScript = layout.NewHeadScript(layout.After + headersSource)

// Positions in the reply of headers.lua.
const (
	_ = iota // the head
	headersScore
	headersID
	headersLeft
	headersText
)

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
	err = ps.each(func(p int) error {
		for at := (place{}); ; {
			found, left, err := ps.outsideNext(ctx, p, collection, &at, least, most)
			sum.Add(found)
			if err != nil || !left {
				return err
			}
			if time.Now().After(until) {
				cut.Store(true)
				return nil
			}
		}
	})
	return sum.Load(), cut.Load(), err
}

// outsideNext counts among the next documents of a shard, and moves the place behind them. left reports
// that there are more.
func (ps *shards) outsideNext(ctx context.Context, p int, collection string, at *place, least, most int32) (n int64, left bool, err error) {
	args := []any{collection, at.Score, at.ID, layout.LifeHeaderLen, scriptExamined, listBytes}
	v, reply, err := ps.ask(ctx, headersScript, p, collection, []string{ps.keys[p].Own(collection)}, args)
	if err != nil {
		return 0, false, err
	}
	for text := reply.Str(headersText); len(text) >= layout.LifeHeaderLen; text = text[layout.LifeHeaderLen:] {
		h, err := layout.ParseHeader(text[:layout.LifeHeaderLen])
		if err != nil {
			return 0, false, fmt.Errorf("a document of %s: %w: %w", collection, ErrForeign, err)
		}
		if !v.expired(h) && !h.Clock().Keeps(least, most) {
			n++
		}
	}
	if score, ok := reply.Score(headersScore); ok && reply.Str(headersID) != "" {
		*at = newPlace(score, reply.Str(headersID))
	}
	return n, reply.Int(headersLeft) == 1, nil
}
