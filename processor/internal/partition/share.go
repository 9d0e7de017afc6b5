package partition

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed18712806/lapse/processor/internal/backoff"
)

const (
	// Chunk is how many documents are reaped at once at least, however busy lapse is.
	Chunk      = 32
	atOnce     = 4096                      // at most: a chunk of each of 16 partitions, 100 ms of work where 40,000 are reaped a second
	busiest    = demand(perSecond / Chunk) // with more requests the room is no smaller
	perSecond  = 16_000                    // requests a second times documents: see demand
	countEvery = 25 * time.Millisecond     // how often requests are counted
	countIn    = 4 * countEvery            // how long a count may take
	countAfter = time.Second               // how long they are counted after the last reaping
)

// Share decides how many of the documents that a configuration has made due are reaped at once,
// by all partitions together. All partitions at once would keep Redis and NATS busy: the p99 of
// reads was 70 times that of an idle lapse or more.
//
//   - Every 25 ms it counts the requests that have come: reads in Redis, messages in the log.
//   - More requests count at once. Fewer count by a factor of eight at each count.
//   - The partitions reap 16,000 documents at once, divided by the requests a second; at least
//     32, and at most 4,096.
//   - If Redis does not answer within 100 ms, it is 32.
//   - A partition that finds no room waits in a queue, and is woken when there is some.
//
// The requests decide, and not what they find, because reaping itself makes them slow: an owner
// could not tell its own work from that of others, and would slow down for itself. What is counted
// does not depend on how much is reaped, so this cannot oscillate.
//
// To readers, a document that is due and not yet reaped is expired like one that is.
type Share struct {
	waker Waker
	count func(ctx context.Context) (requests int64, err error) // since some beginning
	begun chan struct{}                                         // has one element if a partition may have begun to reap

	mu     sync.Mutex
	demand demand
	taken  map[int]int // documents, by the partition that reaps them
	sum    int         // of taken
	queue  []int       // the partitions that wait
	used   time.Time   // when a partition asked last
}

// Waker wakes the owner of a partition.
type Waker interface{ Wake(partition int) }

// NewShare makes the share of partitions that a waker wakes. count counts requests.
func NewShare(waker Waker, count func(ctx context.Context) (int64, error)) *Share {
	return &Share{waker: waker, count: count, begun: make(chan struct{}, 1), demand: busiest, taken: make(map[int]int)}
}

// demand is requests a second.
type demand float64

// after is the demand after requests were counted.
func (d demand) after(counted demand) demand { return min(max(counted, d/8), busiest) }

// room is how many documents may be reaped at once. A request finds so many before it. So all
// requests of a second together wait for as many documents, however many requests there are.
func (d demand) room() int { return int(min(perSecond/max(d, 1), atOnce)) }

// Take returns how many documents a partition may reap now, ReapChunk at most. If it returns 0,
// the partition waits in the queue, and is woken.
func (s *Share) Take(partition int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	select {
	case s.begun <- struct{}{}:
	default:
	}
	if n := s.taken[partition]; n > 0 {
		return n
	}
	if !slices.Contains(s.queue, partition) {
		s.queue = append(s.queue, partition)
	}
	free := s.free()
	if s.queue[0] != partition || free == 0 {
		return 0
	}
	s.queue = slices.Delete(s.queue, 0, 1)
	n := min(free, ReapChunk)
	s.taken[partition] = n
	s.sum += n
	s.wake()
	return n
}

// free is how many documents more may be reaped now; 0 if they are fewer than a chunk.
func (s *Share) free() int {
	if free := s.demand.room() - s.sum; free >= Chunk {
		return free
	}
	return 0
}

// wake wakes the partition that waits longest, if there is room for it.
func (s *Share) wake() {
	if len(s.queue) > 0 && s.free() > 0 {
		s.waker.Wake(s.queue[0])
	}
}

// Leave returns what a partition has taken, or takes it out of the queue.
func (s *Share) Leave(partition int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum -= s.taken[partition]
	delete(s.taken, partition)
	s.queue = slices.DeleteFunc(s.queue, func(p int) bool { return p == partition })
	s.wake()
}

// Taken reports whether a partition reaps documents that a configuration has made due, or waits.
func (s *Share) Taken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)+len(s.queue) > 0
}

// Run counts requests while partitions reap, until ctx is done.
func (s *Share) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.begun:
		}
		s.follow(ctx)
	}
}

// follow counts requests until no partition has asked for a while.
func (s *Share) follow(ctx context.Context) {
	var last int64
	var at time.Time // of the last count; zero if it failed
	for more := true; more; more = s.isUsed() && backoff.Wait(ctx, countEvery) {
		counting, cancel := context.WithTimeout(ctx, countIn)
		n, err := s.count(counting)
		cancel()
		now, counted := time.Now(), busiest
		if err == nil && !at.IsZero() {
			counted = demand(float64(n-last) / now.Sub(at).Seconds())
		}
		s.set(counted)
		if last, at = n, now; err != nil {
			at = time.Time{}
		}
	}
	s.set(busiest) // the next one to reap has to find out anew
}

func (s *Share) isUsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.used) < countAfter
}

// set sets the demand after a count.
func (s *Share) set(counted demand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand = s.demand.after(counted)
	s.wake()
}
