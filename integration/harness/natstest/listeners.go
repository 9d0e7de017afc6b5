package natstest

import (
	"context"
	"runtime"
	"testing"

	"github.com/nats-io/nats.go"
)

// LeavesNoListener fails the test if something that a context has ended leaves a listener at its connection: a process
// has one connection for all its sessions. No test may run beside it, because it measures the memory of the process.
func LeavesNoListener(t testing.TB, session func(ended context.Context, nc *nats.Conn)) {
	t.Helper()
	var nc nats.Conn
	ended, end := context.WithCancel(t.Context())
	end()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const sessions = 1 << 16
	before := heap()
	for range sessions {
		session(ended, &nc)
	}
	if after := heap(); after > before+sessions*50 { // the channel of a listener has more than 150 bytes
		t.Errorf("%d sessions leave %d bytes", sessions, after-before)
	}
	runtime.KeepAlive(&nc)
}
