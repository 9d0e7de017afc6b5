package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/seed18712806/lapse/sink/wire"
)

// Publisher stores messages in the stream of events. It is safe for concurrent use.
type Publisher struct {
	js     jetstream.JetStream
	acks   *acks
	prefix wire.Prefix
	stream string
	open   *semaphore.Weighted // atomic batches

	// What the stream is and allows, as of the last refreshLimits.
	replicated atomic.Bool // it has several replicas
	takesFast  atomic.Bool
	largest    atomic.Int64 // messages of an atomic batch; 1 if it takes no batches
	maxSize    atomic.Int64 // of a message, in bytes; 0 or less: no limit
}

// NewPublisher makes a Publisher for the stream of events, which has this configuration.
func NewPublisher(nc *nats.Conn, prefix wire.Prefix, config jetstream.StreamConfig) (*Publisher, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	acks, err := newAcks(nc, prefix.EventsStream())
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	p := &Publisher{js: js, acks: acks, prefix: prefix, stream: prefix.EventsStream(), open: semaphore.NewWeighted(openBatches)}
	p.setLimits(config)
	return p, nil
}

// Close ends the Publisher, which must not be in use any more.
func (p *Publisher) Close() { _ = p.acks.sub.Unsubscribe() }

// Publish publishes messages with a fence, those of one document in their order, and returns
// when all are stored. It returns [ErrFenced] if there is a newer fence. It waits until ctx is
// done, because no answer comes after the connection is lost; for a stream with replicas, 3
// seconds at most for each answer.
//
// After an error the stream may have some of the messages, and may store others later. But it
// stores no message without those before it of its document, because each message either waits
// for the one before it or is in one batch with it. [Publisher.Unpublished] relies on that.
//
// A message that is larger than the server or the stream allows is made smaller: see fit.
func (p *Publisher) Publish(ctx context.Context, fence Fence, messages []Message) error {
	if p.replicated.Load() {
		return p.inAtomicBatches(ctx, fence, messages)
	}
	err := p.onOneReplica(ctx, fence, messages)
	if codeOf(err) == codeInProcess { // somebody has given the stream replicas
		err = errors.Join(err, p.refreshLimits(ctx))
	}
	return err
}

func (p *Publisher) onOneReplica(ctx context.Context, fence Fence, messages []Message) error {
	switch most := repeats(messages); {
	case most <= 1:
		return p.wave(ctx, fence, messages)
	case p.takesFast.Load():
		return p.inFastBatches(ctx, fence, messages)
	case most > fewRepeats && p.largest.Load() > 1:
		return p.inAtomicBatches(ctx, fence, messages)
	default:
		return p.inWaves(ctx, fence, messages)
	}
}

// repeats is the greatest number of messages of one document.
func repeats(messages []Message) (most int) {
	per := make(map[string]int, len(messages))
	for _, m := range messages {
		per[m.document]++
		most = max(most, per[m.document])
	}
	return most
}

// inWaves publishes the first message of each document, waits until they are stored,
// then publishes the second of each, and so on.
func (p *Publisher) inWaves(ctx context.Context, fence Fence, messages []Message) error {
	var waves [][]Message
	next := make(map[string]int, len(messages))
	for _, m := range messages {
		i := next[m.document]
		next[m.document] = i + 1
		if i == len(waves) {
			waves = append(waves, nil)
		}
		waves[i] = append(waves[i], m)
	}
	for _, wave := range waves {
		if err := p.wave(ctx, fence, wave); err != nil {
			return err
		}
	}
	return nil
}

// wave publishes messages of distinct documents without waiting in between, and returns
// when all are stored.
func (p *Publisher) wave(ctx context.Context, fence Fence, messages []Message) error {
	for _, m := range messages {
		leaveBatch(m.msg)
		fence.guard(m.msg)
	}
	if err := p.fit(ctx, messages); err != nil {
		return err
	}
	for some := range slices.Chunk(messages, maxPending) {
		for len(some) > 0 {
			large, err := p.acks.each(ctx, some)
			if err == nil {
				err = p.shrink(ctx, large)
			}
			if err != nil {
				return err
			}
			some = large
		}
	}
	return nil
}
