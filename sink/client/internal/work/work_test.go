package work

import (
	"math"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	o := Options{First: time.Second, Most: time.Minute}
	for attempts, want := range map[uint64]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, math.MaxUint64: time.Minute} {
		if got := o.Pause(attempts); got != want {
			t.Errorf("after %d attempts: %s, want %s", attempts, got, want)
		}
	}
}
