package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	mirror     bool        // it takes no messages
	takesFast  atomic.Bool
	largest    atomic.Int64 // messages of an atomic batch
	maxSize    atomic.Int64 // of a message, in bytes; 0 or less: no limit

	mu     sync.Mutex
	last   Place
	losses int // how often an answer showed that the stream has lost its end
}

// NewPublisher makes a Publisher for the stream of events, which has this configuration.
func NewPublisher(nc *nats.Conn, prefix wire.Prefix, config jetstream.StreamConfig) (*Publisher, error) {
	acks, err := newAcks(nc, prefix.EventsStream())
	var js jetstream.JetStream
	if err == nil {
		js, err = jetstream.New(nc)
	}
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	p := &Publisher{js: js, acks: acks, prefix: prefix, stream: prefix.EventsStream(),
		open: semaphore.NewWeighted(openBatches)}
	p.mirror = config.Mirror != nil
	p.setLimits(config)
	return p, nil
}

// Close ends the Publisher, which must not be in use any more.
func (p *Publisher) Close() { _ = p.acks.sub.Unsubscribe() }

// Last is the last place at which this Publisher has stored something; zero if it has not. What is
// published after the call is stored behind it.
func (p *Publisher) Last() Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Losses is how often an answer showed that the stream has lost its end. A fence of before is refused: its
// shard may have lost outputs.
func (p *Publisher) Losses() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.losses + p.acks.lost()
}

// NoteLoss notes that the stream has lost something. Nothing more is published with a fence of before: what follows an
// output that was lost would hide that it is missing.
func (p *Publisher) NoteLoss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losses++
}

// follows notes that the stream has stored messages from a sequence on, up to a place. It returns ErrLost
// if that is not behind what was stored when they were sent: then the stream has lost its end.
func (p *Publisher) follows(before, from uint64, at Place) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if from > before {
		if at.Seq > p.last.Seq {
			p.last = at
		}
		return nil
	}
	p.losses++
	p.last = at
	p.acks.setHigh(at.Seq) // this loss is known
	return fmt.Errorf("%w: it stores at sequence %d, and had %d", ErrLost, from, before)
}

// Publish publishes messages with a fence, in their order, and returns where the last of them is
// when all are stored. It returns [ErrFenced] if there is a newer fence. It waits until ctx is
// done, because no answer comes after the connection is lost; for a stream with replicas, 3
// seconds at most for each answer.
//
// After an error the stream may have the first of the messages, and may store others later. But it
// stores no message without those before it.
//
// A message that is larger than the server or the stream allows is made smaller: see fit.
func (p *Publisher) Publish(ctx context.Context, fence Fence, messages []Message) (Place, error) {
	if len(messages) == 0 {
		return Place{}, nil
	}
	if fence.losses != p.Losses() {
		return Place{}, fmt.Errorf("%w since the fence of this shard was stored", ErrLost)
	}
	if fence.keepsOut() && !p.js.Conn().IsConnected() || p.reconnectedSince(fence) {
		return Place{}, errReconnected
	}
	publish := p.inFastBatches
	if p.replicated.Load() || !p.takesFast.Load() {
		publish = p.inAtomicBatches
	}
	seq, err := publish(ctx, fence, messages)
	if codeOf(err) == codeInProcess && !p.replicated.Load() { // somebody has given the stream replicas
		err = errors.Join(err, p.refreshLimits(ctx))
	}
	if err == nil && fence.losses != p.Losses() { // an answer has shown it meanwhile
		err = fmt.Errorf("%w since these were sent", ErrLost)
	}
	if err == nil && p.reconnectedSince(fence) { // what was stored last may hide that something before it is lost
		err = errReconnected
	}
	if err != nil {
		return Place{}, err
	}
	return Place{seq, messages[len(messages)-1].Key}, nil
}

// alone publishes one message that is in no batch.
func (p *Publisher) alone(ctx context.Context, fence Fence, m Message) (seq uint64, err error) {
	leaveBatch(m.msg)
	fence.guard(m.msg)
	one := []Message{m}
	if err := p.fit(ctx, one); err != nil {
		return 0, err
	}
	for {
		before := p.Last().Seq
		seq, err = p.acks.single(ctx, m)
		if err == nil {
			err = p.follows(before, seq, Place{seq, m.Key})
		}
		if codeOf(err) != jetstream.JSErrCodeStreamMessageExceedsMaximum && !errors.Is(err, nats.ErrMaxPayload) {
			return seq, err
		}
		if err := p.shrink(ctx, one); err != nil {
			return 0, err
		}
	}
}
