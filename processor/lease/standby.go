package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// term is a lease that this process has taken.
type term struct {
	lease    wire.Lease
	revision uint64
	taking   renewal // the change that took it
	reason   string
}

// standBy waits until the lease is free or its owner is silent, and takes it. When ctx is
// done, it returns no term, unless it has just taken the lease.
func (s *shard) standBy(ctx context.Context, first bool) (term, error) {
	w := &watch{me: s.opts.ID, timing: s.timing, atOnce: first && s.opts.Impatient}
	if !first {
		w.former = s.opts.ID
	}
	var (
		timer  = time.NewTimer(0)
		last   = s.now()
		readAt time.Duration // no read of the lease before
		takeAt time.Duration // no attempt to take it before
		up     = true
	)
	defer timer.Stop()
	for {
		changed := s.link.Changed()
		select {
		case <-ctx.Done():
			return term{}, nil
		case <-s.link.Closed():
			return term{}, errClosed
		case m := <-s.beats:
			s.hear(w, m)
		case <-changed:
		case <-timer.C:
		}
		s.loop()
		now := s.now()
		if stood := now - last; stood > s.timing.stall {
			w.restart(w.since+stood, now, w.timing.listen) // that time is no silence
		}
		last = now
		s.drain(w)
		if !s.link.Up() {
			s.problem(errDown)
			up = false
			timer.Reset(s.timing.poll)
			continue
		}
		if !up {
			up, w.reread = true, true
			w.restart(now, now, w.timing.silence+s.timing.lost)
		}
		if (!w.known || w.reread) && now >= readAt {
			readAt = now + s.timing.gap
			if err := s.learn(ctx, w, first); err != nil {
				readAt = now + s.timing.retry
			}
			now = s.now()
		}
		s.owned(w.owner(), w.lease.Revision)
		at, known := s.takeAt(w)
		at = max(at, takeAt)
		pause := s.timing.poll
		if known && now >= at {
			if t := s.attempt(ctx, w); t.revision > 0 {
				return t, nil
			}
			if takeAt = s.now() + s.timing.poll; w.blocked {
				takeAt += s.timing.retry
			}
		} else if known {
			pause = min(pause, at-now)
		}
		timer.Reset(max(pause, time.Millisecond))
	}
}

// hear tells the watch of a beat.
func (s *shard) hear(w *watch, m *nats.Msg) {
	if b, ok := s.parse(m); ok {
		w.heard(b, s.now())
	}
}

// drain hears the beats that have arrived.
func (s *shard) drain(w *watch) {
	for {
		select {
		case m := <-s.beats:
			s.hear(w, m)
		default:
			return
		}
	}
}

// learn reads the lease.
func (s *shard) learn(ctx context.Context, w *watch, first bool) error {
	e, err := s.read(ctx)
	if errors.Is(err, errNoBucket) && !w.known {
		e, err = entry{}, s.recreate(ctx)
	}
	if err != nil {
		// A known owner creates a deleted bucket again. If it is silent, attempt does.
		if ctx.Err() == nil {
			s.problem(err)
		}
		return err
	}
	unknown := !w.known
	s.adopt(w, e)
	if unknown && first {
		w.atOnce = w.atOnce || w.free
		w.limit += s.timing.start
	}
	s.well(w)
	return nil
}

// well ends the problem, because the lease was read. A standby that has to take the lease
// and cannot keeps its problem, and reads on.
func (s *shard) well(w *watch) {
	if w.stillBlocked() {
		w.reread = true
	} else {
		s.problem(nil)
	}
}

// adopt takes over the lease as it was read, and logs a new owner.
func (s *shard) adopt(w *watch, e entry) {
	another := w.adopt(e, s.now())
	s.update(func(status *Status) {
		if status.Role == Starting {
			s.roster.Soon() // the entry of this process still says that it is starting
		}
		status.Role, status.Lease = Standby, e.Lease
	})
	if another && !w.free {
		s.log.Info("standing by: another process owns the shard",
			slog.String("owner", e.Name), slog.String("id", e.Owner), slog.String("since", e.Since.String()))
	}
}

// attempt takes the lease, unless the owner turns out to be alive. A term of revision 0
// means that it did not.
func (s *shard) attempt(ctx context.Context, w *watch) (t term) {
	if !w.free && !w.atOnce && !s.confirm(ctx, w) {
		return term{}
	}
	lease := wire.Lease{Owner: s.opts.ID, Name: s.opts.Name, Since: wire.Time(time.Now().UnixMilli())}
	t = term{lease: lease, taking: s.pulse.Renew(), reason: w.reason(s.now())}
	revision, err := s.bucket.Change(context.WithoutCancel(ctx), s.id, t.lease, w.lease.Revision)
	if err == nil {
		s.problem(nil)
		t.revision = revision
		return t
	}
	w.reread = true // JetStream may have stored the change
	if errors.Is(err, errConflict) {
		return term{}
	}
	if errors.Is(err, errNoBucket) {
		if err = s.recreate(ctx); err == nil {
			w.lease.Revision = 0
			return term{}
		}
	}
	if ctx.Err() == nil {
		w.failed()
		s.problem(err)
	}
	return term{}
}

// confirm reads the lease of a silent owner once more. It tells whether the owner still
// seems dead.
func (s *shard) confirm(ctx context.Context, w *watch) bool {
	suspected, since := w.lease, w.since
	e, err := s.read(ctx)
	if errors.Is(err, errNoBucket) {
		e, err = entry{Lease: suspected.Lease}, s.recreate(ctx)
		w.lease.Revision, suspected.Revision = 0, 0
	}
	if err != nil {
		w.reread = true // to notice when the problem ends, if the owner is alive
		if ctx.Err() == nil {
			s.problem(err)
		}
		return false
	}
	// The beats that the server had sent before its answer have arrived.
	s.drain(w)
	if e == suspected && w.since == since {
		return true
	}
	if e != suspected {
		s.adopt(w, e)
	}
	s.well(w)
	return false
}
