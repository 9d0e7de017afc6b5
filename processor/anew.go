package processor

import (
	"context"
	"errors"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// BeginAnew carries out a person's decision while no process applies the shard: it gives up what the refusal
// with the token ([Decision]) says is missing. The refused partitions begin anew from the log, or go on
// without events, or messages of the log, that were lost; so do those that are refused for the same kind of
// reason. The next Run goes on from there. What Redis held is kept until that has rebuilt it.
//
// It returns what it has done, and the refusals that are left: if the token belongs to none, these are all
// of the shard, and nothing was changed. It creates no stream. It may be interrupted at any point, and be
// called again with the same token.
func (p *Processor) BeginAnew(ctx context.Context, token string) (done []string, refused []error, err error) {
	if p.running.Swap(true) {
		return nil, nil, errors.New("the processor runs already")
	}
	defer p.running.Store(false)
	p.made, p.asIs = true, true
	l, stopWatching := streams.WatchLink(p.nc)
	defer stopWatching()
	err = p.wire(ctx, p.session, l, nil)
	if IsRefusal(err) {
		return nil, []error{err}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer p.session.close()
	return shard.BeginAnew(ctx, []*shard.Owner{p.session.owner}, token)
}
