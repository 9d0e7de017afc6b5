package lease

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// view is what a process knows of the shards and the members at one moment.
type view struct {
	Owners   []string // by shard; empty if nobody owns it
	Revision uint64   // the newest of a lease. An entry of a later one was refreshed since
	Members  []listed // that are alive, sorted by their ids
}

// load is how many shards each process owns.
func (v view) load() map[string]int {
	load := make(map[string]int)
	for _, id := range v.Owners {
		load[id]++
	}
	return load
}

// Rank is how many members take a shard before me, when loser has lost it. First comes the member without a problem
// that has the fewest shards; of several, their order goes round from one shard to the next. The loser comes last. The
// shards that nobody owns are given away in the order of their numbers, so that those of one loser spread. If silent is
// true, the loser is silent, so nobody owns its other shards either.
//
// ahead means that me would have two shards more than another member without a problem.
func (v view) Rank(shard int, me, loser string, silent bool) (rank int, ahead bool) {
	load, n := v.load(), len(v.Members)
	line := make([]int, n) // indexes of Members
	for i := range line {
		line[i] = i
	}
	last := func(m listed) int {
		switch {
		case m.ID == loser:
			return 2
		case m.Problem != "":
			return 1
		}
		return 0
	}
	for i := range shard + 1 {
		if i < shard && v.Owners[i] != "" && (!silent || v.Owners[i] != loser) {
			continue
		}
		before := func(a, b int) int {
			x, y := v.Members[a], v.Members[b]
			return cmp.Or(cmp.Compare(last(x), last(y)), cmp.Compare(load[x.ID], load[y.ID]), cmp.Compare((a+i)%n, (b+i)%n))
		}
		if i == shard {
			slices.SortFunc(line, before)
		} else if n > 0 {
			load[v.Members[slices.MinFunc(line, before)].ID]++
		}
	}
	ahead = slices.ContainsFunc(v.Members, func(m listed) bool { return last(m) == 0 && load[me]+1 >= load[m.ID]+2 })
	rank = slices.IndexFunc(line, func(i int) bool { return v.Members[i].ID == me })
	if rank < 0 {
		rank = n
	}
	return rank, ahead
}

// Fit are the members other than me for which an owner may release a shard: those without a problem that have run for
// settle, and have refreshed their entries since the last change of a lease. So an owner releases nothing for a member
// that has failed, nor for one that starts again and again.
func (v view) Fit(me string, settle time.Duration) (fit []listed) {
	for _, m := range v.Members {
		if m.ID != me && m.Problem == "" && v.fresh(m) && m.Seen-m.Started >= wire.Time(settle.Milliseconds()) {
			fit = append(fit, m)
		}
	}
	return fit
}

// fresh tells whether a member has refreshed its entry since the last change of a lease.
func (v view) fresh(m listed) bool { return m.Revision > v.Revision }

// Surplus is the shard that me is to release, because a fit member has two shards fewer. One member at a time
// releases, the one with the most shards, and only while each shard has an owner and each member is fresh.
func (v view) Surplus(me string, settle time.Duration) (shard int, found bool) {
	load := v.load()
	for id, n := range load {
		if id == "" || n > load[me] || n == load[me] && id < me {
			return 0, false
		}
	}
	few := func(m listed) bool { return load[m.ID]+2 <= load[me] }
	stale := func(m listed) bool { return !v.fresh(m) }
	if slices.ContainsFunc(v.Members, stale) || !slices.ContainsFunc(v.Fit(me, settle), few) {
		return 0, false
	}
	for i, id := range v.Owners {
		if id == me {
			shard = i // the last one
		}
	}
	return shard, true
}

// view is what this process knows now.
func (m *Member) view() (v view) {
	v.Members = m.roster.Alive()
	for _, s := range m.shards {
		s.mu.Lock()
		v.Owners, v.Revision = append(v.Owners, s.owner), max(v.Revision, s.known)
		s.mu.Unlock()
	}
	return v
}

// share releases what this process is to release now: one shard, so that the shards spread; or all, if this process
// could not work for a while and another one can.
func (m *Member) share() {
	v, me := m.view(), m.opts.ID
	if m.unfitSince.IsZero() {
		shard, found := v.Surplus(me, m.timing.settle)
		if found && !m.given.cameBack(v, me, m.timing.again) {
			m.given = given{shard, time.Now()}
			m.shards[shard].letGo(false)
		}
		return
	}
	if time.Since(m.unfitSince) < m.timing.unfit || len(v.Fit(me, m.timing.settle)) == 0 {
		return // the problem may pass, or nobody is better off
	}
	for _, s := range m.shards {
		s.letGo(true)
	}
}

// given is a shard that this process has released for another member, and when.
type given struct {
	shard int
	at    time.Time
}

// cameBack tells whether nobody else has taken the shard, less than a while ago. Else a member that takes nothing
// would leave a shard without an owner for half a second, every few seconds.
func (g given) cameBack(v view, me string, within time.Duration) bool {
	return v.Owners[g.shard] == me && !g.at.IsZero() && time.Since(g.at) < within
}

// letGo tells the owner's loop to release the shard; with atOnce, before the work has ended.
func (s *shard) letGo(atOnce bool) {
	select {
	case s.releases <- atOnce:
	default:
	}
}

// owned notes who owns the shard, by the lease at a revision; empty if nobody does, or nobody knows.
func (s *shard) owned(by string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.known = by, revision
}

// takeAt is when this standby takes the shard if it hears nothing until then. It stands back for a member without a
// problem if it cannot work; and, if the lease is free, if it has just released it or would have too many shards.
func (s *shard) takeAt(w *watch) (at time.Duration, known bool) {
	at, known = w.takeAt(0)
	if !known || w.atOnce || s.now() < at {
		return at, known
	}
	v, me, loser := s.view(), s.opts.ID, w.loser()
	rank, ahead := v.Rank(s.id, me, loser, !w.free)
	at, _ = w.takeAt(rank)
	ready := func(m listed) bool { return m.Problem == "" && m.ID != me && m.ID != loser }
	if s.opts.Unfit() != nil || w.free && (ahead || me == loser) {
		if slices.ContainsFunc(v.Members, ready) {
			at += s.timing.standBack
		}
	}
	return at, true
}
