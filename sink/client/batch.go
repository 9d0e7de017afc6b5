package client

import (
	"context"

	"github.com/seed18712806/lapse/sink/wire"
)

// Batch writes many documents fast: it does not wait for one before it sends the next. The
// writes reach the log in the order of the calls. At most 1,000 writes and 32 MiB are in
// flight; then a call waits. Its methods are those of [Collection], but for their results.
//
// Each method returns an error if the write is not valid ([ErrInvalid]), and then has sent
// nothing; or if the batch cannot go on, because nobody has answered for as long as
// Options.Timeout, or because the server denies a write. Then each write in flight ends with
// an error: those that are [ErrUnknownOutcome] may have taken effect.
//
// Where the log takes JetStream's fast batches (nats-server 2.14 or newer), and the user may
// look at the log, writes without a [MessageID] go in such batches, one for each shard.
type Batch[T any] struct {
	o       *Collection[T]
	p       *pipe
	ackOnly bool
	trace   string
	done    func(id string, w Written, err error)
	first   error // of a write, if there is no done; read after the end of the pipe
}

// Batch begins a batch. done is called once for each write that was sent, one call at a time
// and in no particular order. It must not use the batch. If done is nil, Close returns the
// first error of a write.
//
// With [AckOnly] a write ends as soon as the log has it. [Traceparent] counts for each write
// without its own. The other options belong to a write, and are an [ErrInvalid] here.
//
// Close the batch at the end.
func (o *Collection[T]) Batch(
	ctx context.Context, done func(id string, w Written, err error), options ...Option,
) (*Batch[T], error) {
	s, err := settle(options)
	if err == nil && (s.document() || s.ifMatch != "" || s.messageID != "") {
		err = invalid("a batch has no TTL, ExpiresAt, NotAfter, KeepClock, ClockFrom, Target, ID, IfMatch, IfExists or " +
			"MessageID: give the option to each write")
	}
	if err != nil {
		return nil, o.wrap("", err)
	}
	b := &Batch[T]{o: o, ackOnly: s.ackOnly, trace: s.traceparent, done: done}
	if done == nil {
		b.done = func(_ string, _ Written, err error) {
			if b.first == nil {
				b.first = err
			}
		}
	}
	b.p, err = newPipe(ctx, o.c.l, pipeOptions{Fast: true, AckOnly: s.ackOnly})
	return b, o.wrap("", err)
}

// Upsert creates or replaces a document.
func (b *Batch[T]) Upsert(ctx context.Context, id string, document T, options ...Option) error {
	return b.send(ctx, wire.Upsert, id, document, options)
}

// Create creates a document.
func (b *Batch[T]) Create(ctx context.Context, id string, document T, options ...Option) error {
	return b.send(ctx, wire.Create, id, document, options)
}

// Replace replaces a document.
func (b *Batch[T]) Replace(ctx context.Context, id string, document T, options ...Option) error {
	return b.send(ctx, wire.Replace, id, document, options)
}

// Patch changes members of a document.
func (b *Batch[T]) Patch(ctx context.Context, id string, patch any, options ...Option) error {
	return b.send(ctx, wire.Patch, id, patch, options)
}

// Touch renews a document.
func (b *Batch[T]) Touch(ctx context.Context, id string, options ...Option) error {
	return b.send(ctx, wire.Touch, id, nil, options)
}

// Delete removes a document.
func (b *Batch[T]) Delete(ctx context.Context, id string, options ...Option) error {
	return b.send(ctx, wire.Delete, id, nil, options)
}

// Close waits for the end of every write, and ends the batch. If ctx is done before that, the
// writes in flight end with an [ErrUnknownOutcome].
func (b *Batch[T]) Close(ctx context.Context) error {
	err := b.p.Close(ctx)
	if err == nil {
		return b.first // wrapped already
	}
	return b.o.wrap("", err)
}

func (b *Batch[T]) send(ctx context.Context, op wire.Op, id string, document any, options []Option) error {
	s, err := settle(options)
	if err == nil && s.ackOnly && !b.ackOnly {
		err = invalid("AckOnly belongs to the batch: give it to Collection.Batch")
	}
	if s.traceparent == "" {
		s.traceparent = b.trace
	}
	if err != nil {
		return b.o.wrap(id, err)
	}
	m, err := b.o.message(op, id, document, s)
	if err != nil {
		return b.o.wrap(id, err)
	}
	err = b.p.Send(ctx, m.nats(), func(a answer, err error) {
		w, err := newWritten(newResult(a, err))
		b.done(id, w, b.o.wrap(id, err))
	})
	return b.o.wrap(id, err)
}
