package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrConsumerLost: somebody has deleted the consumer or the stream of events while it was in
// use. With it the position in the events is lost: the next call begins a new consumer, for
// new events or from [Since].
var ErrConsumerLost = errors.New("the consumer is lost")

// ConsumeOption changes how events are consumed.
type ConsumeOption func(*workOptions) error

// Concurrency is how many handlers run at a time in this call (16).
func Concurrency(n int) ConsumeOption {
	return func(o *workOptions) error {
		if n < 1 {
			return invalid("concurrency %d is not valid: use a number of at least 1", n)
		}
		o.Concurrency = n
		return nil
	}
}

// Since is where a consumer begins that does not exist yet: with the events that the stream
// stored from then on. The zero time means all that the stream has, 7 days unless lapse's
// operator has set another time. Without Since, it begins with new events.
func Since(t time.Time) ConsumeOption {
	return func(o *workOptions) error { o.Since = &t; return nil }
}

// Backoff is after how long an event comes back whose handler has returned an error: first
// after the first attempt, then twice as long each time, but never longer than most (1 s, 1
// minute).
func Backoff(first, most time.Duration) ConsumeOption {
	return func(o *workOptions) error {
		if first <= 0 || most < first {
			return invalid("a backoff of %s to %s is not valid: use durations over 0, the shorter one first", first, most)
		}
		o.First, o.Most = first, most
		return nil
	}
}

// AckWait is after how long an event comes back whose process has died or has lost its
// connection (30 s; at least 100 ms). It is no limit for a handler: while one runs, the client
// renews the wait. All processes of a consumer need the same.
func AckWait(d time.Duration) ConsumeOption {
	return func(o *workOptions) error {
		if d < 100*time.Millisecond {
			return invalid("an AckWait of %s is not valid: use at least 100ms", d)
		}
		o.AckWait = d
		return nil
	}
}

// Grace is how long handlers may go on once the context is done (30 s). Then their own context
// is done too.
func Grace(d time.Duration) ConsumeOption {
	return func(o *workOptions) error { o.Grace = d; return nil }
}

// Discard wraps an error of a handler: the event does not come back.
func Discard(err error) error {
	if err == nil {
		return nil
	}
	return discarded{err}
}

type discarded struct{ error }

func (d discarded) Unwrap() error { return d.error }

// Expired is an expiry event. Collection, ID and Etag together name it: there is exactly one
// for each version of a document that expires.
type Expired[T any] struct {
	Collection string
	ID         string
	Value      T // the last version; the zero value if Omitted
	// Omitted means that the collection has [Config.NoEventBody], or that the document was too large for
	// the limits of the server when it
	// expired: the event has all but Value.
	Omitted     bool
	Etag        wire.Etag
	Ts          time.Time     // when the version was written
	TTL         time.Duration // the one that counted; 0 if an absolute deadline did
	ExpiredAt   time.Time     // the instant from which it was expired
	Traceparent string        // of the write; "" if it had none
	Attempt     int           // how often the event has come, from 1
}

// OnExpired calls handle with each expiry event of the collection, until ctx is done: then it
// waits for the handlers that run, and returns nil.
//
// The durable name stands for a consumer in the stream of events. Calls with the same name,
// in this process or in others, share the events: each goes to one of them. A consumer with
// another name gets all events too. It goes on where it was when all its processes were away,
// as long as the stream keeps the events. The name is 1 to 128 of A-Z a-z 0-9 _ -, and
// belongs to one collection: for another one it is an [ErrInvalid].
//
// If handle returns nil, the event is done. After an error it comes back later (see
// [Backoff]), also with a new version of the program, until handle returns nil or [Discard].
// An event whose document is not a T counts as an error. Up to 10,000 events of a consumer
// may wait to come back; then no new ones come.
//
// Several handlers run at a time (see [Concurrency]), so events may be handled in another
// order than that of the stream. An event can come again although handle has returned nil,
// if the process dies or the connection is lost at that moment: let a repetition do no harm.
//
// When the connection is lost, OnExpired goes on after the reconnect. It returns
// [ErrConsumerLost] if somebody deletes the consumer, [ErrDenied] if the user may not use it,
// and [ErrUnavailable] at the beginning, or if the client is closed. Options.Notice gets the
// errors of handlers. If somebody deletes the consumer while no process uses it, the next call
// begins a new one, and what the stream stored in between is handled only with [Since].
func (o *Collection[T]) OnExpired(
	ctx context.Context, durable string, handle func(context.Context, Expired[T]) error, options ...ConsumeOption,
) error {
	return o.consume(ctx, durable, o.c.subjects(wire.KindExpired, o.name, ""), nil, options, func(ctx context.Context,
		n Notification, trace string, attempt int) error {
		event := n.Expired
		value, err := valueOf[T](event.Document, event.Omitted)
		if err != nil {
			return err
		}
		return handle(ctx, Expired[T]{
			Collection: event.Collection, ID: event.ID, Value: value, Omitted: event.Omitted, Etag: event.Etag,
			Ts:  instant(&event.Ts),
			TTL: time.Duration(event.TTL) * time.Second, ExpiredAt: instant(&event.ExpiredAt), Traceparent: trace,
			Attempt: attempt,
		})
	})
}

