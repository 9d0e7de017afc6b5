package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Message is a write, a configuration or a drop.
type Message struct {
	Subject     string // of wire.Prefix
	Body        []byte
	IfMatch     string // an etag, *, or none
	ID          string // by which the log drops duplicates, or none
	Traceparent string
}

// Result says what became of a message.
type Result struct {
	Seq uint64 // its sequence in the log
	// Duplicate says that the log has a message with the same id already, with
	// the sequence Seq: this one changes nothing and has no outcome.
	Duplicate bool
	Outcome   wire.Outcome
	Raw       json.RawMessage // the outcome as it came
}

// Write publishes a message and waits until it is applied or rejected.
func (c *Client) Write(ctx context.Context, m Message) (Result, error) {
	inbox := nats.NewInbox() // under wire.ReplyPrefix
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return Result{}, fmt.Errorf("subscribe to the outcome: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	msg := &nats.Msg{Subject: m.Subject, Data: m.Body, Header: nats.Header{wire.HeaderReplyTo: {inbox}}}
	for name, value := range map[string]string{
		wire.HeaderIfMatch:    m.IfMatch,
		jetstream.MsgIDHeader: m.ID,
		wire.HeaderTrace:      m.Traceparent,
	} {
		if value != "" {
			msg.Header.Set(name, value)
		}
	}
	within, cancel := c.within(ctx)
	defer cancel()
	ack, err := c.js.PublishMsg(within, msg)
	if err != nil {
		return Result{}, c.publishError(ctx, m.Subject, err)
	}
	result := Result{Seq: ack.Sequence, Duplicate: ack.Duplicate}
	if ack.Duplicate {
		return result, nil
	}
	reply, err := sub.NextMsgWithContext(within)
	switch {
	case ctx.Err() != nil:
		return result, fmt.Errorf("%w: the message is in the log (sequence %d) and will be applied", ctx.Err(), ack.Sequence)
	case errors.Is(err, context.DeadlineExceeded):
		return result, fmt.Errorf("no outcome within %s: the message is durable (sequence %d in the log) and will be applied, or rejected, once lapse gets to it", c.opts.Timeout, ack.Sequence)
	case err != nil:
		return result, fmt.Errorf("wait for the outcome: %w (the message is in the log, sequence %d, and will be applied)", err, ack.Sequence)
	}
	result.Raw = reply.Data
	if err := json.Unmarshal(reply.Data, &result.Outcome); err != nil {
		return result, fmt.Errorf("the outcome is not understood: %w", err)
	}
	return result, nil
}

func (c *Client) publishError(ctx context.Context, subject string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return c.noLapse(subject)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("no acknowledgement within %s: whether the message is in the log is not known (sent again with the same --msg-id, it takes effect once)", c.opts.Timeout)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("the message is larger than the server's maximum payload of %d bytes: a document may have 8 KiB less than that", c.nc.MaxPayload())
	default:
		return fmt.Errorf("publish %s: %w", subject, err)
	}
}
