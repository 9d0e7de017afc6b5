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

	"github.com/seed18712806/lapse/integration/harness/proxy"
)

// The ports lie below the range that Linux uses for outgoing connections. So no such
// connection takes the port of a server that is down.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreePort reserves a port of 127.0.0.1 until the test ends. A lock on a file keeps other
// test binaries from it; another program could still take it.
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

// Address returns the address of a port of 127.0.0.1.
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

// Proxy and Direction are those of package proxy.
type (
	Proxy     = proxy.Proxy
	Direction = proxy.Direction
)

// The directions.
const (
	ToServer = proxy.ToServer
	ToClient = proxy.ToClient
)

// NewProxy starts a proxy for an address, on a free port. It stops when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxy.New(t, Address(FreePort(t)), target)
}
