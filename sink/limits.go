package sink

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/ttlrules"
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
		l := lister{shards: ps, collection: collection, headers: true, cuts: ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: ttlrules.NoCut}}
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
				if !v.expired(h) && !h.Clock().Keeps(least, most) {
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
