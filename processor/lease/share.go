package lease

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// candidate is a process that can own shards.
type candidate struct {
	ID string
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
	Shard int
	To    string
}

// assign gives each shard to a member, so that no member has two shards more than another.
// Each shard, in the order of their numbers, goes to the first member in its order that has room.
// The result does not depend on the order of the members, nor on who owns what.
func assign(shards int, members []string) (owners []string) {
	if len(members) == 0 {
		return make([]string, shards)
	}
	least, more := shards/len(members), shards%len(members) // so many members have one more than the least
	load := make(map[string]int, len(members))
	for shard := range shards {
		line := order(shard, members)
		to := line[slices.IndexFunc(line, func(id string) bool { return load[id] < least || load[id] == least && more > 0 })]
		if load[to] == least {
			more--
		}
		load[to]++
		owners = append(owners, to)
	}
	return owners
}

// Rank is how many members take a shard before me, when loser has lost it: first the one to which
// assign gives it, then those without a problem, then the others. The loser stands back.
func (v view) Rank(shard int, me, loser string) int {
	var ready, others []string
	for _, m := range v.Members {
		switch {
		case m.ID == loser:
		case m.Problem:
			others = append(others, m.ID)
		default:
			ready = append(ready, m.ID)
		}
	}
	line := slices.Concat(order(shard, ready), order(shard, others))
	if first := assign(len(v.Owners), ready)[shard]; first != "" {
		line = slices.DeleteFunc(line, func(id string) bool { return id == first })
		line = slices.Insert(line, 0, first)
	}
	if at := slices.Index(line, me); at >= 0 {
		return at
	}
	return len(line)
}

// Moves are the hand-overs of a member whose shards assign gives to others. They go to members
// that are settled and have no problem. There are none while a shard has no owner that is
// alive: that one is taken over first. An owner that cannot work is to have none.
func (v view) Moves(from string, works bool) (moves []move) {
	if works && len(v.Owners) == 1 {
		return nil // a hand-over costs time, and one shard is never uneven
	}
	var members []string
	ready := make(map[string]bool)
	for _, m := range v.Members {
		ready[m.ID] = m.Settled && !m.Problem
		// A member counts for as long as it owns a shard: its problem may last for a moment only.
		if works && slices.Contains(v.Owners, m.ID) || ready[m.ID] && (works || m.ID != from) {
			members = append(members, m.ID)
		}
	}
	to := assign(len(v.Owners), members)
	for i, has := range v.Owners {
		if _, alive := ready[has]; works && !alive {
			return nil
		}
		if has == from && to[i] != from && ready[to[i]] {
			moves = append(moves, move{i, to[i]})
		}
	}
	return moves
}

// order sorts members for a shard by rendezvous hashing: which of two comes first does not depend
// on the others.
func order(shard int, members []string) []string {
	return slices.SortedFunc(slices.Values(members), func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(shard, b), weight(shard, a)), cmp.Compare(a, b))
	})
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
