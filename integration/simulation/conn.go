package simulation

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
)

var ping = []byte("PING\r\n")

// conn is a connection of the client library to the model of nats-server. Writing never
// blocks. The world takes what was written once every goroutine of the bubble waits.
type conn struct {
	world   *World
	process *process
	server  *natsmodel.Client // the other end; nil before the server has accepted it, and after

	// When the last message of each direction arrives: the network keeps their order.
	lastOut, lastIn time.Time
	// After how long arrives what was sent when the connection was lost; 0 if it is lost too.
	fate time.Duration

	mu       sync.Mutex
	readable sync.Cond
	in, out  []byte
	greeted  bool // the client has got the answer to its first PING
	closed   bool
	late     bool // the deadline for reading has passed
	deadline *time.Timer
}

// newConn makes a connection on which the server has sent its greeting. The client library
// holds a mutex until the server has also answered its first PING, so that comes at once: a
// goroutine that waits for a mutex would hold up the bubble.
func newConn(p *process) *conn {
	c := &conn{world: p.world, process: p, in: p.world.inbox.greeting}
	c.readable.L = &c.mu
	return c
}

func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.in) == 0 && !c.closed && !c.late {
		c.readable.Wait()
	}
	switch {
	case len(c.in) > 0 && !c.closed:
		n := copy(b, c.in)
		c.in = c.in[n:]
		return n, nil
	case c.closed:
		return 0, io.EOF
	}
	return 0, os.ErrDeadlineExceeded
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	n := len(b)
	if i := bytes.Index(b, ping); i >= 0 && !c.greeted {
		c.greeted = true
		c.in = append(c.in, "PONG\r\n"...)
		c.readable.Broadcast()
		c.out = append(c.out, b[:i]...)
		b = b[i+len(ping):]
	}
	c.out = append(c.out, b...)
	c.world.wake()
	return n, nil
}

// take returns what was written since the last call.
func (c *conn) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.out
	c.out = nil
	return out
}

// receive gives bytes of the server to the reader.
func (c *conn) receive(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, b...)
	c.readable.Broadcast()
}

func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.readable.Broadcast()
	c.world.wake()
	return nil
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.late, c.deadline = false, nil
	if !t.IsZero() {
		c.deadline = time.AfterFunc(time.Until(t), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.late = true
			c.readable.Broadcast()
		})
	}
	return nil
}

func (c *conn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
func (c *conn) LocalAddr() net.Addr              { return &net.IPAddr{} }
func (c *conn) RemoteAddr() net.Addr             { return &net.IPAddr{} }
