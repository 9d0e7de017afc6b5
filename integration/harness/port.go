package harness

import (
	"testing"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/proxy"
)

// FreePort reserves a port of 127.0.0.1 until the test ends, as [freeport.Take] does.
func FreePort(t testing.TB) int { t.Helper(); return freeport.Take(t) }

// Address returns the address of a port of 127.0.0.1.
func Address(port int) string { return freeport.Address(port) }

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

// NewProxy starts a proxy, as [proxy.New] does.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxy.New(t, target)
}
