package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// room is how much the heap may grow between two collections; four times the live heap
// if that is less. By default Go collects when the heap has doubled. lapse keeps little and
// allocates much, so Go would collect many times a second, and delay events: lapse then took
// 13 to 27 % more CPU for the same writes (integration/bench, row ingest).
const room = 64 << 20

// giveRoom sets the collector's percentage after each collection, so that the heap may
// grow by room, until stop is called. If GOGC or GOMEMLIMIT is set, it does nothing.
func giveRoom() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	var stopped atomic.Bool
	was := debug.SetGCPercent(100)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 100
	type collected struct{ _ [16]byte } // the runtime packs smaller objects together, and may then run no finalizer
	var tune func(*collected)
	tune = func(c *collected) {
		if stopped.Load() {
			return
		}
		metrics.Read(live)
		// A change stops the world, so small differences are not worth one.
		if p := gcPercent(live[0].Value.Uint64()); p < percent*9/10 || p > percent*11/10 {
			percent = p
			debug.SetGCPercent(p)
		}
		runtime.SetFinalizer(c, tune) // runs again after the next collection
	}
	runtime.SetFinalizer(&collected{}, tune)
	return func() {
		stopped.Store(true)
		debug.SetGCPercent(was)
	}
}

// gcPercent is the percentage that leaves room beside the live heap; Go's own, 100, if
// the live heap is larger than that. It is at most 400, because it also counts for the live
// heap of the next collection.
func gcPercent(live uint64) int {
	return int(max(100, min(400, room*100/max(live, 1))))
}
