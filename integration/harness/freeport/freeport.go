// Package freeport reserves ports of 127.0.0.1 for servers that a test starts again, or whose
// port has to be known before they start. It imports nothing of lapse, so the tests of every
// package can use it.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// The ports lie below the range that Linux uses for outgoing connections. So no such
// connection takes the port of a server that is down.
const (
	first = 12000
	last  = 32000
)

// Take reserves a port until the test ends. See [Reserve].
func Take(t testing.TB) int {
	t.Helper()
	port, release, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// Reserve reserves a port until release is called. A lock on a file keeps other test binaries
// from it; another program could still take it.
func Reserve() (port int, release func(), err error) {
	for range 1000 {
		port = first + rand.IntN(last-first)
		if release, err = lock(port); err != nil {
			continue
		}
		l, err := net.Listen("tcp", Address(port))
		if err != nil {
			release()
			continue
		}
		_ = l.Close()
		return port, release, nil
	}
	return 0, nil, errors.Join(errors.New("found no free port"), err)
}

// Address returns the address of a port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func lock(port int) (release func(), err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lapse-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
