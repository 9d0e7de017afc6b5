package sink

import (
	"math"
	"sync"
	"time"
)

// clock is what is known of a server's clock, by which readers judge: never more than
// it shows.
type clock struct {
	mu     sync.Mutex
	known  bool
	behind time.Duration // of what is known, to this process's own clock
	at     time.Duration // when that was learnt, by the latter
}

// clockFor is how long what was learnt of a clock is held for true.
const clockFor = 5 * time.Second

// begun is where this process's own clock begins. It never steps, as its wall clock may.
var begun = time.Now()

// learn learns from a reply of TIME. By the time at which the reply is here the server's
// clock has gone on: the reply that took the least time tells the most.
func (c *clock) learn(reply reply) {
	own := time.Since(begun)
	server := time.Duration(reply.int(0))*time.Second + time.Duration(reply.int(1))*time.Microsecond
	c.mu.Lock()
	defer c.mu.Unlock()
	if behind := server - own; !c.known || behind > c.behind || own-c.at > clockFor {
		c.known, c.behind, c.at = true, behind, own
	}
}

// forget forgets what was learnt, as the server may be another one.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

// shows is the instant that the clock shows, or an earlier one.
func (c *clock) shows() int64 {
	own := time.Since(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || own-c.at > clockFor {
		return math.MinInt64
	}
	return (own + c.behind).Milliseconds()
}

// Clock is an instant (Unix milliseconds) that the clock of the partition's server is
// known to show at least; math.MinInt64 if nothing is known. No reader takes a document
// for live that was expired by then, whatever log time is committed. It is known from
// calls of Due, for some seconds.
func (p *Partition) Clock() int64 { return p.clock.shows() }
