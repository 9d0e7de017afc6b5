package processor

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/sink/events"
)

// publish stores outputs in the stream of events, in their order, save those that
// have been said. readAt is when the state was read from which they follow, zero if
// none was: an owner that has not looked for a while, or not at all, makes sure that
// it still is the owner.
func (p *partition) publish(ctx context.Context, outputs []output, readAt time.Time) error {
	var maybe, fresh []events.Message
	for _, o := range outputs {
		switch p.said.of(o) {
		case maybeSaid:
			maybe = append(maybe, o.message)
		case isNew:
			fresh = append(fresh, o.message)
		}
	}
	if len(maybe)+len(fresh) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if len(maybe) > 0 {
		var unsaid []events.Message
		err := p.line.ask(ctx, func(ctx context.Context) (err error) {
			unsaid, err = p.publisher.Unsaid(ctx, maybe)
			return err
		})
		if err != nil {
			return partitionError(p.id, err)
		}
		fresh = p.unsaidOnly(outputs, unsaid)
	}
	if paused(readAt, p.pauseAfter) {
		if err := p.store.Verify(ctx, p.version, nil); err != nil {
			return err
		}
	}
	if err := p.at(beforePublish); err != nil {
		return err
	}
	if err := p.publisher.Publish(ctx, fresh); err != nil {
		return partitionError(p.id, err)
	}
	p.metrics.emitted.Add(float64(len(fresh)))
	return p.at(afterPublish)
}

// unsaidOnly is what of the outputs is to be said, in their order: all that is new,
// and what the look-up found unsaid.
func (p *partition) unsaidOnly(outputs []output, unsaid []events.Message) []events.Message {
	messages := make([]events.Message, 0, len(outputs))
	next := 0
	for _, o := range outputs {
		switch p.said.of(o) {
		case isNew:
			messages = append(messages, o.message)
		case maybeSaid:
			if next < len(unsaid) && unsaid[next] == o.message {
				messages = append(messages, o.message)
				next++
			}
		}
	}
	return messages
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
