package events

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// maxPending is how many messages may be on their way to the stream, over all
// partitions; what is more waits.
const maxPending = 4096

// Publisher stores messages in the stream of events. It is safe for concurrent use.
type Publisher struct {
	js       jetstream.JetStream
	prefix   wire.Prefix
	stream   string
	replicas int
}

// NewPublisher makes a Publisher to a stream of events that has so many replicas.
// A publication fails if it is not acknowledged within timeout.
func NewPublisher(nc *nats.Conn, prefix wire.Prefix, replicas int, timeout time.Duration) (*Publisher, error) {
	js, err := jetstream.New(nc,
		jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncTimeout(timeout))
	if err != nil {
		return nil, fmt.Errorf("publisher of events: %w", err)
	}
	return &Publisher{js: js, prefix: prefix, stream: prefix.EventsStream(), replicas: replicas}, nil
}

// Publish stores messages in their order behind a fence, and returns when all are
// stored. If there is another fence by then, it is [ErrFenced]. After
// an error some may be stored, and others may yet come to be; but on no subject one
// that comes after one that is not: [Publisher.Unsaid] relies on it. So a message
// waits for the one before it on its subject.
func (p *Publisher) Publish(ctx context.Context, fence Fence, messages []Message) error {
	first := 0 // of those on their way
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	underway := make(map[string]bool)
	for i, m := range messages {
		if underway[m.msg.Subject] {
			if err := stored(ctx, futures[first:], messages[first:]); err != nil {
				return err
			}
			first = i
			clear(underway)
		}
		fence.guard(m.msg)
		f, err := p.js.PublishMsgAsync(m.msg, jetstream.WithStallWait(5*time.Second))
		if err != nil {
			return fmt.Errorf("publish to %s: %w", m.msg.Subject, err)
		}
		futures = append(futures, f)
		underway[m.msg.Subject] = true
	}
	return stored(ctx, futures[first:], messages[first:])
}

// stored waits until messages are stored.
func stored(ctx context.Context, futures []jetstream.PubAckFuture, messages []Message) error {
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("publish to %s: %w", messages[i].msg.Subject, refused(err))
		case <-ctx.Done():
			return fmt.Errorf("publish to %s: %w", messages[i].msg.Subject, context.Cause(ctx))
		}
	}
	return nil
}
