package serve

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100,
		1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("with %d bytes live: %d, want %d", live, got, want)
		}
	}
}

// With a small live heap there is room, with a large one no more than Go's own, and at the
// end the percentage is the former one.
func TestGiveRoom(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	percent := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	was := percent()
	stop := giveRoom()
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); !ok(); {
			if time.Now().After(limit) {
				t.Fatalf("%s: %d", what, percent())
			}
			runtime.GC()
		}
	}
	eventually("with a small live heap", func() bool { return percent() > 100 })
	much := make([]byte, 100<<20)
	eventually("with a large live heap", func() bool { return percent() == 100 })
	runtime.KeepAlive(much)
	stop()
	if p := percent(); p != was {
		t.Errorf("at the end the percentage is %d, want %d", p, was)
	}
	t.Setenv("GOGC", "50")
	giveRoom()()
	if p := percent(); p != was {
		t.Errorf("with GOGC set the percentage is %d, want %d", p, was)
	}
}
