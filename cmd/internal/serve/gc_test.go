package serve

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d bytes live: %d, want %d", live, got, want)
		}
	}
}

// TestGiveHeapRoom: with little that is live there is room, with much no more than
// without, and in the end all is as it was.
func TestGiveHeapRoom(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	was := percent()
	stop := giveHeapRoom()
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for limit := time.Now().Add(20 * time.Second); !ok(); {
			if time.Now().After(limit) {
				t.Fatalf("%s: %d", what, percent())
			}
			runtime.GC()
		}
	}
	eventually("little is live", func() bool { return percent() > 100 })
	much := make([]byte, 100<<20)
	eventually("much is live", func() bool { return percent() == 100 })
	runtime.KeepAlive(much)
	stop()
	if p := percent(); p != was {
		t.Errorf("in the end it is %d, and was %d", p, was)
	}
	t.Setenv("GOGC", "50")
	giveHeapRoom()()
	if p := percent(); p != was {
		t.Errorf("where GOGC is set it is %d, and was %d", p, was)
	}
}
