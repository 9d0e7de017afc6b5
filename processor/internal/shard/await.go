package shard

import (
	"context"
	"errors"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// errFollowing: the session has ended while a shard waited for the first region.
var errFollowing = errors.New("the wait for the first region has ended")

// awaitAgain is how often an owner that waits verifies that it still is the owner.
const awaitAgain = time.Second

// await waits until the mirror of the stream of events has outputs, in their order, or a checkpoint says that
// they were published. The first region publishes them before it commits: so what is committed here never
// passes an output that the first region may still have to publish, and a promotion can.
func (a *Announcer) await(ctx context.Context, outputs []fold.Output) error {
	m := a.parts.Mirror
	for len(outputs) > 0 {
		found := a.parts.Tail.Changed()
		c, news := m.Published()
		if c != nil && c.Seq >= a.checkpoint.Seq && c.Watermark >= a.checkpoint.Watermark {
			a.checkpoint = *c
		}
		for len(outputs) > 0 && len(a.missing(outputs[:1])) == 0 {
			outputs = outputs[1:]
		}
		if len(outputs) == 0 {
			return nil
		}
		verify := time.NewTimer(awaitAgain)
		select {
		case <-found:
		case <-news:
		case <-verify.C:
			if err := a.owner.Verify(ctx); err != nil {
				return err
			}
		case <-m.Ended().Done():
			return a.failed(errFollowing)
		}
		verify.Stop()
	}
	return nil
}
