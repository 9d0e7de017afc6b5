package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed18712806/lapse/sink/credentials"
)

// denials tells exchanges what the server does not permit them. The server sends no answer
// to a message that it denies, but a notice to the connection, some time later.
type denials struct {
	mu     sync.Mutex
	last   int
	tellTo map[int]exchange
}

// exchange is something that waits for the server.
type exchange struct {
	publishes func(subject string) bool // whether it does, to this subject
	tell      func(error)
}

// expect calls tell when the server denies a subject to which the exchange publishes, or any
// subscription, until forget is called: without its inbox no exchange gets an answer.
func (d *denials) expect(tell func(error), publishes func(subject string) bool) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	n := d.last
	if d.tellTo == nil {
		d.tellTo = make(map[int]exchange)
	}
	d.tellTo[n] = exchange{publishes, tell}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.tellTo, n)
	}
}

// handle handles an error of the connection. It reports whether an exchange waits for it.
func (d *denials) handle(err error) bool {
	denied := credentials.AsDenied(err)
	if denied == nil {
		return false
	}
	d.mu.Lock()
	exchanges := slices.Collect(maps.Values(d.tellTo))
	d.mu.Unlock()
	told := false
	for _, e := range exchanges {
		if denied.Subscribe || e.publishes(denied.Subject) {
			e.tell(deniedError(denied))
			told = true
		}
	}
	return told
}

func deniedError(d *credentials.Denied) error {
	text := d.Error()
	if d.Subscribe {
		text += ": give the prefix of the inboxes that it may use, such as _INBOX.orders"
	}
	return &classified{ErrDenied, text}
}

// within limits the time of one exchange. The context also ends when the server denies one
// of the subjects, or one that begins with a subject that ends with a dot; denial tells it.
func (c *Client) within(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	permitted, stop := c.permitted(ctx, subjects...)
	return permitted, func() { stop(); cancel() }
}

// permitted is within, without a limit.
func (c *Client) permitted(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := c.denials.expect(cancel, func(subject string) bool {
		return slices.ContainsFunc(subjects, func(s string) bool {
			return subject == s || strings.HasSuffix(s, ".") && strings.HasPrefix(subject, s)
		})
	})
	return ctx, func() { forget(); cancel(nil) }
}

// denial is what the server has denied to the exchange of a context; nil if nothing.
func denial(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrDenied) {
		return err
	}
	return nil
}

func refused(where string, err error) error {
	return &classified{ErrDenied, fmt.Sprintf("the NATS server at %s refuses these credentials (%s): use another user, or another file", where, err)}
}
