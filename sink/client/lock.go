package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrLockLost: the lock has ended, or could not be renewed in time, while the work went on.
var ErrLockLost = errors.New("the lock is lost")

// LockOptions say how long a lock lives without its owner. The zero value is fine.
type LockOptions struct {
	// TTL is how long the lock of a process that has died keeps others out: whole seconds, 10 s if 0.
	TTL time.Duration
	// Renew is how often the lock is renewed while the work goes on: a third of the TTL if 0.
	Renew time.Duration
}

// lockDocument is the document of a lock. Its owner is a random text: another one for each call of Lock.
type lockDocument struct {
	Owner string `json:"owner"`
}

// heldLock is a lock of this process.
type heldLock struct {
	locks *Collection[lockDocument]
	name  string
	owner string
	ttl   time.Duration
	etag  wire.Etag // of its document, as far as this process knows
	until time.Time // it is held until then at least, by the clock of this process
}

// Lock runs work while this process has a lock: a document of a collection whose TTL is on, such as one
// with a DefaultTTL of [Never]. If somebody has the lock, the error is [ErrExists], and work does not run.
// An [ErrUnknownOutcome] means that the lock may be taken until its TTL is over; work did not run either.
//
// The lock is renewed while work runs, and released when work returns. If it is lost, or cannot be renewed
// within its TTL, the context of work is done with the cause [ErrLockLost], and Lock returns that too.
// If the process dies, the lock is free after the TTL.
//
// token is the fencing token: the etag that the lock had when it was taken, greater than that of each owner
// before. A process that was stopped for a while may go on although another one has its lock, so send the
// token with what you change, and let the receiver refuse a smaller one than it has seen.
func (c *Client) Lock(
	ctx context.Context, collection, name string, opts LockOptions,
	work func(ctx context.Context, token wire.Etag) error,
) error {
	locks, err := Open[lockDocument](c, collection)
	if err != nil {
		return err
	}
	if opts.TTL == 0 {
		opts.TTL = 10 * time.Second
	}
	if opts.Renew == 0 {
		opts.Renew = opts.TTL / 3
	}
	if opts.TTL < 0 || opts.Renew < 0 || opts.Renew >= opts.TTL {
		return invalid("a lock with the TTL %s that is renewed each %s is not valid: use a TTL of whole seconds, "+
			"and renew the lock more often", opts.TTL, opts.Renew)
	}
	l := &heldLock{locks: locks, name: name, owner: nuid.Next(), ttl: opts.TTL}
	if err := l.take(ctx); err != nil {
		return err
	}
	token := l.etag
	working, end := context.WithCancelCause(ctx)
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := l.keep(keeping, opts.Renew); err != nil {
			end(err)
		}
	}()
	defer func() { // also if work panics
		stop()
		<-ended
		end(nil)
		l.release(ctx)
	}()
	err = work(working, token)
	if cause := context.Cause(working); errors.Is(cause, ErrLockLost) {
		return errors.Join(cause, err)
	}
	return err
}

// take creates the document of the lock.
func (l *heldLock) take(ctx context.Context) error {
	l.until = time.Now().Add(l.ttl)
	written, err := l.locks.Create(ctx, l.name, lockDocument{l.owner}, TTL(l.ttl))
	ends := written.ExpiresAt
	l.etag = written.Etag
	if errors.Is(err, ErrUnknownOutcome) {
		var failure error
		if ends, failure = l.own(ctx); failure != nil {
			return errors.Join(err, failure)
		}
		err = nil
	}
	if err == nil && ends.IsZero() {
		l.release(ctx)
		return l.locks.wrap(l.name, invalid("TTL is off in the collection, so the lock of a dead process would "+
			"stay: configure the collection with a DefaultTTL, such as client.Never"))
	}
	return err
}

// keep renews the lock until ctx is done, and returns an error once it is lost.
func (l *heldLock) keep(ctx context.Context, every time.Duration) error {
	expired := time.NewTimer(time.Until(l.until))
	defer expired.Stop()
	renew := time.NewTicker(every)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-expired.C:
			return fmt.Errorf("%s/%s: %w: it could not be renewed within %s", l.locks.name, l.name, ErrLockLost, l.ttl)
		case <-renew.C:
		}
		err := l.renew(ctx)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrPrecondition) {
			return fmt.Errorf("%w: %w", ErrLockLost, err)
		}
		expired.Reset(time.Until(l.until)) // another error may be over at the next attempt
	}
}

// renew lets the TTL of the lock begin again.
func (l *heldLock) renew(ctx context.Context) error {
	until := time.Now().Add(l.ttl)
	ctx, cancel := context.WithDeadline(ctx, l.until)
	defer cancel()
	written, err := l.locks.Touch(ctx, l.name, IfMatch(l.etag))
	if errors.Is(err, ErrPrecondition) {
		_, err := l.own(ctx)
		return err
	}
	if err == nil {
		l.etag, l.until = written.Etag, until
	}
	return err
}

// own reads the etag of the lock, if it is this process's: a write without an outcome may have changed it. It returns
// when the lock ends; the zero time if it never does.
func (l *heldLock) own(ctx context.Context) (ends time.Time, err error) {
	doc, err := l.locks.Get(ctx, l.name)
	if err == nil && doc.Value.Owner != l.owner {
		err = l.locks.wrap(l.name, fmt.Errorf("%w: another process has the lock", ErrPrecondition))
	}
	if err == nil {
		l.etag = doc.Etag
	}
	return doc.ExpiresAt, err
}

// release deletes the document of the lock, if it is still this process's. If nobody answers, it expires.
func (l *heldLock) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl)
	defer cancel()
	_, err := l.locks.Delete(ctx, l.name, IfMatch(l.etag))
	if !errors.Is(err, ErrPrecondition) {
		return
	}
	if _, err := l.own(ctx); err == nil {
		_, _ = l.locks.Delete(ctx, l.name, IfMatch(l.etag))
	}
}
