package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// connectedEvery is how often a message that waits for a connection looks for one.
const connectedEvery = 25 * time.Millisecond

// Send publishes a message. If there is no connection, it waits for one as long as ctx and
// the timeout allow: nothing is sent before.
func (l *connection) Send(ctx context.Context, msg *nats.Msg) error {
	err := l.NC.PublishMsg(msg)
	if err == nil || !l.IsLost() || errors.Is(err, nats.ErrMaxPayload) {
		return err
	}
	if waitErr := l.AwaitConnection(ctx); waitErr != nil {
		return err
	}
	return l.NC.PublishMsg(msg)
}

// AwaitConnection waits for a connection as long as ctx and the timeout allow.
func (l *connection) AwaitConnection(ctx context.Context) error {
	if !l.IsLost() {
		return nil
	}
	again := time.NewTicker(connectedEvery)
	defer again.Stop()
	end := time.NewTimer(l.Timeout)
	defer end.Stop()
	for l.IsLost() {
		if l.NC.IsClosed() {
			return l.Lost()
		}
		select {
		case <-again.C:
		case <-end.C:
			return l.Lost()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askAttempts is how often a question is put to JetStream.
const askAttempts = 3

// Ask puts a question to JetStream, which changes nothing, and puts it again if no answer comes. In
// a cluster a question or its answer can be lost while the servers learn of a new connection or of
// a new leader. All attempts together take no longer than the timeout.
func (l *connection) Ask(ctx context.Context, ask func(context.Context) error) (err error) {
	for range askAttempts {
		attempt, cancel := context.WithTimeout(ctx, l.Timeout/askAttempts)
		err = ask(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !isTimeout(err) {
			return err
		}
	}
	return err
}

// Request sends a request and returns the reply. A request changes nothing, so it may be
// repeated after any error.
func (l *connection) Request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	within, cancel := l.Within(ctx, subject)
	defer cancel()
	err := l.AwaitConnection(within)
	var msg *nats.Msg
	if err == nil {
		msg, err = l.requestThere(within, subject, body)
	}
	switch {
	case err == nil:
		return msg, nil
	case denial(within) != nil:
		return nil, denial(within)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrUnavailable):
		return nil, err
	case l.IsLost():
		return nil, l.Lost()
	case isTimeout(err):
		return nil, unavailable("no reply within %s: if lapse is only slow, use a longer timeout", l.Timeout)
	}
	return nil, fmt.Errorf("request %s: %w", subject, err)
}

// requestThere sends a request, and sends it again while nobody listens on its subject: lapse may be starting.
func (l *connection) requestThere(within context.Context, subject string, body []byte) (*nats.Msg, error) {
	for try := 0; ; try++ {
		msg, err := l.NC.RequestWithContext(within, subject, body)
		switch {
		case try > 0 && isTimeout(err):
			return nil, l.NoLapse(subject)
		case !errors.Is(err, nats.ErrNoResponders):
			return msg, err
		}
		if try == 0 {
			if err := l.Absent(within, subject); !errors.Is(err, errNoLapse) {
				return nil, err
			}
		}
		select {
		case <-time.After(connectedEvery):
		case <-within.Done():
			return nil, l.NoLapse(subject)
		}
	}
}
