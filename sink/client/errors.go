package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/redact"
)

// Errors for errors.Is.
var (
	// ErrUnavailable: no NATS server, no JetStream or no lapse answered, or not in time.
	ErrUnavailable = errors.New("unavailable")
	// ErrServerURL: Options.Server is not the URL of a NATS server.
	ErrServerURL = errors.New("not a URL of a NATS server")
	// ErrDenied: the server does not permit the user to do this, or refuses the user.
	ErrDenied = errors.New("not permitted")
	// ErrLogin: Options.Login is not valid, or one of its files is not.
	ErrLogin = errors.New("not valid credentials")
)

// classified is one of the errors above with a text of its own.
type classified struct {
	class error
	text  string
}

func (e *classified) Error() string   { return e.text }
func (e *classified) Is(t error) bool { return t == e.class }

func unavailable(format string, args ...any) error {
	return &classified{ErrUnavailable, fmt.Sprintf(format, args...)}
}

// ReadError is the answer of the read service that it cannot give the result.
type ReadError struct {
	Code int // wire.StatusNotFound and so on
	Text string
}

func (e *ReadError) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Text) }

// absent is the reason why nobody listens on a subject: there is no JetStream, or no lapse.
func (c *Client) absent(ctx context.Context, subject string) error {
	// Without the permission to ask there is no answer, so it does not wait for long.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	within, cancel := c.within(ctx, "$JS.API.INFO")
	defer cancel()
	if _, err := c.js.AccountInfo(within); isWithoutJetStream(err) {
		return c.noJetStream()
	}
	return c.noLapse(subject)
}

func (c *Client) noLapse(subject string) error {
	return unavailable(`no lapse answers at %s: nothing listens on %s there. Is "lapse serve" running, with the prefix %q?`,
		redact.URLs(c.opts.Server), subject, c.opts.Prefix)
}

func (c *Client) noJetStream() error {
	return unavailable("the NATS server at %s has no JetStream, which lapse needs: enable it there, or connect to another server",
		redact.URLs(c.opts.Server))
}

func isWithoutJetStream(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
}

// streamError is the error of a stream or a bucket that cannot be read. The subject is the
// one that the client wanted to follow.
func (c *Client) streamError(doing, subject string, err error) error {
	switch {
	case isWithoutJetStream(err), errors.Is(err, nats.ErrNoResponders):
		return c.noJetStream()
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return c.noLapse(subject)
	case isTimeout(err):
		return unavailable("%s: JetStream did not answer within %s", doing, c.opts.Timeout)
	case c.isLost():
		return c.lost()
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isLost reports whether the client has no connection at this moment.
func (c *Client) isLost() bool { return !c.nc.IsConnected() }

func (c *Client) lost() error {
	return unavailable("the connection to the NATS server at %s is lost", redact.URLs(c.opts.Server))
}
