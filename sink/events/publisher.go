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
	return &Publisher{js: js, stream: prefix.EventsStream(), replicas: replicas}, nil
}

// Publish stores messages in their order, and returns when all are stored. After
// an error some may be stored, and others may yet come to be.
func (p *Publisher) Publish(ctx context.Context, messages []Message) error {
	futures := make([]jetstream.PubAckFuture, 0, len(messages))
	for _, m := range messages {
		f, err := p.js.PublishMsgAsync(m.msg, jetstream.WithStallWait(5*time.Second))
		if err != nil {
			return fmt.Errorf("publish to %s: %w", m.msg.Subject, err)
		}
		futures = append(futures, f)
	}
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("publish to %s: %w", messages[i].msg.Subject, err)
		case <-ctx.Done():
			return fmt.Errorf("publish to %s: %w", messages[i].msg.Subject, context.Cause(ctx))
		}
	}
	return nil
}
