package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/events"
)

// publish stores outputs in the stream of events, in their order, save those that
// have been said. An owner that has not looked at Redis for a while makes sure that it
// still is the owner, though what it says would be refused if it is not.
func (p *partition) publish(ctx context.Context, outputs []output) error {
	timeout := publishTimeout
	if p.streams.Replicas > 1 {
		timeout = publishReplicated // its leader may be lost, and with that the answer
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	messages, err := p.unsaid(ctx, outputs)
	if err != nil || len(messages) == 0 {
		return err
	}
	if p.fence == nil || p.fence.Stale(p.fenceFor) {
		// What a former owner has on its way may yet come to be stored: only behind a
		// fence does it help to look.
		if err := p.fenceOff(ctx); err != nil {
			return err
		}
		if messages, err = p.unsaid(ctx, outputs); err != nil {
			return err
		}
	}
	if paused(p.looked, p.pauseAfter) {
		if err := p.verify(ctx, nil); err != nil {
			return err
		}
	}
	if err := p.at(beforePublish); err != nil {
		return err
	}
	err = p.line.ask(ctx, func(ctx context.Context) error { return p.publisher.Publish(ctx, *p.fence, messages) })
	if errors.Is(err, events.ErrFenced) {
		return fmt.Errorf("%w: %w", sink.ErrFenced, err)
	} else if err != nil {
		return partitionError(p.id, err)
	}
	p.metrics.emitted.Add(float64(len(messages)))
	return p.at(afterPublish)
}

// fenceOff keeps out of the stream of events whatever a former owner has on its way.
// After it the partition has to be this process's still: then nobody else says
// anything from here on, unless this fence is not the last one any more, and with that
// nothing is stored.
func (p *partition) fenceOff(ctx context.Context) error {
	if err := p.at(beforeFence); err != nil {
		return err
	}
	var fence events.Fence
	err := p.line.ask(ctx, func(ctx context.Context) (err error) {
		fence, err = p.publisher.Fence(ctx, p.id)
		return err
	})
	if err != nil {
		return partitionError(p.id, err)
	}
	if err := p.at(afterFence); err != nil {
		return err
	}
	if err := p.verify(ctx, nil); err != nil {
		return err
	}
	p.fence = &fence
	return nil
}

// unsaid is what of the outputs is to be said, in their order: all that is new, and of
// what may have been said what a look at the stream does not find.
func (p *partition) unsaid(ctx context.Context, outputs []output) ([]events.Message, error) {
	var maybe []events.Message
	for _, o := range outputs {
		if p.said.of(o) == maybeSaid {
			maybe = append(maybe, o.message)
		}
	}
	if len(maybe) > 0 {
		err := p.line.ask(ctx, func(ctx context.Context) (err error) {
			maybe, err = p.publisher.Unsaid(ctx, maybe)
			return err
		})
		if err != nil {
			return nil, partitionError(p.id, err)
		}
	}
	messages := make([]events.Message, 0, len(outputs))
	for _, o := range outputs {
		switch p.said.of(o) {
		case isNew:
			messages = append(messages, o.message)
		case maybeSaid:
			if len(maybe) > 0 && maybe[0] == o.message {
				messages = append(messages, o.message)
				maybe = maybe[1:]
			}
		}
	}
	return messages, nil
}

// pauseOf is how long an owner may go without a look at Redis before it looks again,
// so as not to repeat what another has said: a part of the window in which the
// stream of events recognises that.
func pauseOf(window time.Duration) time.Duration { return min(pauseAtMost, window/4) }

// paused says whether so much time has passed that another process may have taken
// over. A machine that was suspended shows it by its wall clock alone.
func paused(since time.Time, after time.Duration) bool {
	return time.Since(since) > after || time.Now().Round(0).Sub(since.Round(0)) > after
}
