package redismodel

import (
	"math"
	"sync"
	"time"
)

// ClockFor is how long an owner goes by what it knows of Redis's clock: see package store.
const ClockFor = 5 * time.Second

// Clock is what a process knows of the server's clock, as package store knows it.
type Clock struct {
	mu     sync.Mutex
	known  bool
	offset time.Duration // from the process's clock, at least
	at     time.Time     // when offset was measured
}

// Shows is an instant (Unix milliseconds) that the server's clock has reached.
func (c *Clock) Shows() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known || time.Since(c.at) > ClockFor {
		return math.MinInt64
	}
	return time.Now().Add(c.offset).UnixMilli()
}

// Learn takes a measurement.
func (c *Clock) Learn(shown time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset := time.Until(shown); !c.known || offset > c.offset || time.Since(c.at) > ClockFor {
		c.known, c.offset, c.at = true, offset, time.Now()
	}
}

// Forget drops the measurement.
func (c *Clock) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = false
}
