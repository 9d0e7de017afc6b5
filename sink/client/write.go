package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	Digest      string // what [Client.Digest] reads of the message that the log has; none if empty
	Traceparent string // W3C trace context, which the expiry event will carry; none if empty
	ExpiresAt   string // the document's absolute deadline, as in RFC 3339; none if empty
	NotAfter    string // the limit of the document's TTL, as in RFC 3339; none if empty
	Clock       string // wire.ClockKeep, or what wire.ParseClock reads; from the instant of the write if empty
	Target      string // of the message that the document's expiry delivers; none if empty
}

// nats is the message for NATS.
func (m Message) nats() *nats.Msg {
	msg := &nats.Msg{Subject: m.Subject, Data: m.Body}
	for name, value := range map[string]string{
		wire.HeaderIfMatch:    m.IfMatch,
		jetstream.MsgIDHeader: m.ID,
		wire.HeaderDigest:     m.Digest,
		wire.HeaderTrace:      m.Traceparent,
		wire.HeaderExpiresAt:  m.ExpiresAt,
		wire.HeaderNotAfter:   m.NotAfter,
		wire.HeaderClock:      m.Clock,
		wire.HeaderTarget:     m.Target,
	} {
		if value != "" {
			if msg.Header == nil {
				msg.Header = nats.Header{}
			}
			msg.Header.Set(name, value)
		}
	}
	return msg
}

// Result is the result of a message.
type Result struct {
	// Seq is the sequence of the message in the log; 0 if that is not known: the acknowledgement was lost, and the outcome
	// has no etag; or a pipeline did not wait for it.
	Seq uint64
	// Duplicate means that the log already has a message with the same id, at the sequence
	// Seq. This one changes nothing and has no outcome.
	Duplicate bool
	Stream    string // the log that has the message; only of a duplicate
	Outcome   wire.Outcome
	Raw       json.RawMessage // the outcome as lapse sent it
}

// Write publishes a message, and waits until lapse has applied or rejected it. A rejection
// is no error: its status and reason are in the outcome. After an [ErrUnknownOutcome] the
// message may be in the log; if it has an ID, you may send it again.
//
// If there is no connection, Write waits for one, up to the timeout. If the connection is
// lost while it waits for the outcome, the outcome may still come on the next connection.
func (c *Client) Write(ctx context.Context, m Message) (Result, error) {
	return c.write(ctx, m, false)
}

// Publish publishes a message, and waits only until the log has it: lapse will apply or reject
// it. The result has only Seq and Duplicate. The errors are those of [Client.Write].
func (c *Client) Publish(ctx context.Context, m Message) (Result, error) {
	return c.write(ctx, m, true)
}

// write is Write, or only waits for the acknowledgement.
func (c *Client) write(ctx context.Context, m Message, ackOnly bool) (Result, error) {
	a, err := publishOne(ctx, c.l, m.nats(), ackOnly)
	return newResult(a, err)
}

// noMessage is the code by which JetStream answers that a stream does not have a message.
const noMessage jetstream.ErrorCode = 10037

// Digest reads the digest of the message that the log had before a duplicate; empty if that has none.
// It is an [ErrNotFound] if the log no longer has the message.
func (c *Client) Digest(ctx context.Context, duplicate Result) (string, error) {
	// The leader answers: another server may not have the message yet.
	subject := "$JS.API.STREAM.MSG.GET." + duplicate.Stream
	msg, err := c.l.Request(ctx, subject, fmt.Appendf(nil, `{"seq":%d}`, duplicate.Seq))
	if err != nil {
		return "", err
	}
	var reply struct {
		Message struct {
			Header []byte `json:"hdrs"`
		}
		Error *jetstream.APIError
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return "", fmt.Errorf("the reply of JetStream is not valid: %w", err)
	}
	switch {
	case reply.Error != nil && reply.Error.ErrorCode == noMessage:
		return "", fmt.Errorf("message %d of %s: %w", duplicate.Seq, duplicate.Stream, ErrNotFound)
	case reply.Error != nil:
		return "", fmt.Errorf("read message %d of %s: %w", duplicate.Seq, duplicate.Stream, reply.Error)
	case len(reply.Message.Header) == 0:
		return "", nil
	}
	header, err := nats.DecodeHeadersMsg(reply.Message.Header)
	return header.Get(wire.HeaderDigest), err
}

// newResult reads an answer.
func newResult(a answer, err error) (Result, error) {
	r := Result{Seq: a.Seq, Duplicate: a.Duplicate, Stream: a.Stream, Raw: a.Outcome}
	if a.Outcome == nil || err != nil {
		return r, err
	}
	if err := json.Unmarshal(a.Outcome, &r.Outcome); err != nil {
		return r, fmt.Errorf("the outcome is not valid: %w", err)
	}
	if r.Seq == 0 { // the acknowledgement was lost
		r.Seq = uint64(r.Outcome.Etag)
	}
	return r, nil
}

