package shard

import (
	"sync/atomic"
	"time"
)

// Backlog is how far the reader is from the end of the log, for others to read.
type Backlog struct {
	pending atomic.Uint64 // messages of the log behind the reader's position
	age     atomic.Int64  // of the last message when it was read, in nanoseconds
	latest  atomic.Int64  // when a message was read last, Unix milliseconds
	read    atomic.Uint64 // messages that were read
}

// note notes how many messages are still to be read, and the age of the last one.
func (b *Backlog) note(pending uint64, age time.Duration) {
	b.pending.Store(pending)
	b.age.Store(int64(age))
	b.latest.Store(time.Now().UnixMilli())
}

// ReadUpTo is the number of messages that were read.
func (b *Backlog) ReadUpTo() uint64 { return b.read.Load() }

// Pending is the number of messages that are still to be read.
func (b *Backlog) Pending() uint64 { return b.pending.Load() }

// reads reports whether the reader reads old messages, and more are to come.
func (b *Backlog) reads() bool {
	const old = int64(250 * time.Millisecond)
	const still = 1000 // milliseconds without a message: the pending ones may be gone
	return b.pending.Load() > 0 && b.age.Load() > old && time.Now().UnixMilli()-b.latest.Load() < still
}
