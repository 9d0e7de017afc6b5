package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/credentials"
)

// classified is one or several of the errors of the package with a text of its own.
type classified struct {
	classes []error
	text    string
}

func (e *classified) Error() string   { return e.text }
func (e *classified) Is(t error) bool { return slices.Contains(e.classes, t) }

// unavailable makes an error that is ErrUnavailable.
func unavailable(format string, args ...any) error {
	return &classified{[]error{ErrUnavailable}, fmt.Sprintf(format, args...)}
}

// unknown makes an error of a message that lapse may apply or not.
func unknown(format string, args ...any) error {
	return &classified{[]error{ErrUnavailable, ErrUnknownOutcome}, fmt.Sprintf(format, args...)}
}

// interrupted is the error of a message whose exchange ended early, because of cause.
type interrupted struct {
	cause error
	text  string
}

func (e *interrupted) Error() string   { return e.cause.Error() + ": " + e.text }
func (e *interrupted) Is(t error) bool { return t == ErrUnknownOutcome }
func (e *interrupted) Unwrap() error   { return e.cause }

// Stored tells what is known of a message whose outcome has not come.
type storedAt struct {
	Durable bool   // the log has it
	Seq     uint64 // at this sequence; 0 if that is not known
}

func (s storedAt) String() string {
	switch {
	case s.Seq != 0:
		return fmt.Sprintf("the message is in the log (sequence %d): lapse will apply or reject it", s.Seq)
	case s.Durable:
		return "the message is in the log: lapse will apply or reject it"
	}
	return "the message may be in the log or not: if it has a message id, you can send it again, and it takes effect once"
}

// Interrupted is the error of a message whose exchange ended early, because of cause.
func interruptedBy(cause error, s storedAt) error { return &interrupted{cause, s.String()} }

// NoOutcome is the error of a message without an outcome in time.
func (l *connection) NoOutcome(s storedAt) error {
	switch {
	case s.Seq != 0:
		return unknown("no outcome within %s: the message is durable (sequence %d in the log): lapse will apply or reject it as soon as it can", l.Timeout, s.Seq)
	case s.Durable:
		return unknown("no outcome within %s: the message is durable: lapse will apply or reject it as soon as it can", l.Timeout)
	}
	return unknown("no acknowledgement within %s: %s", l.Timeout, s)
}

// Absent is the reason why nobody listens on a subject: there is no JetStream, or no lapse.
func (l *connection) Absent(ctx context.Context, subject string) error {
	// Without the permission to ask there is no answer, so it does not wait for long.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	within, cancel := l.Within(ctx, "$JS.API.INFO")
	defer cancel()
	if _, err := l.JS.AccountInfo(within); isWithoutJetStream(err) {
		return l.noJetStream()
	}
	return l.NoLapse(subject)
}

// errNoLapse is a class of the error of NoLapse: lapse may be starting, so an exchange waits for it.
var errNoLapse = errors.New("no lapse")

// NoLapse is the error when nothing listens on a subject.
func (l *connection) NoLapse(subject string) error {
	const text = `no lapse answers at %s: nothing listens on %s there. Is "lapse serve" running, with the prefix %q?`
	return &classified{[]error{ErrUnavailable, errNoLapse}, fmt.Sprintf(text, credentials.RedactURLs(l.Server), subject, l.Prefix)}
}

func (l *connection) noJetStream() error {
	return unavailable("the NATS server at %s has no JetStream, which lapse needs: enable it there, or connect to another server",
		credentials.RedactURLs(l.Server))
}

func isWithoutJetStream(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

// isTimeout reports whether an error means that no answer came in time.
func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// StreamError is the error of a stream or a bucket that cannot be read. The subject is the
// one that the client wanted to follow.
func (l *connection) StreamError(doing, subject string, err error) error {
	switch {
	case isWithoutJetStream(err), errors.Is(err, nats.ErrNoResponders):
		return l.noJetStream()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return l.NoLapse(subject)
	case isTimeout(err):
		return unavailable("%s: JetStream did not answer within %s", doing, l.Timeout)
	case l.IsLost():
		return l.Lost()
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// PublishError is the error of a message that was not sent.
func (l *connection) PublishError(subject string, err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("the message is larger than the server's maximum payload of %d bytes: a document may have 8 KiB less than that", l.NC.MaxPayload())
	case l.IsLost():
		return l.Lost()
	default:
		return fmt.Errorf("publish %s: %w", subject, err)
	}
}

// Lost is the error when there is no connection.
func (l *connection) Lost() error {
	return unavailable("the connection to the NATS server at %s is lost", credentials.RedactURLs(l.Server))
}
