package client

import (
	"cmp"
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
	Subject     string // from wire.Prefix.Write, Config or Drop
	Body        []byte
	IfMatch     string // apply it only at this etag, or at any if it is *; no condition if empty
	ID          string // message id, by which the log drops duplicates; none if empty
	Traceparent string // W3C trace context, which the expiry event will carry; none if empty
}

// nats is the message for NATS. Its outcome goes to replyTo.
func (m Message) nats(replyTo string) *nats.Msg {
	msg := &nats.Msg{Subject: m.Subject, Data: m.Body, Header: nats.Header{wire.HeaderReplyTo: {replyTo}}}
	for name, value := range map[string]string{
		wire.HeaderIfMatch:    m.IfMatch,
		jetstream.MsgIDHeader: m.ID,
		wire.HeaderTrace:      m.Traceparent,
	} {
		if value != "" {
			msg.Header.Set(name, value)
		}
	}
	return msg
}

// Result is the result of a message.
type Result struct {
	Seq uint64 // the sequence of the message in the log
	// Duplicate means that the log already has a message with the same id, at the sequence
	// Seq. This one changes nothing and has no outcome.
	Duplicate bool
	Outcome   wire.Outcome
	Raw       json.RawMessage // the outcome as lapse sent it
}

// Write publishes a message, and waits until lapse has applied or rejected it. A rejection
// is no error: its status and reason are in the outcome. After an error the message may be
// in the log; if it has an ID, you may send it again.
func (c *Client) Write(ctx context.Context, m Message) (Result, error) {
	inbox := c.nc.NewInbox()
	within, cancel := c.within(ctx, m.Subject)
	defer cancel()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return Result{}, fmt.Errorf("subscribe to the outcome: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()

	ack, err := c.js.PublishMsg(within, m.nats(inbox))
	if err != nil {
		return Result{}, cmp.Or(denial(within), c.publishError(ctx, m.Subject, err))
	}
	result := Result{Seq: ack.Sequence, Duplicate: ack.Duplicate}
	if ack.Duplicate {
		return result, nil
	}
	reply, err := sub.NextMsgWithContext(within)
	switch {
	case denial(within) != nil:
		return result, fmt.Errorf("%w: the message is in the log (sequence %d): lapse will apply or reject it", denial(within), ack.Sequence)
	case ctx.Err() != nil:
		return result, fmt.Errorf("%w: the message is in the log (sequence %d): lapse will apply or reject it", ctx.Err(), ack.Sequence)
	case errors.Is(err, context.DeadlineExceeded):
		return result, c.noOutcome(ack.Sequence)
	case err != nil:
		return result, fmt.Errorf("wait for the outcome: %w: the message is in the log (sequence %d): lapse will apply or reject it", err, ack.Sequence)
	}
	return result, result.read(reply.Data)
}

// read decodes an outcome.
func (r *Result) read(data []byte) error {
	r.Raw = data
	if err := json.Unmarshal(data, &r.Outcome); err != nil {
		return fmt.Errorf("the outcome is not valid: %w", err)
	}
	return nil
}

func (c *Client) noOutcome(seq uint64) error {
	return unavailable("no outcome within %s: the message is durable (sequence %d in the log): lapse will apply or reject it as soon as it can", c.opts.Timeout, seq)
}

func (c *Client) noAcknowledgement() error {
	return unavailable("no acknowledgement within %s: the message may be in the log or not: if it has a message id, you can send it again, and it takes effect once", c.opts.Timeout)
}

func (c *Client) publishError(ctx context.Context, subject string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return c.absent(ctx, subject)
	case isTimeout(err):
		return c.noAcknowledgement()
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("the message is larger than the server's maximum payload of %d bytes: a document may have 8 KiB less than that", c.nc.MaxPayload())
	case c.isLost():
		return c.lost()
	default:
		return fmt.Errorf("publish %s: %w", subject, err)
	}
}
