package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/processor/internal/backoff"

	"github.com/seed18712806/lapse/sink/wire"
)

// tenure is one ownership of a shard.
type tenure struct {
	*shard
	term
	held       *Held
	heart      *heart
	released   bool                    // this process was told to release the shard, and goes on
	cancel     context.CancelCauseFunc // ends the work
	verifiedAt time.Duration           // when the last verification ended
	failed     bool                    // it failed
}

// own does the work for as long as this process holds the lease. again means that it lost
// the lease and has to stand by.
func (s *shard) own(ctx context.Context, t term, work work) (again bool, err error) {
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	held := newHeld(s)
	o := &tenure{
		shard: s, term: t, held: held, cancel: cancel, verifiedAt: t.taking.Began.Mono,
		heart: &heart{shard: s, held: held, foreign: make(chan struct{}, 1)},
	}
	s.pulse.Renewed(t.taking)
	s.owned(s.opts.ID, t.revision)
	select {
	case <-s.releases: // it was for the former ownership
	default:
	}
	s.update(func(status *Status) { status.Role, status.Lease = Owner, t.lease; status.Taken++ })
	s.log.Info("took the shard over", slog.String("reason", t.reason))
	s.roster.Soon()

	o.heart.revision.Store(t.revision)
	stopHeart := o.heart.start()
	ended := make(chan error, 1)
	go func() { ended <- work(working, held) }()
	err = o.run(ctx, ended)
	stopHeart()

	lost := held.lost.Load()
	if !lost {
		s.release(context.WithoutCancel(ctx), o.revision)
	}
	close(held.ended)
	s.pulse.Doubt()
	s.roster.Soon()
	stopped := err == nil || errors.Is(err, context.Canceled) || lost && errors.Is(err, ErrLost)
	switch {
	case !stopped:
		return false, err
	case ctx.Err() != nil:
		return false, nil
	case !lost && !o.released:
		return false, err
	}
	select {
	case <-s.link.Closed():
		return false, errClosed
	default:
		return true, nil
	}
}

// run verifies the lease where there is doubt, until the work has ended.
func (o *tenure) run(ctx context.Context, ended <-chan error) error {
	poll := time.NewTicker(o.timing.poll)
	defer poll.Stop()
	closed, told := o.link.Closed(), ctx.Done()
	var slow <-chan time.Time // runs after the work was told to end
	for {
		var requests []request
		always := false
		select {
		case err := <-ended:
			return err
		case r := <-o.held.requests:
			requests = append(requests, r)
		case <-o.heart.foreign:
			always = o.now()-o.verifiedAt >= o.timing.gap // a former owner may go on beating for a while
		case <-o.suspected:
			always = true
		case <-poll.C:
		case <-o.link.Changed():
		case <-told:
			told, slow = nil, time.After(o.timing.slow)
		case atOnce := <-o.releases:
			if o.released = true; atOnce {
				o.yield(context.WithoutCancel(ctx))
			}
			o.cancel(nil)
			if slow == nil {
				slow = time.After(o.timing.slow)
			}
		case <-closed:
			closed = nil
			o.lose("the connection to NATS was closed", wire.Lease{})
		case <-slow:
			o.log.Warn("the work on the shard was told to end, and has not ended yet",
				slog.Duration("after", o.timing.slow))
		}
		o.loop()
		requests = append(requests, o.held.pending()...)
		for _, r := range requests {
			always = always || r.always
		}
		err := o.check(ctx, always, len(requests) > 0)
		for _, r := range requests {
			r.answer <- err
		}
		if o.held.lost.Load() && slow == nil {
			slow = time.After(o.timing.slow)
		}
	}
}

// check returns nil if the lease is held. It verifies the lease if that is needed.
func (o *tenure) check(ctx context.Context, always, asked bool) error {
	switch {
	case o.held.lost.Load():
		return o.held.errLost()
	case !always && !o.failed && o.pulse.Good():
		return nil
	case !always && !asked && o.now()-o.verifiedAt < o.timing.gap:
		return nil // nobody waits for an answer
	}
	err := o.verify(context.WithoutCancel(ctx))
	o.verifiedAt, o.failed = o.now(), err != nil
	o.heart.revision.Store(o.revision)
	if !o.held.lost.Load() {
		o.owned(o.opts.ID, o.revision)
	}
	if !errors.Is(err, ErrLost) {
		o.problem(err)
	}
	return err
}

// verify renews the lease: a new revision proves that no other process has it. A renewal
// needs a majority of the bucket's replicas, which a read does not.
func (o *tenure) verify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.timing.verify)
	defer cancel()
	for {
		renewal := o.pulse.Renew()
		revision, err := o.bucket.Change(ctx, o.id, o.lease, o.revision)
		switch {
		case err == nil:
			o.revision = revision
			o.pulse.Renewed(renewal)
			return nil
		case errors.Is(err, errNoBucket):
			if err := o.recreate(ctx); err != nil {
				return err
			}
			o.revision = 0
		case errors.Is(err, errConflict):
			e, err := o.read(ctx)
			switch {
			case err != nil && !errors.Is(err, errNoBucket):
				return err
			case err == nil && e.Owner != "" && e.Owner != o.opts.ID:
				o.lose("another process took it over", e.Lease)
				return o.held.errLost()
			}
			// A renewal was stored whose answer was lost, or somebody removed the lease, or
			// another process is changing it just now. Try at the revision that was read.
			o.revision = e.Revision
			if !backoff.Wait(ctx, time.Millisecond) {
				return errConflict
			}
		default:
			return err
		}
	}
}

// yield releases the lease before the work has ended, because the work may wait for a server that
// does not answer. From here on the work is refused like that of an owner that lost its lease.
func (o *tenure) yield(ctx context.Context) {
	if o.held.lost.Swap(true) {
		return
	}
	o.pulse.Doubt()
	o.release(ctx, o.revision)
	o.cancel(o.held.errLost())
}

// lose notes that the lease is lost, and ends the work.
func (o *tenure) lose(reason string, now wire.Lease) {
	if o.held.lost.Swap(true) {
		return
	}
	o.pulse.Doubt()
	o.owned(now.Owner, o.revision)
	o.update(func(status *Status) { status.Role, status.Lease = Standby, now; status.Lost++ })
	o.log.Warn("lost the shard",
		slog.String("reason", reason), slog.String("owner", now.Name), slog.String("id", now.Owner))
	o.problem(nil)
	o.cancel(o.held.errLost())
}

// release frees the lease that is at a revision, and tells the standbys.
func (s *shard) release(ctx context.Context, revision uint64) {
	free := wire.Lease{Since: wire.Time(time.Now().UnixMilli())}
	released, err := s.bucket.Change(ctx, s.id, free, revision)
	if errors.Is(err, errConflict) { // a renewal may have been stored whose answer was lost
		if e, readErr := s.read(ctx); readErr == nil && e.Owner == s.opts.ID {
			released, err = s.bucket.Change(ctx, s.id, free, e.Revision)
		}
	}
	if err != nil {
		s.log.Warn("could not release the lease: a standby takes the shard over after a while", slog.Any("error", err))
	} else {
		s.publish(wire.Beat{Owner: s.opts.ID, Revision: released, Released: true})
		_ = s.link.Call(ctx, s.timing.flush, s.nc.FlushWithContext) // so that the server has the beat
		s.log.Info("released the shard")
	}
	s.owned("", released)
	s.update(func(status *Status) { status.Role, status.Lease = Standby, wire.Lease{} })
}

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

// newHeld makes a Held for an owner.
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

// errLost is the error of a lease that is lost.
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
