package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// heapRoom is how much the heap may grow between two collections, or four times what is
// live if that is less. What lapse
// keeps is small and what goes through it is much: by Go's own measure, the double of
// what is kept, it would collect many times a second, and events would wait for it.
const heapRoom = 64 << 20

// giveHeapRoom sets the collector's percentage after each collection so that there is
// heapRoom, until stop is called. Where GOGC or GOMEMLIMIT is set it does nothing.
func giveHeapRoom() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	var stopped atomic.Bool
	was := debug.SetGCPercent(100)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 100
	type collected struct{ _ [16]byte } // of a size that is not allocated together with others
	var tune func(*collected)
	tune = func(c *collected) {
		if stopped.Load() {
			return
		}
		metrics.Read(live)
		// To set it stops the world: not for every small difference.
		if p := gcPercent(live[0].Value.Uint64()); p < percent*9/10 || p > percent*11/10 {
			percent = p
			debug.SetGCPercent(p)
		}
		runtime.SetFinalizer(c, tune) // and so after the next one
	}
	runtime.SetFinalizer(&collected{}, tune)
	return func() {
		stopped.Store(true)
		debug.SetGCPercent(was)
	}
}

// gcPercent is the percentage that leaves heapRoom beside what is live: 100, Go's own,
// from there on. It is bounded, as it counts for what is live by the next collection
// too, until it is set again.
func gcPercent(live uint64) int {
	return int(max(100, min(400, heapRoom*100/max(live, 1))))
}
