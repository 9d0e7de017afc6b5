package shard

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// queueBytes bounds a Queue, in the bodies of its messages.
const queueBytes = 32 << 20

// Queue holds the messages that were read and that the owner has not applied yet. It is bounded in messages and in
// bytes; the reader waits for room.
//
//   - in order: a message is put in once, and in the order of the log.
//   - whole: while the log is read, the queue got every message up to the position of the reader, and after the
//     offset that the owner has asked for (Rewind).
//   - truncated: if the log does not reach back to that offset, nothing is read until the owner has taken the shard
//     over anew (Truncated).
type Queue struct {
	Backlog  Backlog
	mu       sync.Mutex
	room     sync.Cond
	messages []*fold.Message
	bytes    int
	most     int // messages

	read      fold.Position // up to which all messages are in the queue, or were applied
	base      uint64        // see Base
	floor     uint64        // the sequence after which the messages are needed
	wanted    bool          // the owner has taken the shard over, and needs messages at all
	rewinds   uint64        // a reading from before the last one is refused
	ended     bool          // there is no room any more for anybody
	truncated error         // why the log does not bring the messages: see Truncated

	arrived chan struct{} // has one element if the owner has something to do
	rewound chan struct{} // has one element if reading has to begin again
}

// NewQueue makes a queue for so many messages.
func NewQueue(most int) *Queue {
	q := &Queue{most: most, arrived: make(chan struct{}, 1), rewound: make(chan struct{}, 1)}
	q.room.L = &q.mu
	return q
}

// notify puts an element into a channel that has one already or not.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Arrived has an element if the owner has something to do.
func (q *Queue) Arrived() <-chan struct{} { return q.arrived }

// Wake wakes the owner.
func (q *Queue) Wake() { notify(q.arrived) }

// begin returns the sequence after which a reading begins, and the number of that reading. ok is false while nobody
// needs messages.
func (q *Queue) begin() (after, reading uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read = fold.Position{}
	return q.floor, q.rewinds, q.isWanted()
}

func (q *Queue) isWanted() bool { return q.wanted && q.truncated == nil }

// put puts in a message that a reading has brought. It waits for room, and returns false once that reading is over.
func (q *Queue) put(m *fold.Message, reading uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.ended && q.rewinds == reading && (len(q.messages) >= q.most || q.bytes >= queueBytes) {
		q.room.Wait()
	}
	if q.ended || q.rewinds != reading {
		return false
	}
	if m.Seq > q.floor {
		q.floor = m.Seq
		q.messages = append(q.messages, m)
		q.bytes += len(m.Body)
		q.Wake()
	}
	return true
}

// passed notes that a reading has come to a position, and reports whether it is to go on.
func (q *Queue) passed(at fold.Position, reading uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rewinds != reading || q.ended {
		return false
	}
	q.read, q.floor = at, max(q.floor, at.Seq)
	return true
}

// ReadUpTo is how far the log was read. It is zero while the reading begins anew.
func (q *Queue) ReadUpTo() fold.Position {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.read
}

// Next are the first messages, up to so many messages and bytes in all, and whether these are all that the queue has.
// They stay in the queue until the owner has applied them.
func (q *Queue) Next(most, bytes int) (messages []*fold.Message, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < min(most, len(q.messages)) && bytes > 0 {
		bytes -= len(q.messages[n].Body)
		n++
	}
	return slices.Clone(q.messages[:n]), n == len(q.messages)
}

// Applied drops the first n messages, which were applied.
func (q *Queue) Applied(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > 0 {
		q.base = q.messages[n-1].Seq
	}
	q.drop(n)
}

// Base is the sequence after which the queue has all messages up to the position of the reader.
func (q *Queue) Base() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.base
}

// drop removes the first n messages.
func (q *Queue) drop(n int) {
	if n == 0 {
		return
	}
	for _, m := range q.messages[:n] {
		q.bytes -= len(m.Body)
	}
	q.messages = slices.Delete(q.messages, 0, n)
	q.room.Broadcast()
}

// Rewind drops all messages and lets the reading begin again: the owner needs the messages after a sequence.
func (q *Queue) Rewind(after uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.read, q.base, q.floor, q.wanted, q.truncated = fold.Position{}, after, after, true, nil
	q.drop(len(q.messages))
	q.again()
}

// Again lets the reading begin again behind what it has brought.
func (q *Queue) Again() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.again()
}

func (q *Queue) again() {
	q.rewinds++
	q.room.Broadcast()
	notify(q.rewound)
}

// Skip drops the messages up to an offset, also those that come later: another owner has applied them.
func (q *Queue) Skip(offset uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < len(q.messages) && q.messages[n].Seq <= offset {
		n++
	}
	q.drop(n)
	q.base, q.floor = max(q.base, offset), max(q.floor, offset)
}

// truncate notes that a reading has found the log truncated: it does not have what the owner needs, unless the owner
// has rewound since.
func (q *Queue) truncate(why error, reading uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rewinds != reading {
		return
	}
	q.truncated = why
	q.Wake()
}

// Truncated tells why nothing is read until Rewind; nil if that is not so. The log was truncated, perhaps after the
// owner has seen that it reaches back. So the owner takes the shard over anew, and finds a snapshot, or refuses.
func (q *Queue) Truncated() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.truncated
}

// Waiting is the number of messages that wait, and the log time at the oldest (0 if none).
func (q *Queue) Waiting() (n int, oldest int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n = len(q.messages); n > 0 {
		oldest = q.messages[0].Time
	}
	return n, oldest
}

// IsWanted reports whether somebody needs messages.
func (q *Queue) IsWanted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isWanted()
}

// Close ends all waiting for room.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.room.Broadcast()
}

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
