package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	// errDown means that there is no connection at this moment.
	errDown = errors.New("there is no connection to NATS")
	// errClosed means that this process has closed the connection.
	errClosed = errors.New("the connection to NATS was closed")
)

// link follows the connection of a process to NATS.
//
// It knows whether the connection is up. It ends a request when the connection is
// lost, because the answer to that request never comes.
type link struct {
	nc     *nats.Conn
	onLoss func()
	closed chan struct{}

	mu      sync.Mutex
	up      bool
	changed chan struct{}   // closed and replaced at each change of the connection
	session context.Context // done when the connection is lost
	lose    context.CancelFunc
}

// newLink makes a link, which follows the connection from Start on. It calls onLoss
// each time that the connection is lost.
func newLink(nc *nats.Conn, onLoss func()) *link {
	l := &link{nc: nc, onLoss: onLoss, closed: make(chan struct{}), changed: make(chan struct{}), up: nc.IsConnected()}
	l.session, l.lose = context.WithCancel(context.Background())
	return l
}

// Start follows the connection until stop is called.
func (l *link) Start() (stop func()) {
	changes := l.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	l.refresh() // there was no notice of what happened before
	var following sync.WaitGroup
	following.Go(func() {
		for status := range changes {
			l.follow(status)
		}
	})
	return func() { l.nc.RemoveStatusListener(changes); following.Wait() }
}

// follow notes a change of the connection.
func (l *link) follow(status nats.Status) {
	if status != nats.CONNECTED {
		l.mu.Lock()
		l.up = false
		l.lose()
		l.session, l.lose = context.WithCancel(context.Background())
		l.mu.Unlock()
		l.onLoss()
	}
	l.refresh()
}

// refresh asks the connection for its state. The notice may be an old one, as the client
// library drops notices for which its channel has no room.
func (l *link) refresh() {
	// These may wait while the connection is being made, so they are outside of the lock.
	up, closed := l.nc.IsConnected(), l.nc.IsClosed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = up
	if closed {
		select {
		case <-l.closed:
		default:
			close(l.closed)
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Up tells whether the connection is up.
func (l *link) Up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// Changed returns a channel that is closed at the next change of the connection.
func (l *link) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Closed returns a channel that is closed once the connection is closed for good.
func (l *link) Closed() <-chan struct{} { return l.closed }

// Call makes a request. It fails with errDown if the connection is down or is lost
// before the answer has come, and otherwise after limit.
func (l *link) Call(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	l.mu.Lock()
	up, session := l.up, l.session
	l.mu.Unlock()
	if !up {
		return errDown
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(session, cancel)
	defer stop()
	err := request(limited)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case session.Err() != nil:
		return errDown
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("JetStream did not answer within %s", limit)
	default:
		return err
	}
}
