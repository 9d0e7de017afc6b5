package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// CallTimeout is the limit of one call to Redis or NATS.
	CallTimeout = 10 * time.Second
	// AnswerTimeout is the limit of one attempt at a request that changes nothing, which
	// is then repeated.
	AnswerTimeout = 3 * time.Second
)

// ErrDisconnected: the connection to NATS was lost before the answer came.
var ErrDisconnected = errors.New("the connection to NATS was lost")

// ErrConnectionClosed: the client library has given up the connection to NATS, and does
// not connect again.
var ErrConnectionClosed = errors.New("the connection to NATS is closed for good: restart lapse")

// UntilClosed waits until ctx is done, or until the connection is closed for good, which
// is an error. The server closes the connection of a client that sends more than
// max_payload, and does not tell its clients if that was lowered while it runs.
func UntilClosed(ctx context.Context, nc *nats.Conn) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	if !nc.IsClosed() {
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
		}
	}
	return fmt.Errorf("%w: %w", ErrConnectionClosed, cmp.Or(nc.LastError(), nats.ErrConnectionClosed))
}

// Link is the connection to NATS as requests see it, so that none waits for an answer that can no longer come. When the connection is lost, the
// answers to requests under way never come, so the link ends those requests. A request
// made while the connection is down goes out when it is up again.
type Link struct {
	mu   sync.Mutex
	up   context.Context // done when the connection is lost; then another takes its place
	lose context.CancelFunc
}

// WatchLink watches a connection until stop is called.
func WatchLink(nc *nats.Conn) (l *Link, stop func()) {
	l = &Link{}
	l.up, l.lose = context.WithCancel(context.Background())
	changes := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range changes {
			l.mu.Lock()
			l.lose()
			l.up, l.lose = context.WithCancel(context.Background())
			l.mu.Unlock()
		}
	})
	return l, func() { nc.RemoveStatusListener(changes); watching.Wait(); l.lose() }
}

// Ask makes a request. It returns ErrDisconnected if the connection is lost meanwhile.
func (l *Link) Ask(ctx context.Context, request func(context.Context) error) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(up, func() { cancel(ErrDisconnected) })
	defer stop()
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrDisconnected) {
		err = ErrDisconnected
	}
	return err
}

// Query makes a request that changes nothing, and repeats it while no answer comes: where
// a stream has just lost its leader nobody answers, and soon another server does.
func (l *Link) Query(ctx context.Context, request func(context.Context) error) error {
	for {
		if limit, ok := ctx.Deadline(); ok && time.Until(limit) <= AnswerTimeout {
			return l.Ask(ctx, request) // the last attempt
		}
		attempt, cancel := context.WithTimeout(ctx, AnswerTimeout)
		err := l.Ask(attempt, request)
		late := attempt.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			return err
		}
	}
}

// Lost is closed when the present connection is lost.
func (l *Link) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up.Done()
}
