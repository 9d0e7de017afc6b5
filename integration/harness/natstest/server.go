package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/freeport"
)

// Server is a server that a test kills and starts again, on the same port, with streams that it may
// put back to what they were.
type Server struct {
	URL     string
	t       testing.TB
	opts    Options
	process *process
}

// NewServer makes a server with JetStream that is not started. copied is a copy of the streams that it
// has at first; "" if it has none.
func NewServer(t testing.TB, copied string) *Server {
	t.Helper()
	address := freeport.Address(freeport.Take(t))
	s := &Server{t: t, URL: "nats://" + address, opts: Options{Store: filepath.Join(t.TempDir(), "store"),
		Config: fmt.Sprintf("listen: %q\n", address)}}
	if copied != "" {
		PutBack(t, s.opts.Store, copied, ".")
	}
	return s
}

// Start starts the server, until the test ends.
func (s *Server) Start() {
	s.t.Helper()
	s.process = start(s.t, s.opts)
	s.process.ready()
}

// Kill ends the server as kill -9 does.
func (s *Server) Kill() {
	_ = s.process.cmd.Process.Kill() // or it has ended
	<-s.process.ended
}

// Stop ends the server as kill does: it writes down what it knows of its streams, and does not read their files at its
// next start.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.process.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	<-s.process.ended
}

// Copy copies the streams, and returns the directory of the copy. The server must not run.
func (s *Server) Copy() (copied string) { s.t.Helper(); return Copy(s.t, s.opts.Store) }

// PutBack puts streams back to what a copy has of them. The server must not run.
func (s *Server) PutBack(copied string, streams ...string) {
	s.t.Helper()
	for _, stream := range streams {
		PutBack(s.t, s.opts.Store, copied, filepath.Join("jetstream", "$G", "streams", stream))
	}
}

// Copy copies the store of a server that does not run, or stands still.
func Copy(t testing.TB, store string) (copied string) {
	t.Helper()
	copied = t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// PutBack replaces a directory of a store by that of a copy, or removes it if the copy has none. The server
// must not run.
func PutBack(t testing.TB, store, copied, dir string) {
	t.Helper()
	to, from := filepath.Join(store, dir), filepath.Join(copied, dir)
	err := os.RemoveAll(to)
	if _, none := os.Stat(from); err == nil && none == nil {
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
}
