// Package pipe connects the client library to the simulated world. Writing never blocks. The world
// takes what was written once every goroutine of the bubble waits.
package pipe

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

var ping = []byte("PING\r\n")

// Pipe is a net.Conn of the client library.
type Pipe struct {
	wake func()

	mu       sync.Mutex
	readable sync.Cond
	in, out  []byte
	greeted  bool // the client has got the answer to its first PING
	closed   bool
	late     bool // the deadline for reading has passed
	deadline *time.Timer
}

// New makes a connection on which the server has sent its greeting. wake is called when there is
// something to take, and when the connection is closed. The client library holds a mutex until the
// server has also answered its first PING, so that comes at once: a goroutine that waits for a mutex
// would hold up the bubble.
func New(greeting []byte, wake func()) *Pipe {
	c := &Pipe{wake: wake, in: greeting}
	c.readable.L = &c.mu
	return c
}

func (c *Pipe) Read(b []byte) (int, error) {
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

func (c *Pipe) Write(b []byte) (int, error) {
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
	c.wake()
	return n, nil
}

// Take returns what was written since the last call.
func (c *Pipe) Take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.out
	c.out = nil
	return out
}

// Receive gives bytes of the server to the reader.
func (c *Pipe) Receive(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = append(c.in, b...)
	c.readable.Broadcast()
}

func (c *Pipe) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.readable.Broadcast()
	c.wake()
	return nil
}

// IsClosed reports whether the connection is closed.
func (c *Pipe) IsClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *Pipe) SetReadDeadline(t time.Time) error {
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

func (c *Pipe) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *Pipe) SetWriteDeadline(time.Time) error { return nil }
func (c *Pipe) LocalAddr() net.Addr              { return &net.IPAddr{} }
func (c *Pipe) RemoteAddr() net.Addr             { return &net.IPAddr{} }
