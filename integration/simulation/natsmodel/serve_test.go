package natsmodel

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// served serves a model to clients in this process.
type served struct {
	mu    sync.Mutex
	model *Server
	conns map[*Client]net.Conn
}

// Dial makes a connection.
func (s *served) Dial(_, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.model.Connect()
	s.conns[c] = far
	go s.read(c, far)
	return near, nil
}

func (s *served) read(c *Client, conn net.Conn) {
	_, err := conn.Write(c.Greeting())
	for b := make([]byte, 1<<16); err == nil; {
		var n int
		n, err = conn.Read(b)
		s.mu.Lock()
		commands, _ := c.Parse(b[:n])
		for _, command := range commands {
			s.send(s.model.Do(c, command))
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Disconnect(c)
}

// tick lets the timers of the model run; the test calls it while it waits.
func (s *served) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.model.Next(); ok && !at.After(time.Now()) {
		s.send(s.model.Timers())
	}
}

func (s *served) send(sent []Sent) {
	for _, m := range sent {
		_, _ = s.conns[m.To].Write(m.Bytes())
		if m.Close {
			_ = s.conns[m.To].Close()
		}
	}
}

// connect connects a client until the test ends.
func connect(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(url, append(options, nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.NoReconnect())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}
