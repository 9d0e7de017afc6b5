package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"
)

// Server is a running server.
type Server struct {
	listener net.Listener
	server   *redcon.Server
	running  sync.WaitGroup // accepting, and each connection
	sessions atomic.Int64   // how many there were

	mu      sync.Mutex // held while a command runs
	db      *database
	scripts *scripts
}

// Start starts a server that listens on an address, such as 127.0.0.1:6379. With port 0 it
// takes a free one.
func Start(address string) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	id := make([]byte, 20)
	_, _ = rand.Read(id) // never fails
	s := &Server{listener: listener, db: &database{keys: newDict[any](), runID: hex.EncodeToString(id)}}
	s.scripts = newScripts(s.db)
	s.server = redcon.NewServer(address, s.serve,
		func(c redcon.Conn) bool {
			s.running.Add(1)
			c.SetContext(&session{id: int(s.sessions.Add(1))})
			return true
		},
		func(redcon.Conn, error) { s.running.Done() })
	s.running.Go(func() { _ = s.server.Serve(listener) }) // it ends when the listener is closed
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the server and its connections, and waits for them.
func (s *Server) Close() {
	_ = s.listener.Close()
	s.running.Wait()
}

// SetTime stops the clock of the server at a time, for tests. The zero time lets it run.
func (s *Server) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.clock = t
}

// serve answers one command.
func (s *Server) serve(c redcon.Conn, cmd redcon.Command) {
	name, args := strings.ToUpper(string(cmd.Args[0])), make([]string, len(cmd.Args)-1)
	for i, arg := range cmd.Args[1:] {
		args[i] = string(arg)
	}
	switch name {
	case "QUIT":
		write(c, ok)
		_ = c.Close()
	case "CLIENT":
		write(c, c.Context().(*session).client(args))
	case "SELECT":
		write(c, selectDB(args))
	default:
		write(c, s.run(name, args))
	}
}

func (s *Server) run(name string, args []string) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reply, done := s.scripts.run(name, args); done {
		return reply
	}
	return s.db.run(name, args)
}

// session is what a connection says of itself.
type session struct {
	id   int
	name string
}

func (s *session) client(args []string) any {
	what := ""
	if len(args) > 0 {
		what = strings.ToUpper(args[0])
	}
	switch {
	case what == "SETINFO" && len(args) == 3:
		return ok
	case what == "SETNAME" && len(args) == 2:
		s.name = args[1]
		return ok
	case what == "GETNAME" && len(args) == 1 && s.name == "":
		return nil
	case what == "GETNAME" && len(args) == 1:
		return s.name
	case what == "ID" && len(args) == 1:
		return s.id
	}
	return unknown(strings.TrimSpace("CLIENT " + what))
}

func selectDB(args []string) any {
	if len(args) == 1 && args[0] == "0" {
		return ok
	}
	return failure("ERR DB index is out of range")
}
