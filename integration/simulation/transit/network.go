// Package transit carries messages between the processes and the servers of the simulated
// world: a [Network] decides when each arrives, and a [Queue] holds what is to happen.
package transit

import (
	"math/rand/v2"
	"time"
)

// Direction is which way a message goes.
type Direction int

const (
	Request Direction = iota
	Answer
)

// Network is what lies between the processes and one server. Faults are over at an instant.
type Network struct {
	Random    *rand.Rand
	Losing    [2]Fault // by direction: in percent
	Slow      Fault    // each message takes up to so many milliseconds
	Hangs     Fault    // nothing passes
	Usual     time.Duration
	Sometimes time.Duration // takes a message in fifty
}

// Fault has a strength until it is over.
type Fault struct {
	Strength int
	Over     time.Time
}

func (f Fault) now() int {
	if time.Now().Before(f.Over) {
		return f.Strength
	}
	return 0
}

// Arrival is when a message that is sent now arrives, unless it is lost.
func (n *Network) Arrival(d Direction) (at time.Time, lost bool) {
	at = time.Now()
	if n.Hangs.now() > 0 {
		at = n.Hangs.Over
	}
	at = at.Add(time.Duration(1 + n.Random.Int64N(int64(n.Usual))))
	if n.Random.IntN(50) == 0 {
		at = at.Add(time.Duration(n.Random.Int64N(int64(n.Sometimes))))
	}
	if most := n.Slow.now(); most > 0 {
		at = at.Add(time.Duration(n.Random.Int64N(int64(most) * int64(time.Millisecond))))
	}
	lost = n.Random.IntN(100) < n.Losing[d].now()
	return at, lost
}

// Heal ends all faults.
func (n *Network) Heal() {
	n.Losing, n.Slow, n.Hangs = [2]Fault{}, Fault{}, Fault{}
}
