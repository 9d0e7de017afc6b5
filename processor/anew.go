package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// BeginAnew gives up what a person accepts to lose, of what Run refuses to go on without, while no process applies the
// shard: the shard begins anew from the log, or goes on without events, or messages of the log, that were
// lost. The next Run goes on from there. Where it then removes documents from Redis, a person must have saved Redis.
//
// It returns what it has done, and the refusals that are left, each of which says what gives it up. It gives up
// nothing else, and creates no stream. It may be interrupted at any point, and be called again.
func (p *Processor) BeginAnew(ctx context.Context, accepted Accepted) (done []string, left []*Refusal, err error) {
	if p.running.Swap(true) {
		return nil, nil, errors.New("the processor runs already")
	}
	defer p.running.Store(false)
	p.made, p.asIs = true, true
	l, stopWatching := streams.WatchLink(p.nc)
	defer stopWatching()
	err = p.wire(ctx, p.session, l, nil)
	if r := streams.AsRefusal(err); r != nil {
		return nil, []*Refusal{r}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer p.session.close()
	for i, part := range p.session.partitions {
		did, refusal, err := part.BeginAnew(ctx, accepted)
		for _, text := range did {
			done = append(done, fmt.Sprintf("partition %d: %s", p.session.statuses.Number(i), text))
		}
		if refusal != nil {
			left = append(left, refusal)
		}
		if err != nil {
			return done, left, err
		}
	}
	return done, left, nil
}
