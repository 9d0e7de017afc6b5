package live

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	linger       = 30 * time.Second // how long a hub reads on without clients
	startWithin  = 5 * time.Second
	deleteWithin = time.Second
	consumerIdle = time.Minute // after which the server deletes a consumer that nobody reads
	batch        = 256         // the most messages that are added to the ring at a time
	tailBytes    = 4 << 20     // of messages that the server sends ahead; otherwise it is 500, however large they are
)

// ErrClosed is the error of a hub that has been closed.
var ErrClosed = errors.New("this process is stopping: connect again")

// Hub sends the stream of events to clients.
type Hub struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	prefix wire.Prefix
	log    *slog.Logger

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
func New(nc *nats.Conn, prefix wire.Prefix, log *slog.Logger) (*Hub, error) {
	if _, err := wire.ParsePrefix(string(prefix)); err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	h := &Hub{nc: nc, js: js, prefix: prefix, log: log, catching: make(chan struct{}, mostCatchingUp)}
	h.closed, h.close = context.WithCancel(context.Background())
	return h, nil
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
		h.idle = nil
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
	name := h.prefix.EventsStream()
	stream, err := h.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up the stream %s: %w", name, err)
	}
	last := stream.CachedInfo().State.LastSeq
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{h.all(Expired), h.all(Due), h.all(Expiring), h.all(Rejected), h.all(Changed)},
		NamePrefix:     "http_" + rand.Text(),
		// DeliverNewPolicy would skip what comes while the consumer is replaced.
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       last + 1,
		InactiveThreshold: consumerIdle,
	}
	consumer, err := stream.OrderedConsumer(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("consume the stream %s: %w", name, err)
	}
	running, end := context.WithCancel(h.closed)
	ended, done := context.WithCancel(context.Background())
	t := &tail{ring: newRing(last), end: end, done: ended}
	come := make(chan message, batch)
	consuming, err := consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			return // it is no message of a stream
		}
		m, ok := write(h.prefix, source{meta.Sequence.Stream, meta.Timestamp, msg.Subject(), msg.Headers(), msg.Data()})
		if !ok {
			return
		}
		select {
		case come <- m:
		case <-running.Done():
		}
	}, jetstream.PullMaxBytes(int(max(tailBytes, 2*h.nc.MaxPayload()))), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		h.log.Debug("live events", slog.Any("error", err)) // the library makes a new consumer
	}))
	if err != nil {
		end()
		done()
		return nil, fmt.Errorf("consume the stream %s: %w", name, err)
	}
	h.tails.Go(func() {
		defer done()
		defer end()
		t.collect(running, consuming.Closed(), come)
		// Stop waits while the library replaces the consumer, perhaps as long as NATS is away.
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			consuming.Stop()
			deleting, cancel := context.WithTimeout(context.Background(), deleteWithin)
			defer cancel()
			if info := consumer.CachedInfo(); info != nil && h.nc.IsConnected() {
				_ = h.js.DeleteConsumer(deleting, name, info.Name) // otherwise the server does it after consumerIdle
			}
		}()
		select {
		case <-stopped:
		case <-time.After(2 * deleteWithin):
		}
	})
	return t, nil
}

// collect adds messages to the ring, those that have come together at once: each addition wakes
// the clients.
func (t *tail) collect(ctx context.Context, ended <-chan struct{}, come <-chan message) {
	messages := make([]message, 0, batch)
	for {
		select {
		case m := <-come:
			messages = append(messages[:0], m)
		case <-ended:
			return
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
