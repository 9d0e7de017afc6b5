package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Target makes the document a message: when it expires, its bytes go to lapse.due.<target> exactly
// once, in place of an expiry event, for [Collection.OnDue]. A target is 1 to 8 tokens of A-Z a-z 0-9 _ -,
// joined by dots, and at most 128 bytes. A touch and a patch keep it; any other write ends it. Use it
// with Upsert, Create and Replace.
func Target(target string) Option {
	return func(s *settings) error {
		if err := wire.CheckTarget(target); err != nil {
			return invalid("%s", err)
		}
		s.target = target
		return nil
	}
}

// ID gives the document of [Collection.Schedule] an id of your own, in place of a random one.
func ID(id string) Option {
	return func(s *settings) error {
		if err := wire.CheckID(id); err != nil {
			return invalid("%s", err)
		}
		s.id = id
		return nil
	}
}

// Scheduled is a message that is to be delivered. Its Collection and ID name the document.
type Scheduled struct {
	Collection string
	ID         string
	Written    // its ExpiresAt is the time of the delivery
}

// Schedule creates a document that is delivered to a target at a time: see [Target]. The document has
// a random id, unless the option [ID] gives one; if there is a document with that id, the error is
// [ErrExists]. A time that is not after the instant of the write is an [ErrRejected].
//
// Before its time the message is a document like others: [Collection.Delete] cancels it,
// [Collection.Touch] with [ExpiresAt] moves it, [Collection.Get] reads it, and [Collection.List] with
// [ByDeadline] lists what is still to be delivered.
//
// TTL must be on in the collection, or its documents do not expire: once, before the first message,
// call [Collection.Configure] with a DefaultTTL, such as [Never]. Otherwise the result has a Warning,
// and the message waits until TTL is on. The permissions of NATS say who may write to a collection, and
// say nothing of targets. So by custom the messages to a target are in the collection that its first
// token names: those to mail.send in mail.
func (o *Collection[T]) Schedule(
	ctx context.Context, target string, at time.Time, document T, options ...Option,
) (Scheduled, error) {
	m := Scheduled{Collection: o.name}
	s, err := settle(append(options[:len(options):len(options)], Target(target), ExpiresAt(at)))
	if err == nil && s.id == "" && s.messageID != "" {
		err = invalid("with a random id each message is another one: give the option ID beside MessageID")
	}
	if err != nil {
		return m, o.wrap("", err)
	}
	m.ID, s.id = cmp.Or(s.id, rand.Text()), ""
	m.Written, err = o.settled(ctx, wire.Create, m.ID, document, s)
	return m, err
}

// Due is a message whose time has come. Collection, ID and Etag together name it: it is delivered once.
type Due[T any] struct {
	Collection  string
	ID          string
	Target      string
	Value       T    // the document; the zero value if Omitted
	Omitted     bool // the document was too large for the limits of the server when it expired
	Etag        wire.Etag
	DueAt       time.Time // the time for which it was scheduled
	Traceparent string    // of the write; "" if it had none
	Attempt     int       // how often the message has come, from 1
}

// OnDue calls handle with each message to a target that was a document of the collection. It works
// like [Collection.OnExpired], and needs a name of its own. The target may have the wildcards of NATS: *
// for one token, > for all that follow, as in mail.>.
//
// It passes over messages to the same target that come from other collections, because whoever may
// write to some collection may name any target there.
func (o *Collection[T]) OnDue(
	ctx context.Context, target, durable string, handle func(context.Context, Due[T]) error, options ...ConsumeOption,
) error {
	if err := wire.CheckTargetFilter(target); err != nil {
		return o.wrap("", invalid("%s", err))
	}
	// Several targets and collections have the same filter, and a consumer acknowledges what it passes over.
	purpose := map[string]string{"lapse-target": target, "lapse-collection": o.name}
	return o.consume(ctx, durable, []string{o.c.l.Prefix.StoredDue(target)}, purpose, options, func(ctx context.Context,
		n Notification, trace string, attempt int) error {
		m := n.Due
		if m.Collection != o.name || !wire.MatchTarget(target, m.Target) {
			return nil
		}
		value, err := valueOf[T](m.Document, m.Omitted)
		if err != nil {
			return err
		}
		return handle(ctx, Due[T]{
			Collection: m.Collection, ID: m.ID, Target: m.Target, Value: value, Omitted: m.Omitted, Etag: m.Etag,
			DueAt:       instant(&m.DueAt),
			Traceparent: trace, Attempt: attempt,
		})
	})
}
