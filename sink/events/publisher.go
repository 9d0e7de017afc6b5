package events

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Publisher stores messages in the stream of events. It is safe for concurrent use.
type Publisher struct {
	js       jetstream.JetStream
	acks     *acks
	prefix   wire.Prefix
	stream   string
	replicas int
}

// NewPublisher makes a Publisher to a stream of events that has so many replicas.
func NewPublisher(nc *nats.Conn, prefix wire.Prefix, replicas int) (*Publisher, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	acks, err := newAcks(nc)
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	return &Publisher{js: js, acks: acks, prefix: prefix, stream: prefix.EventsStream(), replicas: replicas}, nil
}

// Close ends the Publisher, which must not be in use any more.
func (p *Publisher) Close() { _ = p.acks.sub.Unsubscribe() }

// Publish stores messages in their order behind a fence, and returns when all are
// stored. If there is another fence by then, it is [ErrFenced]. It waits as long as ctx
// lets it: where the connection is lost, answers never come. After
// an error some may be stored, and others may yet come to be; but on no subject one
// that comes after one that is not: [Publisher.Unsaid] relies on it. So a message
// waits for the one before it on its subject.
func (p *Publisher) Publish(ctx context.Context, fence Fence, messages []Message) error {
	for _, m := range messages {
		fence.guard(m.msg)
	}
	for len(messages) > 0 {
		n := together(messages)
		if err := p.acks.publish(ctx, messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}

// together is how many of the messages go out without waiting.
func together(messages []Message) int {
	subjects := make(map[string]bool, len(messages))
	for i, m := range messages {
		if i == maxPending || subjects[m.msg.Subject] {
			return i
		}
		subjects[m.msg.Subject] = true
	}
	return len(messages)
}
