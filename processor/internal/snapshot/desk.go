package snapshot

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errNotBegun: the owner has not begun the snapshot in time.
var errNotBegun = errors.New("the owner of the shard did not begin a snapshot")

// beginWithin is how long an owner may take to begin. One that rebuilds the shard, or that fails,
// does not begin.
const beginWithin = 30 * time.Second

// Desk passes orders from the one who wants snapshots to the owner, who takes them. There is one
// order at a time.
type Desk struct {
	store *Store
	order atomic.Pointer[Writer]
}

// NewDesk makes a desk of a store.
func NewDesk(s *Store) *Desk { return &Desk{store: s} }

// Store is the store of the snapshots; nil if there is no desk.
func (d *Desk) Store() *Store {
	if d == nil {
		return nil
	}
	return d.store
}

// Order is the writer of a snapshot that the owner is to take now; nil if none is wanted. It
// hands each out once. The owner calls it between steps.
func (d *Desk) Order() *Writer {
	if d == nil {
		return nil
	}
	w := d.order.Load()
	if w == nil || !d.order.CompareAndSwap(w, nil) {
		return nil
	}
	return w
}

// Take orders a snapshot, and waits until it is stored. begun is the present instant,
// by the caller's clock. Only one goroutine may call Take at a time.
func (d *Desk) Take(ctx context.Context, begun time.Time) (Generation, error) {
	r, err := d.store.claim(ctx)
	if err != nil {
		return Generation{}, err
	}
	w := newWriter()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(beginWithin, func() {
		if d.order.CompareAndSwap(w, nil) {
			cancel(errNotBegun)
		}
	})
	defer late.Stop()
	d.order.Store(w)
	defer d.order.CompareAndSwap(w, nil)
	return d.store.run(ctx, w, r, begun)
}
