package lease

import (
	"context"
	"slices"
	"time"
)

// known is what this process knows of the shards and the members, whether that is current, and
// for how long no owner has changed, nor was about to.
func (m *Member) known() (v view, current bool, calm time.Duration) {
	v.Members, current = m.roster.Alive()
	v.Owners, calm = m.owners.Known(m.now())
	m.view(&v)
	return v, current, calm
}

// sharing decides when this process hands a shard over.
type sharing struct {
	*Member
	last  time.Duration // when it decided last
	fitAt time.Duration // when this process could work last
}

// run decides again and again until ctx is done.
func (s *sharing) run(ctx context.Context) {
	tick := time.NewTicker(s.timing.share.every)
	defer tick.Stop()
	for s.last, s.fitAt = s.now(), s.now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.runOnce(ctx)
		}
	}
}

// runOnce hands over what this process is to hand over now. All processes plan the same moves,
// and each makes its own: one at a time, so that it sees the effect before the next.
func (s *sharing) runOnce(ctx context.Context) {
	terms, now := s.timing.share, s.now()
	stood := now-s.last > s.timing.stall+terms.every
	s.last = now
	fit := s.opts.Unfit() == nil
	if fit {
		s.fitAt = now
	}
	view, current, calm := s.known()
	if stood || !current {
		return // this process may not know the present members
	}
	var moves []move
	switch {
	case now-s.fitAt >= terms.unfit:
		if moves = view.Relief(s.opts.ID); len(moves) > 0 {
			s.roster.Tell(ctx) // else a successor could hand a shard back
		}
	case fit && calm >= terms.calm:
		moves = view.Moves()
	}
	for _, move := range moves {
		if move.From == s.opts.ID && s.shards[move.Shard].handOver(ctx, move.To) && fit {
			break
		}
	}
	s.last = s.now() // an answer that takes long does not mean that this process stood still
}

// handOver tells the owner's loop to hand the shard over, unless this process took the shard
// a short time ago. That time doubles with each hand-over, so a member that comes and goes
// does not make the shard move again and again. The list of members is seconds old, so it reads
// the entry of the successor: that one may have left.
func (s *shard) handOver(ctx context.Context, to string) bool {
	s.mu.Lock()
	keep := min(s.timing.share.keep<<min(s.handed, 20), s.timing.share.keepMost)
	takenAt := s.takenAt
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

// took notes that this process has taken the shard.
func (s *shard) took() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takenAt = s.now()
	if s.takenAt-s.gaveAt > 2*s.timing.share.keepMost {
		s.handed = 0
	}
	select {
	case <-s.handTo: // it was for the former ownership
	default:
	}
}

// gave notes that this process has handed the shard over.
func (s *shard) gave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed++
	s.gaveAt = s.now()
}

// owned notes who owns the shard.
func (s *shard) owned(by string) { s.owners.Set(s.id, by, s.now()) }

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
