package client

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// What the subjects begin with by which a client looks at a stream, has a consumer, and reads
// messages without one.
const (
	streamInfoAPI = "$JS.API.STREAM.INFO."
	consumerAPI   = "$JS.API.CONSUMER."
	directAPI     = "$JS.API.DIRECT.GET."
)

// Within limits the time of one exchange. The context also ends when the server denies one
// of the subjects, or one that begins with a subject that ends with a dot; Denial tells it.
func (l *connection) Within(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	permitted, stop := l.Permitted(ctx, subjects...)
	return permitted, func() { stop(); cancel() }
}

// Permitted is Within, without a limit.
func (l *connection) Permitted(ctx context.Context, subjects ...string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := l.denials.expect(cancel, func(subject string) bool {
		subject = l.Published(subject)
		return slices.ContainsFunc(subjects, func(s string) bool {
			return subject == s || strings.HasSuffix(s, ".") && strings.HasPrefix(subject, s)
		})
	})
	return ctx, func() { forget(); cancel(nil) }
}

// Published is the subject on which a client publishes what the server calls by a subject. With
// several shards, the mapping of a user's own account comes before the permissions.
func (l *connection) Published(subject string) string {
	rest, mapped := strings.CutPrefix(subject, string(l.Prefix)+".shard.")
	if _, rest, ok := strings.Cut(rest, "."); mapped && ok {
		return string(l.Prefix) + "." + rest
	}
	return subject
}

// denial is what the server has denied to the exchange of a context; nil if nothing.
func denial(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, ErrDenied) {
		return err
	}
	return nil
}

// Expect calls tell when the server denies a message to a subject that publishes reports, or
// any subscription, until forget is called.
func (l *connection) Expect(tell func(error), publishes func(subject string) bool) (forget func()) {
	return l.denials.expect(tell, publishes)
}
