package feed

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// Inbox holds the messages that were read for a partition and not yet taken. It is
// bounded in messages and in bytes.
//
// The main reader puts messages in while the partition keeps up. A partition that does
// not, or that has to go back in the log, is away: the main reader passes over it, and a
// reader of its own fills the inbox (catchup.go) until it has come to the position of the
// main reader. So no partition waits for another:
//
//   - I1: a message is put in once, and in the order of the log.
//   - I2: while the partition is not away, the inbox got every message for it up to the
//     position of the main reader, and after the partition's offset.
//   - I3: while it is away, the same is true of pos; and it comes back only when pos has
//     reached missed, the last message that the main reader passed over.
//   - I4: if the log does not reach back to pos, nothing is read for the partition until its owner
//     has taken it over anew (Truncated).
type Inbox struct {
	mu       sync.Mutex
	room     sync.Cond
	queue    []*fold.Message
	bytes    int
	last     uint64 // sequence of the last message that was put in, or is not needed
	closed   bool
	arrived  chan struct{} // has one element if a message was put in
	maxBytes int
	maxCount int
	count    atomic.Int32 // of the queue, for others to read

	wanted bool // whether the partition was taken over, and needs messages at all
	absence
}

// absence is how a partition reads the log for itself.
type absence struct {
	away      bool
	missed    uint64        // see I3
	pos       fold.Position // up to which the partition's own reader has read
	times     uint64        // that the partition went away: a reader from before is refused
	left      chan struct{} // has one element if the partition has gone away
	high      fold.Position // the greatest log time known from another reading: see timeAt
	truncated error         // why the log does not bring the messages: see Truncated
}

const (
	patience  = 100 * time.Millisecond // for room in one inbox while another is empty
	roomEvery = 10 * time.Millisecond  // that the main reader asks again for room

	inboxBytes = 8 << 20 // in the bodies of the messages
)

// NewInboxes makes the inboxes of n partitions, each for so many messages.
func NewInboxes(n, messages int) Inboxes {
	all := make(Inboxes, n)
	for i := range all {
		all[i] = newInbox(messages, inboxBytes)
	}
	return all
}

// Inboxes are the inboxes of all partitions.
type Inboxes []*Inbox

// Wake wakes the owner of a partition.
func (all Inboxes) Wake(partition int) { all[partition].Wake() }

func (all Inboxes) wakeAll() {
	for _, b := range all {
		b.Wake()
	}
}

// Close ends all waiting for room.
func (all Inboxes) Close() {
	for _, b := range all {
		b.close()
	}
}

// newInbox makes an inbox that is away: nothing is read for it yet.
func newInbox(maxCount, maxBytes int) *Inbox {
	b := &Inbox{
		arrived: make(chan struct{}, 1), maxBytes: maxBytes, maxCount: maxCount,
		absence: absence{away: true, left: make(chan struct{}, 1)},
	}
	b.room.L = &b.mu
	return b
}

// offer puts in a message for the main reader. It waits for room until that holds up
// another partition; then this partition is away. It returns false once the reading is
// over.
func (b *Inbox) offer(m *fold.Message, holdsUp, over func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	waited := time.Duration(0)
	for !b.closed && !b.away && m.Seq > b.last && b.full() {
		if waited >= patience && holdsUp() {
			b.last = max(b.last, m.Seq-1)
			b.note(m.Position) // the partition's own reader does not read what is before it
			b.leave()
			break
		}
		if over() {
			return false
		}
		b.waitForRoom(roomEvery)
		waited += roomEvery
	}
	if b.closed {
		return false
	}
	if b.away {
		b.missed = max(b.missed, m.Seq)
		return true
	}
	b.put(m)
	return true
}

// fill puts in a message for the partition's own reader, which began at times (see from).
// It waits for room, and returns false once that reading is over.
func (b *Inbox) fill(m *fold.Message, times uint64, over func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.reads(times) && m.Seq > b.last && b.full() {
		if over() {
			return false
		}
		b.waitForRoom(roomEvery)
	}
	if !b.reads(times) {
		return false
	}
	b.put(m)
	return true
}

// reads is isReading, for a caller that has the lock.
func (b *Inbox) reads(times uint64) bool { return !b.closed && b.away && b.times == times }

func (b *Inbox) full() bool { return len(b.queue) >= b.maxCount || b.bytes >= b.maxBytes }

// waitForRoom waits until messages were taken, for so long at most.
func (b *Inbox) waitForRoom(atMost time.Duration) {
	timer := time.AfterFunc(atMost, func() {
		// The caller has the lock until it waits, so this cannot come before, and be lost.
		b.mu.Lock()
		defer b.mu.Unlock()
		b.room.Broadcast()
	})
	b.room.Wait()
	timer.Stop()
}

func (b *Inbox) put(m *fold.Message) {
	if m.Seq <= b.last {
		return // it is in already, or the partition does not need it
	}
	if at := b.timeAt(m.Position); at != m.Time {
		other := *m // other partitions may have it too
		m, other.Time = &other, at
	}
	b.last = m.Seq
	b.queue = append(b.queue, m)
	b.count.Store(int32(len(b.queue)))
	b.bytes += len(m.Body)
	b.Wake()
}

