package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Receipts are the expirations that a subscriber was told of.
type Receipts struct {
	mu          sync.Mutex
	N           int     // documents
	times       []uint8 // how often each document came
	late        []time.Duration
	first, last time.Time // deadlines
	lastAt      time.Time // when the last came
	early       int
	doubled     int
	wrong       error // the first that could not be right
	all         chan struct{}
	Warm        *Receipts // of the warm-up
}

func NewReceipts(n int) *Receipts {
	return &Receipts{N: n, times: make([]uint8, n), late: make([]time.Duration, 0, n), all: make(chan struct{})}
}

// Got notes that a document came. at is when, by this machine's clock.
func (r *Receipts) Got(i int, deadline, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= r.N {
		r.wrong = fmt.Errorf("document %d of %d", i, r.N)
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

// Fail notes what should not have come.
func (r *Receipts) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil {
		r.wrong = err
	}
}

// Wait waits until all have come, and then a little for what should not come; or
// until the limit.
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

// Received is what came, once it was waited for.
type Received struct {
	P50, P99, Max           time.Duration
	PerSecond               float64 // from the first deadline to the last to come
	Spread                  time.Duration
	Missing, Early, Doubled int
	Wrong                   error
}

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

// Quantile is a quantile of sorted durations.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
