package store

import (
	"math"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

// clock estimates what a server's clock shows, and never estimates too much. Readers judge
// by the server's clock, so a document whose deadline it has reached is certainly expired.
type clock struct {
	mu     sync.Mutex
	known  bool
	offset time.Duration // of the server's clock from this process's, at least
	at     time.Duration // when offset was measured, by this process's clock
}

// clockFor limits the age of a measurement, as the server's clock may be set.
const clockFor = 5 * time.Second

// begun is the zero of this process's clock. Unlike the wall clock, it never steps.
var begun = time.Now()

// learn takes a measurement from a reply of TIME to a request that was sent at an instant of
// this process's clock. When the reply arrives, the server's clock has moved on. So the
// greatest offset, from the fastest reply, is the best. But if the server's clock was behind the
// estimate even when the request was sent, it was set back, or a replica with another clock has
// become the master: then the estimate is wrong.
func (c *clock) learn(reply layout.Reply, sent time.Duration) {
	own := time.Since(begun)
	seconds, microseconds := reply.Time()
	server := time.Duration(seconds)*time.Second + time.Duration(microseconds)*time.Microsecond
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset := server - own; !c.known || offset > c.offset || server-sent < c.offset || own-c.at > clockFor {
		c.known, c.offset, c.at = true, offset, own
	}
}

// forget drops the measurement, because the server may be another one.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}

// shows is an instant that the clock has reached; math.MinInt64 if none is known.
func (c *clock) shows() int64 {
	own := time.Since(begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || own-c.at > clockFor {
		return math.MinInt64
	}
	return (own + c.offset).Milliseconds()
}

// Clock is an instant (Unix milliseconds) that the clock of the shard's server has
// reached; math.MinInt64 if none is known. No reader returns a document that was expired by
// then, whatever watermark is committed. It is known for some seconds after a call of Due.
func (p *Shard) Clock() int64 { return p.clock.shows() }
