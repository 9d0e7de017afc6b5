package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// While a cluster elects a leader of the log, or lapse starts, nobody listens on its subjects. Then the message
// is sent again, within the timeout: it is not stored. After some tries the client asks whether that can be so.
const (
	absentTries = 2
	absentAgain = 250 * time.Millisecond
)

// ackLate is how long One waits for an acknowledgement after the outcome: a reconnect in
// between may have lost it.
const ackLate = 100 * time.Millisecond

// One publishes one message, and waits for its outcome, or only for the acknowledgement.
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
func (a *answer) await(ctx, within context.Context, l *connection, msg *nats.Msg, answers <-chan *nats.Msg, ackOnly bool) (absent bool, err error) {
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
