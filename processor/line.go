package processor

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
)

// errDisconnected: the connection to NATS was lost while an answer was awaited.
var errDisconnected = errors.New("the connection to NATS was lost")

// line is the connection to NATS, as far as requests are concerned: the answers
// to those that were under way when it was lost never come, so that none is
// waited for. What is asked while it is down goes out when it is up again.
type line struct {
	mu   sync.Mutex
	lost chan struct{} // closed when the connection is lost; then another takes its place
}

// watchLine watches a connection until stop is called.
func watchLine(nc *nats.Conn) (l *line, stop func()) {
	l = &line{lost: make(chan struct{})}
	changes := nc.StatusChanged(nats.RECONNECTING)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range changes {
			l.mu.Lock()
			close(l.lost)
			l.lost = make(chan struct{})
			l.mu.Unlock()
		}
	})
	return l, func() { nc.RemoveStatusListener(changes); watching.Wait() }
}

// ask makes a request, and ends it if the connection is lost meanwhile.
func (l *line) ask(ctx context.Context, request func(context.Context) error) error {
	l.mu.Lock()
	lost := l.lost
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-lost:
			cancel(errDisconnected)
		case <-ctx.Done():
		}
	})
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errDisconnected) {
		err = errDisconnected
	}
	cancel(nil)
	watching.Wait()
	return err
}
