package shard

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/internal/backoff"
)

const (
	leastRoom  = 32     // documents that are reaped in a step at least, however busy lapse is
	mostRoom   = 2048   // at most: 50 ms of work where 40,000 are reaped a second
	perSecond  = 16_000 // requests a second times documents: see room
	countEvery = 25 * time.Millisecond
	countIn    = 4 * countEvery // how long a count may take
	countAfter = time.Second    // how long requests are counted after the last reaping
)

// Pace decides how many of the documents that a configuration has made due are reaped in a step. Reaping as many as
// there are would keep Redis and NATS busy: the p99 of reads was 70 times that of an idle lapse or more.
//
//   - Every 25 ms it counts the requests that have come: reads in Redis, messages in the log.
//   - More requests count at once. Fewer count by a factor of eight at each count.
//   - A step reaps 16,000 documents, divided by the requests a second; at least 32, and at most 2,048. So all requests
//     of a second together wait for as many documents, however many requests there are.
//   - If Redis does not answer within 100 ms, it is 32.
//
// The requests decide, and not how long they take, because reaping itself makes them slow: an owner could not tell its
// own work from that of others, and would slow down for itself. What is counted does not depend on how much is
// reaped, so this cannot oscillate.
//
// To readers, a document that is due and not yet reaped is expired like one that is.
type Pace struct {
	count  func(ctx context.Context) (requests int64, err error) // since some beginning
	begun  chan struct{}                                         // has one element if the owner may have begun to reap
	demand atomic.Int64                                          // requests a second
	used   atomic.Int64                                          // when the owner has asked last, Unix nanoseconds
}

// NewPace makes a pace. count counts requests.
func NewPace(count func(ctx context.Context) (int64, error)) *Pace {
	p := &Pace{count: count, begun: make(chan struct{}, 1)}
	p.demand.Store(busiest)
	return p
}

// busiest is the demand beyond which the room is no smaller.
const busiest = perSecond / leastRoom

// after is the demand after requests were counted.
func after(demand, counted int64) int64 { return min(max(counted, demand/8), busiest) }

// room is how many documents a step may reap.
func room(demand int64) int { return int(min(perSecond/max(demand, 1), mostRoom)) }

// Room is how many documents the owner may reap in a step now.
func (p *Pace) Room() int {
	p.used.Store(time.Now().UnixNano())
	notify(p.begun)
	return room(p.demand.Load())
}

// GivesWay reports whether the owner reaps, and less than it could.
func (p *Pace) GivesWay() bool { return p.isUsed() && room(p.demand.Load()) < mostRoom }

func (p *Pace) isUsed() bool { return time.Since(time.Unix(0, p.used.Load())) < countAfter }

// Run counts requests while the owner reaps, until ctx is done.
func (p *Pace) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.begun:
		}
		p.follow(ctx)
	}
}

// follow counts requests until the owner has not asked for a while.
func (p *Pace) follow(ctx context.Context) {
	var last int64
	var at time.Time // of the last count; zero if it failed
	for more := true; more; more = p.isUsed() && backoff.Wait(ctx, countEvery) {
		counting, cancel := context.WithTimeout(ctx, countIn)
		n, err := p.count(counting)
		cancel()
		now, counted := time.Now(), int64(busiest)
		if err == nil && !at.IsZero() {
			counted = int64(float64(n-last) / now.Sub(at).Seconds())
		}
		p.demand.Store(after(p.demand.Load(), counted))
		if last, at = n, now; err != nil {
			at = time.Time{}
		}
	}
	p.demand.Store(busiest) // the next time has to find out anew
}
