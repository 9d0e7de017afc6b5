package processor

import (
	"context"
	"errors"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// BeginAnew gives up what a person accepts to lose, of what Run refuses to go on without, while no process applies the
// shard: the shard begins anew from the log, or goes on without events, or messages of the log, that were
// lost. The next Run goes on from there. Where it then removes documents from Redis, a person must have saved Redis.
//
// It returns what it has done, and the refusal that is left, which says what gives it up; nil if none is. It gives up
// nothing else, and creates no stream. It may be interrupted at any point, and be called again.
func (p *Processor) BeginAnew(ctx context.Context, accepted Accepted) (done []string, left *Refusal, err error) {
	if p.running.Swap(true) {
		return nil, nil, errors.New("the processor runs already")
	}
	defer p.running.Store(false)
	p.made, p.asIs = true, true
	l, stopWatching := streams.WatchLink(p.nc)
	defer stopWatching()
	err = p.wire(ctx, p.session, l, nil)
	if r := streams.AsRefusal(err); r != nil {
		return nil, r, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer p.session.close()
	return p.session.owner.BeginAnew(ctx, accepted)
}
