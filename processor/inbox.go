package processor

import (
	"slices"
	"sync"
)

// inbox holds the messages that were read for a partition and not yet taken. It is
// bounded: who puts waits.
type inbox struct {
	mu       sync.Mutex
	room     sync.Cond
	queue    []*message
	bytes    int
	last     uint64 // the partition needs what comes after this; the last message put
	rewinds  bool   // what is put is dropped until reading begins again
	closed   bool
	arrived  chan struct{} // has one element if something was put
	maxBytes int
	maxCount int
}

func newInbox(maxCount, maxBytes int) *inbox {
	b := &inbox{arrived: make(chan struct{}, 1), maxBytes: maxBytes, maxCount: maxCount, rewinds: true}
	b.room.L = &b.mu
	return b
}

// put adds a message, waiting for room. A message that is there already, or that
// the partition does not need, is passed over. It returns false once the reading
// has to begin again, or is over.
func (b *inbox) put(m *message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.rewinds && !b.closed && m.seq > b.last && (len(b.queue) >= b.maxCount || b.bytes >= b.maxBytes) {
		b.room.Wait()
	}
	if b.rewinds || b.closed {
		return false
	}
	if m.seq <= b.last {
		return true
	}
	b.last = m.seq
	b.queue = append(b.queue, m)
	b.bytes += len(m.body)
	b.nudge()
	return true
}

// nudge lets the partition look at what there is to do.
func (b *inbox) nudge() {
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// take returns all that is there.
func (b *inbox) take(into []*message) []*message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return into
	}
	into = append(into, b.queue...)
	clear(b.queue)
	b.queue, b.bytes = b.queue[:0], 0
	b.room.Broadcast()
	return into
}

// rewind drops what is there: the partition needs what comes after floor.
func (b *inbox) rewind(floor uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.queue)
	b.queue, b.bytes = b.queue[:0], 0
	b.last, b.rewinds = floor, true
	b.room.Broadcast()
}

// skip drops what is there up to an offset, and what is put of it later: somebody
// else has applied it.
func (b *inbox) skip(offset uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.queue) && b.queue[n].seq <= offset {
		b.bytes -= len(b.queue[n].body)
		n++
	}
	b.queue = slices.Delete(b.queue, 0, n)
	b.last = max(b.last, offset)
	b.room.Broadcast()
}

// begin returns the sequence after which reading has to begin for this partition,
// and lets messages in again. The log was read up to read: unless the inbox was
// rewound, it has what there was for it.
func (b *inbox) begin(read uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.rewinds {
		b.last = max(b.last, read)
	}
	b.rewinds = false
	return b.last
}

// reading says whether messages are let in.
func (b *inbox) reading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.rewinds
}

// length is how many messages wait, and the stamp of the oldest (0 if none).
func (b *inbox) length() (n int, oldest int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = len(b.queue); n > 0 {
		oldest = b.queue[0].at
	}
	return n, oldest
}

// close ends all waiting.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}
