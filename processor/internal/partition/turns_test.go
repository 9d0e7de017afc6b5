package partition

import (
	"slices"
	"testing"
)

type waker func(partition int)

func (w waker) Wake(partition int) { w(partition) }

// TestG9_TurnsOneAfterTheOther: partitions have their turns in the order in which they came, one at a
// time. The next in the queue is woken for its turn, and a partition that needs none any
// more holds up no other.
//
// Goes red if a turn is lost, or two partitions have one at a time.
func TestG9_TurnsOneAfterTheOther(t *testing.T) {
	var woken []int
	tn := NewTurns(waker(func(partition int) { woken = append(woken, partition) }))
	wantWoken := func(want ...int) {
		t.Helper()
		if !slices.Equal(woken, want) {
			t.Errorf("woken: %v, want %v", woken, want)
		}
		woken = nil
	}
	for range 2 { // asking again changes nothing
		if !tn.Take(3) {
			t.Fatal("the first does not get a turn")
		}
	}
	for _, p := range []int{5, 1, 7, 5} {
		if tn.Take(p) {
			t.Errorf("%d has a turn beside 3", p)
		}
	}
	tn.Leave(1) // it needs none any more
	wantWoken()
	tn.Leave(3)
	wantWoken(5)
	if tn.Take(3) || !tn.Take(5) || tn.Take(7) {
		t.Error("it is not the turn of 5 alone")
	}
	tn.Leave(5)
	tn.Leave(5)
	wantWoken(7)
	tn.Leave(7)
	wantWoken(3)
	tn.Leave(3)
	wantWoken()
	if tn.Taken() || !tn.Take(0) || !tn.Taken() {
		t.Error("a turn was lost")
	}
}
