// Package redistest runs Redis for tests: a real redis-server, the embedded one, or miniredis,
// which programs use in their own tests. It imports nothing else of lapse, so the tests of every
// package can use it.
package redistest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/embedded"
)

// limit is the longest that a test waits.
const limit = time.Minute

// Server is a Redis for a test.
type Server struct {
	Client *redis.Client
	Mini   Clock // nil if it is a real redis-server
}

// Clock is that of a server inside of the test.
type Clock interface {
	// SetTime stops the clock at a time.
	SetTime(time.Time)
}

// OnEach runs a test on the embedded Redis, and on a real redis-server.
func OnEach(t *testing.T, test func(t *testing.T, s Server)) {
	t.Run("embedded", func(t *testing.T) { test(t, StartMini(t)) })
	t.Run("redis", func(t *testing.T) { test(t, Start(t)) })
}

// StartMini runs the embedded Redis inside of the test.
func StartMini(t testing.TB) Server {
	t.Helper()
	mini := embedded.New(nil)
	t.Cleanup(mini.Close)
	return Server{Client: connect(t, &redis.Options{Dialer: mini.Dial}), Mini: mini}
}

// StartMiniredis runs miniredis inside of the test. It serves owners only: it refuses TIME in scripts that only read,
// which is how a sink.Reader reads.
func StartMiniredis(t testing.TB) Server {
	t.Helper()
	mini, err := miniredis.Run()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mini.Close)
	return Server{Client: connect(t, &redis.Options{Addr: mini.Addr()}), Mini: mini}
}

// Start runs a redis-server without persistence, with more arguments if there are any. It
// listens on a socket, so that two servers cannot need the same port.
func Start(t testing.TB, args ...string) Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is missing: apt-get install redis-server")
	}
	dir, err := os.MkdirTemp("", "redis") // the name of a t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	// The shell ends the server when the pipe is closed, also if the test is killed.
	args = append([]string{"-c", `redis-server "$@" & read -r _; kill -9 $!; wait`, "sh",
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	cmd := exec.Command("sh", args...)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pipe.Close(); _ = cmd.Wait() })
	client := connect(t, &redis.Options{Network: "unix", Addr: socket, DialerRetries: 1})
	WaitFor(t, "redis-server makes its socket", func() bool { _, err := os.Stat(socket); return err == nil })
	WaitFor(t, "redis-server answers", func() bool { return client.Ping(t.Context()).Err() == nil })
	return Server{Client: client}
}

// connect makes a client as lapse does: it does not repeat commands, and it keeps deadlines.
// It waits as long as a busy machine needs, where go-redis gives up after 5 s.
func connect(t testing.TB, opts *redis.Options) *redis.Client {
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = limit, limit, limit
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Pause stops a redis-server without ending it: it accepts connections and answers nothing.
func (s Server) Pause(t testing.TB) {
	t.Helper()
	info, err := s.Client.InfoMap(t.Context(), "server").Result()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

// WaitFor waits until done returns true. what names that in the failure.
func WaitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	timeout := time.After(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-timeout:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
}