// valueOf is the document of a message; the zero value if it was omitted.
func valueOf[T any](document []byte, omitted bool) (value T, err error) {
	if omitted {
		return value, nil
	}
	return decode[T](document)
}

// Expiring is a warning: the version will expire. Collection, ID, Etag, Before and ExpiresAt together
// name it. There is exactly one for each time in Config.WarnBefore that is still to come when the version
// is written or the collection is configured, unless the version is gone by then.
type Expiring[T any] struct {
	Collection  string
	ID          string
	Value       T    // the version; the zero value if Omitted
	Omitted     bool // as in [Expired]
	Etag        wire.Etag
	Ts          time.Time     // when the version was written
	TTL         time.Duration // the one that counts; 0 if an absolute deadline does
	ExpiresAt   time.Time     // the deadline
	Before      time.Duration // how long before the deadline the warning is published
	Traceparent string        // of the write; "" if it had none
	Attempt     int           // how often the warning has come, from 1
}

// OnExpiring calls handle with each warning of the collection: see Config.WarnBefore. It works like
// [Collection.OnExpired], and needs a name of its own. A warning that comes late, because its consumer
// was away, may come after the document has expired: see ExpiresAt.
func (o *Collection[T]) OnExpiring(
	ctx context.Context, durable string, handle func(context.Context, Expiring[T]) error, options ...ConsumeOption,
) error {
	return o.consume(ctx, durable, o.c.subjects(wire.KindExpiring, o.name, ""), nil, options, func(ctx context.Context,
		n Notification, trace string, attempt int) error {
		warning := n.Expiring
		value, err := valueOf[T](warning.Document, warning.Omitted)
		if err != nil {
			return err
		}
		return handle(ctx, Expiring[T]{
			Collection: warning.Collection, ID: warning.ID, Value: value, Omitted: warning.Omitted, Etag: warning.Etag,
			Ts:  instant(&warning.Ts),
			TTL: time.Duration(warning.TTL) * time.Second, ExpiresAt: instant(&warning.ExpiresAt),
			Before:      time.Duration(warning.Before) * time.Second,
			Traceparent: trace, Attempt: attempt,
		})
	})
}

// OnRejected calls handle with each rejection of a write to the collection, of a configuration
// or of a drop. It works like [Collection.OnExpired], and needs a name of its own.
func (o *Collection[T]) OnRejected(
	ctx context.Context, durable string, handle func(context.Context, Rejection) error, options ...ConsumeOption,
) error {
	return o.consume(ctx, durable, o.c.subjects(wire.KindRejected, o.name, ""), nil, options, func(ctx context.Context,
		n Notification, _ string, _ int) error {
		return handle(ctx, *n.Rejected)
	})
}

// consume hands the messages of some subjects to handle, by a durable consumer.
func (o *Collection[T]) consume(
	ctx context.Context, durable string, subjects []string, purpose map[string]string, options []ConsumeOption,
	handle func(_ context.Context, _ Notification, trace string, attempt int) error,
) error {
	w := workOptions{
		Durable: durable, Subjects: subjects, For: purpose, Concurrency: 16, AckWait: 30 * time.Second,
		First: time.Second, Most: time.Minute, Grace: 30 * time.Second,
		Handle: func(ctx context.Context, msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			raw, _, err := rawMessage(msg)
			if err != nil {
				return err
			}
			n, err := o.c.notification(raw)
			if err != nil {
				return err
			}
			return handle(ctx, n, msg.Headers().Get(wire.HeaderTrace), int(meta.NumDelivered))
		},
		Discarded: func(err error) bool { return errors.As(err, new(discarded)) },
	}
	if wire.CheckCollection(durable) != nil {
		return o.wrap("", invalid("durable name %s is not valid: use 1 to 128 of A-Z a-z 0-9 _ -", wire.Quote(durable)))
	}
	for _, set := range options {
		if err := set(&w); err != nil {
			return o.wrap("", err)
		}
	}
	err := runWork(ctx, o.c.l, w)
	if other := (*OtherConsumerError)(nil); errors.As(err, &other) {
		err = invalid("%s", other)
	}
	return o.wrap("", err)
}