// timeAt is the log time at a position. Stamps may have fallen since high, and a reading that
// began after high does not know of it.
func (b *Inbox) timeAt(at fold.Position) int64 {
	if at.Seq >= b.high.Seq {
		return max(at.Time, b.high.Time)
	}
	return at.Time
}

// note notes what one reading knows of log time for the next one.
func (b *Inbox) note(at fold.Position) {
	if at.Time > b.high.Time {
		b.high = at
	}
}

// leave makes the partition read for itself from here on.
func (b *Inbox) leave() {
	b.away, b.pos = true, fold.Position{}
	b.times++
	b.room.Broadcast()
	select {
	case b.left <- struct{}{}:
	default:
	}
}

// Arrived has an element if the owner has something to do.
func (b *Inbox) Arrived() <-chan struct{} { return b.arrived }

// Wake wakes the owner of the partition.
func (b *Inbox) Wake() {
	select {
	case b.arrived <- struct{}{}:
	default:
	}
}

// Take returns into with messages added, up to so many messages and bytes in all, and
// whether the inbox is empty then.
func (b *Inbox) Take(into []*fold.Message, maxCount, maxBytes int) (list []*fold.Message, empty bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range into {
		maxBytes -= len(m.Body)
	}
	n := 0
	for n < len(b.queue) && len(into) < maxCount && maxBytes > 0 {
		maxBytes -= len(b.queue[n].Body)
		into = append(into, b.queue[n])
		n++
	}
	b.drop(n)
	return into, len(b.queue) == 0
}

// drop removes the first n messages.
func (b *Inbox) drop(n int) {
	if n == 0 {
		return
	}
	for _, m := range b.queue[:n] {
		b.bytes -= len(m.Body)
	}
	if n == len(b.queue) {
		clear(b.queue)
		b.queue = b.queue[:0]
	} else {
		b.queue = slices.Delete(b.queue, 0, n)
	}
	b.count.Store(int32(len(b.queue)))
	b.room.Broadcast()
}

// Rewind drops all messages: the partition needs the messages after floor, and goes away
// for them. The main reader has read up to read.
func (b *Inbox) Rewind(floor, read uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = true
	b.missed = max(b.missed, b.last, read)
	b.truncated = nil
	b.last, b.high = floor, fold.Position{} // the owner knows the log time at floor
	b.drop(len(b.queue))
	b.leave()
}

// truncate notes that the log was truncated, and does not have what the partition needs.
func (b *Inbox) truncate(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.away {
		b.leave()
	}
	b.truncated = why
	b.Wake()
}

// Truncated tells why nothing is read for the partition until Rewind; nil if that is not so. The log was
// truncated, perhaps after the owner has seen that it reaches back. So the owner takes the partition
// over anew, and finds a snapshot, or refuses.
func (b *Inbox) Truncated() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.truncated
}

// Skip drops the messages up to an offset, also those that come later: another owner has
// applied them.
func (b *Inbox) Skip(offset uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.queue) && b.queue[n].Seq <= offset {
		n++
	}
	b.drop(n)
	b.last = max(b.last, offset)
}

// hungry reports whether the partition is away and has room: only messages that it has to
// read keep it away. wanted reports whether it needs messages at all.
func (b *Inbox) hungry() (hungry, wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wanted = b.wanted && !b.closed
	return wanted && b.away && b.truncated == nil && len(b.queue) <= b.maxCount/2, wanted
}

// begin returns the sequence after which the main reader has to begin for this partition;
// ok is false if the partition is away, and stays away. With join one that is away comes
// back. The main reader has read up to read.
func (b *Inbox) begin(read uint64, join bool) (after uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		if !join {
			return 0, false
		}
		b.away, b.last = false, max(b.last, b.pos.Seq)
		return b.last, true
	}
	b.last = max(b.last, read)
	return b.last, true
}

// startsAfter notes where the main reader begins. A partition that is away, or goes away
// before the main reader has a position, has to read for itself up to there; also one that
// was away when begin asked, and has come back since.
func (b *Inbox) startsAfter(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.missed = max(b.missed, seq)
	if !b.away && b.last < seq {
		b.leave()
	}
}

// advance notes how far the partition's own reader has read, and reports whether that has
// to go on.
func (b *Inbox) advance(to fold.Position, times uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.reads(times) {
		return false
	}
	to.Time = b.timeAt(to)
	b.note(to)
	b.pos = to
	b.away = to.Seq < b.missed
	return b.away
}

// isAway reports whether the partition reads for itself.
func (b *Inbox) isAway() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.away && b.wanted && !b.closed && b.truncated == nil
}

// from is the sequence after which the partition's own reader begins, and its number.
func (b *Inbox) from() (after, times uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.last, b.pos.Seq), b.times
}

// isReading reports whether the partition's own reader, which began at times (see from), is still
// to go on.
func (b *Inbox) isReading(times uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads(times)
}

// position is how far the log was read for the partition, where main is how far the main
// reader has read it. The main reader must not begin anew meanwhile.
func (b *Inbox) position(main fold.Position) fold.Position {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return b.pos
	}
	main.Time = b.timeAt(main)
	return main
}

// Len is the number of messages that wait, and the log time at the oldest (0 if none).
func (b *Inbox) Len() (n int, oldest int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = len(b.queue); n > 0 {
		oldest = b.queue[0].Time
	}
	return n, oldest
}

// close ends all waiting for room.
func (b *Inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.room.Broadcast()
}
