package live

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	linger      = 30 * time.Second // how long a hub reads on without clients
	startWithin = 5 * time.Second
	batch       = 256 // the most messages that are added to the ring at a time
)

// ErrClosed is the error of a hub that has been closed.
var ErrClosed = errors.New("this process is stopping: connect again")

// Hub sends the stream of events to clients.
type Hub struct {
	client *client.Client
	js     jetstream.JetStream
	prefix wire.Prefix

	catching chan struct{} // one for each batch that is being read

	closed context.Context // done once the hub is closed
	close  context.CancelFunc
	tails  sync.WaitGroup

	mu      sync.Mutex
	tail    *tail // nil while nobody needs it
	clients int
	idle    *time.Timer // ends the tail
}

// tail is the reading of the stream's end.
type tail struct {
	ring *ring
	end  context.CancelFunc
	done context.Context // done when it has ended
}

// New makes a hub. It does not read before there is a client.
func New(c *client.Client) *Hub {
	js, _ := c.JetStream("") // that of the client itself
	h := &Hub{client: c, js: js, prefix: c.Prefix(), catching: make(chan struct{}, mostCatchingUp)}
	h.closed, h.close = context.WithCancel(context.Background())
	return h
}

// Close ends all clients' connections, and the reading. It waits for the reading alone.
func (h *Hub) Close() {
	h.mu.Lock()
	h.close()
	if h.idle != nil {
		h.idle.Stop()
	}
	h.mu.Unlock()
	h.tails.Wait()
}

// join adds a client, and starts the reading if it is the first.
func (h *Hub) join(ctx context.Context) (*tail, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed.Err() != nil:
		return nil, ErrClosed
	case h.tail != nil && h.tail.done.Err() != nil:
		h.tail = nil
	}
	if h.tail == nil {
		t, err := h.start(ctx)
		if err != nil {
			return nil, err
		}
		h.tail = t
	}
	h.clients++
	if h.idle != nil {
		h.idle.Stop()
	}
	return h.tail, nil
}

// leave removes a client.
func (h *Hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients--; h.clients > 0 || h.closed.Err() != nil {
		return
	}
	h.idle = time.AfterFunc(linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.clients == 0 && h.tail != nil {
			h.tail.end()
			h.tail = nil
		}
	})
}

// start starts to read at the end of the stream.
func (h *Hub) start(ctx context.Context) (*tail, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	running, end := context.WithCancel(h.closed)
	ended, done := context.WithCancel(context.Background())
	begun, failed, come := make(chan uint64, 1), make(chan error, 1), make(chan message, batch)
	h.tails.Go(func() {
		defer done()
		defer end()
		failed <- h.client.Tail(running, func(last uint64) { begun <- last }, func(msg *jetstream.RawStreamMsg) error {
			if m, ok := read(h.prefix, msg); ok {
				select {
				case come <- m.message():
				case <-running.Done():
				}
			}
			return nil
		})
	})
	select {
	case last := <-begun:
		t := &tail{ring: newRing(last), end: end, done: ended}
		h.tails.Go(func() { t.collect(running, come) })
		return t, nil
	case err := <-failed:
		return nil, cmp.Or(err, ErrClosed)
	case <-ctx.Done():
		end()
		return nil, ctx.Err()
	}
}

// collect adds messages to the ring, those that have come together at once: each addition wakes
// the clients.
func (t *tail) collect(ctx context.Context, come <-chan message) {
	messages := make([]message, 0, batch)
	for {
		select {
		case m := <-come:
			messages = append(messages[:0], m)
		case <-ctx.Done():
			return
		}
		for more := true; more && len(messages) < batch; {
			select {
			case m := <-come:
				messages = append(messages, m)
			default:
				more = false
			}
		}
		t.ring.add(messages)
	}
}
