package lease

import (
	"context"
	"slices"
	"time"
)

// known is what this process knows of the shards and the members, whether that is current, and
// for how long no owner has changed.
func (m *Member) known() (v view, current bool, calm time.Duration) {
	v.Members, current = m.roster.Alive()
	var last time.Duration
	for _, s := range m.shards {
		s.mu.Lock()
		v.Owners, last = append(v.Owners, s.owner), max(last, s.changed)
		s.mu.Unlock()
	}
	m.view(&v)
	return v, current, m.now() - last
}

// sharing decides when this process hands a shard over.
type sharing struct {
	*Member
	fitAt time.Duration // when this process could work last
}

// run decides again and again until ctx is done.
func (s *sharing) run(ctx context.Context) {
	tick := time.NewTicker(s.timing.share.every)
	defer tick.Stop()
	for s.fitAt = s.now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.runOnce(ctx)
		}
	}
}

// runOnce hands over what this process is to hand over now: one shard at a time, so that it sees the
// effect before the next, but all at once if it cannot work.
func (s *sharing) runOnce(ctx context.Context) {
	terms, now := s.timing.share, s.now()
	works := s.opts.Unfit() == nil
	if works {
		s.fitAt = now
	}
	view, current, calm := s.known()
	if !current || works && calm < terms.calm || !works && now-s.fitAt < terms.unfit {
		return // this process may not know the present members or owners, or its problem may pass
	}
	moves := view.Moves(s.opts.ID, works)
	if !works && len(moves) > 0 {
		s.roster.Tell(ctx) // else a successor could hand a shard back
	}
	for _, move := range moves {
		if s.shards[move.Shard].handOver(ctx, move.To, works) && works {
			break
		}
	}
}

// handOver tells the owner's loop to hand the shard over, unless this process took the shard
// a short time ago. A shard that was handed over to it stays for longer, unless this process
// cannot work. So a shard does not go back and forth between lists that differ. The list of
// members is seconds old, so handOver reads the entry of the successor: that one may have left.
func (s *shard) handOver(ctx context.Context, to string, works bool) bool {
	s.mu.Lock()
	keep, takenAt := s.timing.share.keep, s.takenAt
	if s.given && works {
		keep = s.timing.share.keepGiven
	}
	may := s.status.Role == Owner && s.pulse.Good() && s.now()-takenAt >= keep
	s.mu.Unlock()
	if !may || !s.roster.Ready(ctx, to) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.takenAt == takenAt { // else this process has lost the shard meanwhile, and taken it again
		select {
		case s.handTo <- to:
		default:
		}
	}
	return true
}

// took notes that this process has taken the shard; given, that the former owner handed it over.
func (s *shard) took(given bool) {
	s.owned(s.opts.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takenAt, s.given = s.now(), given
	select {
	case <-s.handTo: // it was for the former ownership
	default:
	}
}

// owned notes who owns the shard; empty if nobody does, or nobody knows.
func (s *shard) owned(by string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner != by {
		s.owner, s.changed = by, s.now()
	}
}

// takeAt is when this standby takes the shard if it hears nothing until then.
func (s *shard) takeAt(w *watch) (at time.Duration, known bool) {
	at, known = w.takeAt(0)
	if !known || w.atOnce || s.now() < at {
		return at, known
	}
	view, _, _ := s.known()
	at, _ = w.takeAt(view.Rank(s.id, s.opts.ID, w.loser()))
	ready := func(m candidate) bool { return !m.Problem && m.ID != s.opts.ID && m.ID != w.loser() }
	if s.opts.Unfit() != nil && slices.ContainsFunc(view.Members, ready) {
		at += s.timing.watch.unfit
	}
	return at, true
}
