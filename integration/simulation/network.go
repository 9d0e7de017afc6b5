package simulation

import (
	"math/rand/v2"
	"time"
)

// direction is which way a message goes.
type direction int

const (
	request direction = iota
	answer
)

// network is what lies between the processes and one server. Faults are over at an instant.
type network struct {
	random    *rand.Rand
	losing    [2]fault // by direction: in percent
	slow      fault    // each message takes up to so many milliseconds
	hangs     fault    // nothing passes
	usual     time.Duration
	sometimes time.Duration // takes a message in fifty
}

// fault has a strength until it is over.
type fault struct {
	strength int
	over     time.Time
}

func (f fault) now() int {
	if time.Now().Before(f.over) {
		return f.strength
	}
	return 0
}

// arrival is when a message that is sent now arrives, unless it is lost.
func (n *network) arrival(d direction) (at time.Time, lost bool) {
	at = time.Now()
	if n.hangs.now() > 0 {
		at = n.hangs.over
	}
	at = at.Add(time.Duration(1 + n.random.Int64N(int64(n.usual))))
	if n.random.IntN(50) == 0 {
		at = at.Add(time.Duration(n.random.Int64N(int64(n.sometimes))))
	}
	if most := n.slow.now(); most > 0 {
		at = at.Add(time.Duration(n.random.Int64N(int64(most) * int64(time.Millisecond))))
	}
	lost = n.random.IntN(100) < n.losing[d].now()
	return at, lost
}

// heal ends all faults.
func (n *network) heal() {
	n.losing, n.slow, n.hangs = [2]fault{}, fault{}, fault{}
}
