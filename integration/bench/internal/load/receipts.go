package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Receipts record the expirations that a subscriber receives.
type Receipts struct {
	mu          sync.Mutex
	N           int     // documents
	times       []uint8 // how often each document was received
	late        []time.Duration
	first, last time.Time // the first and the last deadline
	lastAt      time.Time // when the last document was received
	early       int
	doubled     int
	wrong       error         // the first fault
	all         chan struct{} // closed once all are received
	Warm        *Receipts     // for the warm-up
}

// NewReceipts makes receipts for n documents.
func NewReceipts(n int) *Receipts {
	return &Receipts{N: n, times: make([]uint8, n), late: make([]time.Duration, 0, n), all: make(chan struct{})}
}

// Got records that a document was received at an instant, by the clock of this machine.
func (r *Receipts) Got(i int, deadline, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= r.N {
		r.wrong = fmt.Errorf("received document %d of %d", i, r.N)
		return
	}
	r.times[i]++
	if r.times[i] > 1 {
		r.doubled++
		return
	}
	late := at.Sub(deadline)
	if late < 0 {
		r.early++
	}
	if len(r.late) == 0 || deadline.Before(r.first) {
		r.first = deadline
	}
	if deadline.After(r.last) {
		r.last = deadline
	}
	r.lastAt = at
	r.late = append(r.late, late)
	if len(r.late) == r.N {
		close(r.all)
	}
}

// Fail records a fault.
func (r *Receipts) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil {
		r.wrong = err
	}
}

// Wait waits until all are received or the limit has passed. Then it waits a little, for
// doubled ones.
func (r *Receipts) Wait(ctx context.Context, limit time.Duration) error {
	select {
	case <-r.all:
		return Sleep(ctx, 200*time.Millisecond)
	case <-time.After(limit):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Received is the result of receipts.
type Received struct {
	P50, P99, Max           time.Duration
	PerSecond               float64 // from the first deadline to the last document
	Spread                  time.Duration
	Missing, Early, Doubled int
	Wrong                   error
}

// Result sums up the receipts.
func (r *Receipts) Result() Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.late)
	x := Received{Missing: r.N - len(r.late), Early: r.early, Doubled: r.doubled, Wrong: r.wrong, Spread: r.last.Sub(r.first)}
	if len(r.late) > 0 {
		x.P50, x.P99, x.Max = Quantile(r.late, 0.5), Quantile(r.late, 0.99), r.late[len(r.late)-1]
		x.PerSecond = float64(len(r.late)) / r.lastAt.Sub(r.first).Seconds()
	}
	return x
}

// Quantile returns a quantile of sorted durations.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
