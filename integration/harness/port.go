package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Ports are taken from below the range that Linux uses for outgoing
// connections, so that none of those takes the port of a server that is down.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreePort reserves a port of 127.0.0.1 until the test ends: against other test
// binaries by a lock on a file named after it, against everybody else by luck.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		release, ok := lockPort(t, port)
		if !ok {
			continue
		}
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			release()
			continue
		}
		_ = l.Close()
		t.Cleanup(release)
		return port
	}
	t.Fatal("found no free port")
	return 0
}

// Address is a port of 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func lockPort(t testing.TB, port int) (release func(), ok bool) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lapse-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, false
	}
	return func() { _ = f.Close() }, true
}
