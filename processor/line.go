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
	up   context.Context // done when the connection is lost; then another takes its place
	lose context.CancelFunc
}

// watchLine watches a connection until stop is called.
func watchLine(nc *nats.Conn) (l *line, stop func()) {
	l = &line{}
	l.up, l.lose = context.WithCancel(context.Background())
	changes := nc.StatusChanged(nats.RECONNECTING)
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

// ask makes a request, and ends it if the connection is lost meanwhile.
func (l *line) ask(ctx context.Context, request func(context.Context) error) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(up, func() { cancel(errDisconnected) })
	defer stop()
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errDisconnected) {
		err = errDisconnected
	}
	return err
}

// look is ask, for what changes nothing and may be asked again: where a stream has just
// lost its leader nobody answers, and soon another does.
func (l *line) look(ctx context.Context, request func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, lookAgain)
		err := l.ask(attempt, request)
		late := attempt.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			return err
		}
	}
}

// lost is closed when the connection that is there now is lost.
func (l *line) lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up.Done()
}
