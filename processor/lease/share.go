package lease

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// Member is a process that can own shards.
type candidate struct {
	ID      string
	Started int64 // the later, the younger
	// Problem means that the process is not ready. It takes only what no other takes.
	Problem bool
	// Settled means that the process has been there for a while. Only then others hand shards
	// over to it.
	Settled bool
}

// view is what a process knows at one moment.
type view struct {
	Owners  []string    // by shard; empty if nobody owns it
	Members []candidate // that are alive
}

// move is a hand-over of a shard.
type move struct {
	Shard    int
	From, To string
}

// Rank is how many members take a shard before me, when it and all other shards of its owner
// have lost that owner. An owner that leaves or dies loses all of its shards at about the same
// time, so the order in which a member notices does not change the result.
func (v view) Rank(shard int, me, owner string) (before int) {
	members := v.without(owner)
	if !slices.ContainsFunc(members, func(m candidate) bool { return m.ID == me }) {
		members = append(members, candidate{ID: me})
	}
	load := v.load(members)
	for i, has := range v.Owners {
		if _, there := load[has]; there && i != shard {
			continue
		}
		order(i, members, load)
		if i == shard {
			return slices.IndexFunc(members, func(m candidate) bool { return m.ID == me })
		}
		load[members[0].ID]++
	}
	return 0
}

// Moves are the hand-overs after which no member has two shards more than a settled one. It is
// empty if a shard has no owner that is alive: that one is taken over first.
func (v view) Moves() (moves []move) {
	owners := slices.Clone(v.Owners)
	load := v.load(v.Members)
	for _, has := range owners {
		if _, there := load[has]; !there {
			return nil
		}
	}
	givers, takers := slices.Clone(v.Members), v.takers("")
	if len(takers) == 0 {
		return nil
	}
	for {
		order(0, givers, load)
		order(0, takers, load)
		slices.SortStableFunc(givers, func(a, b candidate) int { return cmp.Compare(load[b.ID], load[a.ID]) })
		from, to := givers[0].ID, takers[0].ID
		if load[from] < load[to]+2 {
			return moves
		}
		moved := first(owners, from, to)
		moves = append(moves, move{moved, from, to})
		owners[moved] = to
		load[from]--
		load[to]++
	}
}

// Relief are the hand-overs of all shards of a member that cannot work to members that are
// settled. It is empty if there is none.
func (v view) Relief(from string) (moves []move) {
	takers, load := v.takers(from), v.load(v.Members)
	if len(takers) == 0 {
		return nil
	}
	for i, has := range v.Owners {
		if has == from {
			order(i, takers, load)
			moves = append(moves, move{i, from, takers[0].ID})
			load[takers[0].ID]++
		}
	}
	return moves
}

// without are all members but one.
func (v view) without(id string) []candidate {
	return slices.DeleteFunc(slices.Clone(v.Members), func(m candidate) bool { return m.ID == id })
}

// takers are the members to which others but the one may hand shards over.
func (v view) takers(but string) []candidate {
	return slices.DeleteFunc(v.without(but), func(m candidate) bool { return m.Problem || !m.Settled })
}

// load counts the shards of each member.
func (v view) load(members []candidate) map[string]int {
	load := make(map[string]int, len(members))
	for _, m := range members {
		load[m.ID] = 0
	}
	for _, has := range v.Owners {
		if _, there := load[has]; there {
			load[has]++
		}
	}
	return load
}

// order sorts members by who is to take a shard: those without a problem, those with the
// fewest shards, and then the youngest first. In a rolling restart the youngest has been
// restarted already, so that the shard need not move again. Rendezvous hashing decides among
// members of the same age.
func order(shard int, members []candidate, load map[string]int) {
	problem := func(m candidate) int {
		if m.Problem {
			return 1
		}
		return 0
	}
	slices.SortFunc(members, func(a, b candidate) int {
		return cmp.Or(
			cmp.Compare(problem(a), problem(b)), cmp.Compare(load[a.ID], load[b.ID]), cmp.Compare(b.Started, a.Started),
			cmp.Compare(weight(shard, b.ID), weight(shard, a.ID)), cmp.Compare(a.ID, b.ID))
	})
}

// first is the shard of a member that fits another one best, by rendezvous hashing.
func first(owners []string, from, to string) (best int) {
	best = -1
	for i, has := range owners {
		if has == from && (best < 0 || weight(i, to) > weight(best, to)) {
			best = i
		}
	}
	return best
}

// weight is a hash of shard and member. It is mixed, so that ids that differ in one
// character are far apart.
func weight(shard int, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.Itoa(shard) + "/" + id))
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
