package embedded

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// mostConnections is how many connections from outside the process there are at a time.
const mostConnections = 64

// acceptPause is the pause after a connection could not be accepted, because the process has too
// many open files.
const acceptPause = 100 * time.Millisecond

// Server is a running server.
type Server struct {
	log     *slog.Logger
	running sync.WaitGroup // accepting, and each connection

	conns    sync.Mutex // guards the next four
	listener net.Listener
	open     map[net.Conn]bool // true: from outside the process
	outside  int
	closed   bool

	mu      sync.Mutex // held while a command runs
	db      *database
	scripts *scripts
}

// New starts a server, which listens nowhere. A nil log takes nothing.
func New(log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	db := &database{keys: newDict[any](), runID: hex.EncodeToString(id)}
	return &Server{log: log, open: map[net.Conn]bool{}, db: db, scripts: newScripts(db)}
}

// Dial connects within the process. It is a Dialer of [redis.Options], so it ignores the address.
//
// [redis.Options]: https://pkg.go.dev/github.com/redis/go-redis/v9#Options
func (s *Server) Dial(context.Context, string, string) (net.Conn, error) {
	client, server := pipe()
	if !s.start(server, "") {
		return nil, net.ErrClosed
	}
	return client, nil
}

// Listen opens an address, such as 127.0.0.1:6379, to clients that give the password. With port 0
// it takes a free one. It is called once.
func (s *Server) Listen(address, password string) error {
	if password == "" {
		return errors.New("a Redis that listens needs a password")
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.closed {
		return errors.Join(net.ErrClosed, listener.Close())
	}
	s.listener = listener
	s.running.Go(func() { s.accept(listener, password) })
	return nil
}

// Addr is the address that the server listens on; "" if it listens nowhere.
func (s *Server) Addr() string {
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

func (s *Server) accept(l net.Listener, password string) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
		case !s.start(c, password):
			_ = c.SetWriteDeadline(time.Now().Add(acceptPause))
			_, _ = c.Write([]byte("-ERR max number of clients reached\r\n"))
			_ = c.Close()
		}
	}
}

// start serves a connection, unless the server is closed or has too many.
func (s *Server) start(c net.Conn, password string) bool {
	outside := password != ""
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.closed || outside && s.outside == mostConnections {
		return false
	}
	s.open[c] = outside
	if outside {
		s.outside++
	}
	s.running.Go(func() {
		defer s.end(c)
		s.newSession(c, password).run()
	})
	return true
}

func (s *Server) end(c net.Conn) {
	s.conns.Lock()
	defer s.conns.Unlock()
	if s.open[c] {
		s.outside--
	}
	delete(s.open, c)
}

// Close ends the server and its connections, and waits for them.
func (s *Server) Close() {
	s.conns.Lock()
	s.closed = true
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for c := range s.open {
		_ = c.Close()
	}
	s.conns.Unlock()
	s.running.Wait()
}

// SetTime stops the clock of the server at a time, for tests. The zero time lets it run.
func (s *Server) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.clock = t
}

func (s *Server) run(name string, args []string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reply, done := s.scripts.run(name, args); done {
		return reply
	}
	return s.db.run(name, args)
}
