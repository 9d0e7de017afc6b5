package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/seed18712806/lapse/processor/internal/backoff"
)

// Held is a lease that this process holds. The work of the owner asks it.
type Held struct {
	s        *shard
	lost     atomic.Bool
	ended    chan struct{} // closed when nobody answers requests any more
	requests chan request
}

// request asks for a verification: always, or only if there is doubt.
type request struct {
	always bool
	answer chan error // has room for one
}

func newHeld(s *shard) *Held {
	return &Held{s: s, ended: make(chan struct{}), requests: make(chan request)}
}

// Shard is the shard that the lease is of.
func (h *Held) Shard() int { return h.s.id }

// OK returns nil if the work may go on. Otherwise it returns an error that wraps
// [ErrLost], or the reason why the lease could not be verified. Ask it before each step.
//
// In the common case it compares two clocks. In doubt it waits for a verification, for two
// seconds at most. After an error other than ErrLost, ask again before the next step.
func (h *Held) OK(ctx context.Context) error {
	if h.lost.Load() {
		return h.errLost()
	}
	if h.s.pulse.Good() {
		return nil
	}
	return h.verified(ctx, false)
}

// Fenced verifies the lease now, because a fence of another process refused the work. It
// returns nil if this process still has the lease: then the fence is of a former owner. It
// returns an error that wraps [ErrLost] if another has taken the lease, however recently.
func (h *Held) Fenced(ctx context.Context) error {
	if h.lost.Load() {
		return h.errLost()
	}
	return h.verified(ctx, true)
}

func (h *Held) errLost() error { return fmt.Errorf("shard %d: %w", h.s.id, ErrLost) }

// verified sends requests to the owner's loop until it answers nil or ErrLost.
func (h *Held) verified(ctx context.Context, always bool) error {
	limited, cancel := context.WithTimeout(ctx, h.s.timing.verify)
	defer cancel()
	var last error
	for {
		r := request{always: always, answer: make(chan error, 1)}
		err := errors.New("the process was too busy to verify it")
		select {
		case h.requests <- r:
			select {
			case err = <-r.answer:
			case <-h.ended:
				return h.errLost()
			case <-limited.Done():
			}
		case <-h.ended:
			return h.errLost()
		case <-limited.Done():
		}
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("verify the lease of shard %d: %w", h.s.id, context.Cause(ctx))
		}
		if limited.Err() == nil || last == nil {
			last = err
		}
		if !backoff.Wait(limited, h.s.timing.poll) {
			return fmt.Errorf("verify the lease of shard %d: %w", h.s.id, last)
		}
	}
}

// pending takes the requests that wait now.
func (h *Held) pending() (all []request) {
	for {
		select {
		case r := <-h.requests:
			all = append(all, r)
		default:
			return all
		}
	}
}
