package processor

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// turns let reads go first while much is reaped. The server does one thing at a time,
// and a machine as many as it has cores: what reaping takes of them, a read waits for.
// So while documents are read, a partition that has much to reap does it in small
// chunks, and when it is its turn. One partition has it at a time, and after each there
// is a rest; more have it, and without a rest, only if what is due would not be reaped
// within drainWithin. Where nobody reads, nothing waits.
//
// A document that is due and not yet reaped is as expired to readers as one that is.
type turns struct {
	reads   func(context.Context) (uint64, error) // all that were ever made
	backlog func() int64                          // how much is due and not reaped
	wake    func(partition int)
	all     int // partitions
	logger  *slog.Logger

	giveWay atomic.Bool // whether turns have to be waited for
	sudden  atomic.Bool // whether much may have become due since the last look

	mu    sync.Mutex
	most  int   // turns at a time
	have  []int // partitions that have one
	line  []int // partitions that wait for one, the first that came first
	rests bool  // after a turn
}

func newTurns(partitions int, logger *slog.Logger) *turns {
	return &turns{all: partitions, most: 1, logger: logger}
}

// take says whether it is a partition's turn. If it is not, the partition stands in
// line, and is woken when it is.
func (t *turns) take(partition int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.have, partition) && !slices.Contains(t.line, partition) {
		t.line = append(t.line, partition)
		t.next(partition)
	}
	return slices.Contains(t.have, partition)
}

// leave ends a partition's turn, or takes it out of the line.
func (t *turns) leave(partition int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := func(other int) bool { return other == partition }
	if t.most == 1 && slices.ContainsFunc(t.have, is) {
		t.rests = true
		time.AfterFunc(turnRest, t.rested)
	}
	t.have, t.line = slices.DeleteFunc(t.have, is), slices.DeleteFunc(t.line, is)
	t.next(partition)
}

// rested ends the rest after a turn.
func (t *turns) rested() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rests = false
	t.next(-1)
}

// allow says how many turns there are at a time.
func (t *turns) allow(most int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = most
	t.next(-1)
}

// next gives those a turn that are first in line, and wakes them, but for the one
// that asks.
func (t *turns) next(asks int) {
	for len(t.line) > 0 && len(t.have) < t.most && (!t.rests || t.most > 1) {
		partition := t.line[0]
		t.line = t.line[1:]
		t.have = append(t.have, partition)
		if partition != asks {
			t.wake(partition)
		}
	}
}

// change lets reaping give way at once, for a look or two: by a new configuration very
// much may be due, and whether somebody reads is not known sooner.
func (t *turns) change() {
	if t.sudden.Swap(true) || t.giveWay.Swap(true) {
		return
	}
	t.allow(1)
}

// run watches how much is read until ctx is done.
func (t *turns) run(ctx context.Context) {
	var (
		p      pace
		failed bool
		before uint64
		known  bool
	)
	for wait(ctx, turnsEvery) {
		reads, err := t.reads(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			t.logger.Warn("how much is read could not be asked for", slog.Any("error", err))
		}
		if failed = err != nil; !failed {
			if known && reads > before { // fewer are those of another server
				p.read(reads-before, time.Now())
			}
			before, known = reads, true
		}
		if t.sudden.Swap(false) {
			p.expect(time.Now())
		}
		most := p.turns(t.backlog(), t.all, time.Now())
		t.giveWay.Store(most > 0)
		if most == 0 {
			most = t.all // whoever waits still
		}
		t.allow(most)
	}
}

// pace is how many turns there are to be at a time.
type pace struct {
	reading time.Time // when much was read last
	most    int
	left    int64     // to be reaped, when that was judged last
	judged  time.Time // when that was
}

// read notes so many reads since the last time that was looked.
func (p *pace) read(n uint64, now time.Time) {
	if n >= turnsReads {
		p.reading = now
	}
}

// expect lets there be turns until it was looked once more.
func (p *pace) expect(now time.Time) {
	if until := now.Add(turnsEvery/2 - turnsAfter); p.reading.Before(until) {
		p.reading = until
	}
}

// turns is how many turns there may be at a time for so many partitions, when so much
// is left to be reaped; 0 if nobody has to wait.
func (p *pace) turns(left int64, partitions int, now time.Time) int {
	if p.reading.IsZero() || now.Sub(p.reading) > turnsAfter {
		*p = pace{}
		return 0
	}
	all := max(partitions, 2)                    // one alone may go without rests
	if p.most == 0 || left == 0 || p.left == 0 { // nothing to judge by
		p.most, p.left, p.judged = 1, left, now
	}
	if took := now.Sub(p.judged); took >= paceEvery {
		// At this rate, what is left is gone in time; or even at half of it.
		gone := float64(p.left-left) / took.Seconds() * drainWithin.Seconds()
		switch {
		case gone < float64(left):
			p.most = min(2*p.most, all)
		case gone > 3*float64(left):
			p.most = max(p.most/2, 1)
		}
		p.left, p.judged = left, now
	}
	if p.most == all {
		return 0
	}
	return p.most
}