// Pipeline publishes many messages, and does not wait for the outcome of one before it sends
// the next. The messages reach the log in the order of the calls of Send. At most 1,000
// messages and 32 MiB are in flight; then Send waits for an outcome.
//
// Where the log takes fast batches (nats-server 2.14 or newer), and the user may look at the
// log, the pipeline uses them for messages without an ID.
//
// If lapse acknowledges and answers nothing for as long as Options.Timeout, the pipeline
// fails. Then each message in flight ends with an error that says whether the log has it,
// and Send and Close return an error that is ErrUnavailable. If the server denies a message,
// the pipeline fails with an error that is ErrDenied.
type Pipeline struct {
	p    *pipe
	done func(tag int, r Result, err error)
}

// Pipeline starts a pipeline. It calls done once for each message, with the tag that Send got:
// one call at a time, in no particular order. done must not use the pipeline. Close the
// pipeline at the end.
func (c *Client) Pipeline(done func(tag int, r Result, err error)) (*Pipeline, error) {
	p, err := newPipe(context.Background(), c.l, pipeOptions{Fast: true})
	if err != nil {
		return nil, err
	}
	return &Pipeline{p, done}, nil
}

// Send waits for room and sends a message. Do not change the body before its done: the pipeline
// may send the message again. Send returns an error only if the pipeline cannot go
// on. An error of the message itself goes to done.
func (p *Pipeline) Send(ctx context.Context, m Message, tag int) error {
	return p.p.Send(ctx, m.nats(), func(a answer, err error) {
		r, err := newResult(a, err)
		p.done(tag, r, err)
	})
}

// Close waits for the outcome of every message, and ends the pipeline. If ctx is done before
// that, the messages in flight end with an error.
func (p *Pipeline) Close(ctx context.Context) error { return p.p.Close(ctx) }

// While a cluster elects a leader of the log, or lapse starts, nobody listens on its subjects. Then the message
// is sent again, within the timeout: it is not stored. After some tries the client asks whether that can be so.
const (
	absentTries = 2
	absentAgain = 250 * time.Millisecond
)

// ackLate is how long publishOne waits for an acknowledgement after the outcome: a reconnect in
// between may have lost it.
const ackLate = 100 * time.Millisecond

// publishOne publishes one message, and waits for its outcome, or only for the acknowledgement.
func publishOne(ctx context.Context, l *connection, msg *nats.Msg, ackOnly bool) (a answer, err error) {
	within, cancel := l.Within(ctx, msg.Subject)
	defer cancel()
	inbox := l.NC.NewInbox()
	answers := make(chan *nats.Msg, absentTries+3)
	sub, err := l.NC.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return a, fmt.Errorf("subscribe to the outcome: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if !ackOnly {
		if msg.Header == nil {
			msg.Header = nats.Header{}
		}
		msg.Header.Set(wire.HeaderReplyTo, inbox+".outcome")
	}
	msg.Reply = inbox + ".ack"
	for try := 0; ; try++ {
		if err := l.Send(within, msg); err != nil { // nothing was sent
			return a, cmp.Or(denial(within), ctx.Err(), l.PublishError(msg.Subject, err))
		}
		absent, err := a.await(ctx, within, l, msg, answers, ackOnly)
		if !absent {
			return a, err
		}
		if try == absentTries {
			if err := l.AbsentLog(ctx, msg.Subject); !errors.Is(err, errNoLapse) {
				return a, err
			}
		}
		select {
		case <-time.After(absentAgain):
			if end, ok := within.Deadline(); ok && time.Until(end) < l.Timeout/4 {
				return a, l.NoLapse(msg.Subject) // nobody could tell what becomes of a message without time for its answer
			}
		case <-within.Done():
			return a, cmp.Or(denial(within), ctx.Err(), l.NoLapse(msg.Subject))
		}
	}
}

// await waits for the answers to a message. absent means that nobody listens on its subject, so
// that it is not stored.
func (a *answer) await(
	ctx, within context.Context, l *connection, msg *nats.Msg, answers <-chan *nats.Msg, ackOnly bool,
) (absent bool, err error) {
	var known storedAt
	var late <-chan time.Time // not nil once the outcome is there
	for {
		select {
		case reply := <-answers:
			switch {
			case reply.Subject != msg.Reply:
				a.Outcome, late = reply.Data, time.After(ackLate)
			default:
				ack, err := readAck(reply)
				if err != nil {
					return errors.Is(err, jetstream.ErrNoStreamResponse), err
				}
				a.Seq, a.Duplicate, a.Stream = ack.Seq, ack.Duplicate, ack.Stream
				known = storedAt{Durable: true, Seq: ack.Seq}
			}
			if known.Durable && (ackOnly || a.Duplicate || a.Outcome != nil) {
				return false, nil
			}
		case <-late:
			return false, nil
		case <-within.Done():
			if a.Outcome != nil {
				return false, nil
			}
			denied := denial(within)
			switch {
			case denied != nil && !known.Durable:
				return false, denied
			case denied != nil || ctx.Err() != nil:
				return false, interruptedBy(cmp.Or(denied, ctx.Err()), known)
			}
			return false, l.NoOutcome(known)
		}
	}
}
