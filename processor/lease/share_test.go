package lease

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var ids = []string{"a", "b", "c", "d", "e"}

// someMembers are up to eight members with ids like those of a run of a process.
var someMembers = rapid.SliceOfNDistinct(rapid.StringMatching("[A-Z0-9]{8}"), 1, 8, rapid.ID)

// views are views in which any member may own any shard.
var views = rapid.Custom(func(t *rapid.T) view {
	var v view
	for _, id := range ids[:rapid.IntRange(1, len(ids)).Draw(t, "members")] {
		v.Members = append(v.Members, candidate{
			ID: id, Problem: rapid.IntRange(0, 4).Draw(t, "problem") == 0, Settled: rapid.IntRange(0, 4).Draw(t, "settled") > 0,
		})
	}
	for range rapid.IntRange(1, 12).Draw(t, "shards") {
		v.Owners = append(v.Owners, v.Members[rapid.IntRange(0, len(v.Members)-1).Draw(t, "owner")].ID)
	}
	return v
})

// assigned is a view in which each shard has the owner that assign gives it.
func assigned(members, shards int) (v view) {
	for _, id := range ids[:members] {
		v.Members = append(v.Members, candidate{ID: id, Settled: true})
	}
	v.Owners = assign(shards, ids[:members])
	return v
}

// counts are the shards of each member.
func counts(owners, members []string) map[string]int {
	n := make(map[string]int)
	for _, id := range members {
		n[id] = 0
	}
	for _, id := range owners {
		n[id]++
	}
	return n
}

// Fails if a shard has no owner or one that is not a member; if a member has two shards more than
// another; or if the result depends on the order of the members.
func TestL10_AssignSharesOutEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := someMembers.Draw(t, "members")
		shards := rapid.IntRange(1, 32).Draw(t, "shards")
		owners := assign(shards, members)
		load := counts(owners, members)
		if len(owners) != shards || len(load) != len(members) {
			t.Fatalf("%v", owners)
		}
		n := slices.Sorted(maps.Values(load))
		if n[len(n)-1]-n[0] > 1 {
			t.Fatalf("%v", load)
		}
		if other := assign(shards, rapid.Permutation(members).Draw(t, "order")); !slices.Equal(other, owners) {
			t.Fatalf("%v, and in another order %v", owners, other)
		}
	})
	if got := assign(2, nil); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("without members: %v", got)
	}
}

// Fails if a member that leaves, and so one that joins, moves many more shards than its own.
func TestL10_AMemberThatLeavesMovesFewShards(t *testing.T) {
	for _, size := range []struct{ shards, members, most int }{{4, 2, 0}, {4, 3, 1}, {16, 3, 3}, {16, 4, 5}, {64, 5, 12}} {
		all, worst, rounds := 0, 0, 200
		for round := range rounds {
			var members []string
			for i := range size.members {
				members = append(members, fmt.Sprintf("run%d-%d", round, i))
			}
			after, n := assign(size.shards, members[1:]), 0
			for i, has := range assign(size.shards, members) {
				if has != members[0] && has != after[i] {
					n++
				}
			}
			all, worst = all+n, max(worst, n)
		}
		t.Logf("%d shards, %d members: %.1f shards of the others move, at most %d", size.shards, size.members, float64(all)/float64(rounds), worst)
		if worst > size.most {
			t.Errorf("%d shards, %d members: %d shards of the others move", size.shards, size.members, worst)
		}
	}
}

// Fails if two members have the same rank, or if the process that has lost the shard comes before
// another one.
func TestL10_RanksAreAnOrderThatAllAgreeOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		shard := rapid.IntRange(0, len(v.Owners)-1).Draw(t, "shard")
		loser := v.Owners[shard]
		var ranks []int
		for _, m := range v.Members {
			ranks = append(ranks, v.Rank(shard, m.ID, loser))
			if m.ID == loser && ranks[len(ranks)-1] != len(v.Members)-1 {
				t.Fatalf("%s has rank %d", loser, ranks[len(ranks)-1])
			}
		}
		slices.Sort(ranks)
		for i, r := range ranks {
			if r != i {
				t.Fatalf("ranks %v", ranks)
			}
		}
	})
	if got := (view{Owners: []string{""}}).Rank(0, "alone", ""); got != 0 {
		t.Errorf("rank %d where nobody else is known", got)
	}
}

// Fails if the first member takes another shard than assign gives it, so that the shard moves once
// more; or if a member with a problem comes first.
func TestL10_WhoTakesAShardIsToKeepIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		loser := rapid.SampledFrom(ids).Draw(t, "loser")
		var ready []string
		for _, m := range v.Members {
			if !m.Problem && m.ID != loser {
				ready = append(ready, m.ID)
			}
		}
		to := assign(len(v.Owners), ready)
		for shard := range v.Owners {
			for _, m := range v.Members {
				if first := v.Rank(shard, m.ID, loser) == 0; first != (m.ID == to[shard]) && len(ready) > 0 {
					t.Fatalf("%s comes first for shard %d: %t, and it is to go to %s", m.ID, shard, first, to[shard])
				}
			}
		}
	})
	v := view{Owners: []string{""}, Members: []candidate{{ID: "b", Problem: true}}}
	if got := v.Rank(0, "b", ""); got != 0 {
		t.Errorf("rank %d of the only one, which has a problem", got)
	}
}

// moved is a view after all members have made their moves, and how many there were.
func (v view) moved() (view, int) {
	after, n := slices.Clone(v.Owners), 0
	for _, m := range v.Members {
		for _, move := range v.Moves(m.ID, true) {
			after[move.Shard] = move.To
			n++
		}
	}
	v.Owners = after
	return v, n
}

// Fails if a shard moves to a member that is not ready, or a second time while no member joins or
// leaves; or if a difference is left although all are ready.
func TestL10_MovesEndInWhatAssignSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		ready := func(id string) bool {
			return slices.ContainsFunc(v.Members, func(m candidate) bool { return m.ID == id && m.Settled && !m.Problem })
		}
		for _, m := range v.Members {
			for _, move := range v.Moves(m.ID, true) {
				if v.Owners[move.Shard] != m.ID || !ready(move.To) {
					t.Fatalf("%s: %+v of %v", m.ID, move, v.Owners)
				}
			}
		}
		all := slices.IndexFunc(v.Members, func(m candidate) bool { return m.Problem || !m.Settled }) < 0
		v, _ = v.moved()
		if !all {
			return
		}
		if _, more := v.moved(); more > 0 {
			t.Fatalf("then %d moves of %v", more, v.Owners)
		}
		load := slices.Sorted(maps.Values(counts(v.Owners, ids[:len(v.Members)])))
		if len(v.Owners) > 1 && load[len(load)-1]-load[0] > 1 {
			t.Fatalf("left: %v", v.Owners)
		}
	})
}

// Each process makes its moves one by one, and may be slow. Fails if what one has moved is not
// where the others, which see it, want it to be.
func TestL12_EachMoveIsRightByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := assigned(rapid.IntRange(2, len(ids)).Draw(t, "members"), rapid.IntRange(2, 16).Draw(t, "shards"))
		v.Owners = rapid.Permutation(v.Owners).Draw(t, "owners")
		to := assign(len(v.Owners), ids[:len(v.Members)])
		moves := 0
		for range 10 * len(v.Owners) {
			from := rapid.SampledFrom(v.Members).Draw(t, "from").ID
			if own := v.Moves(from, true); len(own) > 0 {
				v.Owners = slices.Clone(v.Owners)
				v.Owners[own[0].Shard] = own[0].To
				moves++
			}
		}
		for shard, has := range v.Owners {
			if len(v.Moves(has, true)) == 0 && has != to[shard] {
				t.Fatalf("shard %d stays with %s: %v", shard, has, v.Owners)
			}
		}
		if moves > len(v.Owners) {
			t.Fatalf("%d moves of %d shards", moves, len(v.Owners))
		}
	})
}

func TestL10_NoNeedlessMoves(t *testing.T) {
	some := assigned(3, 6)
	unsettled, problem := slices.Clone(some.Members), slices.Clone(some.Members)
	unsettled[2].Settled, problem[2].Problem = false, true
	for name, tt := range map[string]struct {
		v     view
		moves int
	}{
		"one shard":                 {view{[]string{"a"}, some.Members}, 0},
		"nothing has changed":       {some, 0},
		"a problem for a moment":    {view{some.Owners, problem}, 0},
		"a second joins, 4":         {view{[]string{"a", "a", "a", "a"}, some.Members[:2]}, 2},
		"a third that is unsettled": {view{assigned(2, 6).Owners, unsettled}, 0},
		"a third with a problem":    {view{assigned(2, 6).Owners, problem}, 0},
		"a shard without owner":     {view{[]string{"a", "a", ""}, some.Members}, 0},
		"an owner that is not up":   {view{[]string{"a", "a", "z"}, some.Members}, 0},
		"nobody":                    {view{[]string{"a", "a"}, nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := tt.v.moved(); got != tt.moves {
				t.Errorf("%d moves", got)
			}
		})
	}
}

// Three processes are restarted one after the other, quicker than members settle. Fails if there
// are many more moves than owners that leave cause.
func TestL10_ARollingRestartMovesFewShards(t *testing.T) {
	for shards, most := range map[int]int{1: 3, 2: 6, 4: 10, 16: 36} {
		all, worst, rounds := 0, 0, 100
		for round := range rounds {
			v, moves := assigned(3, shards), 0
			for i := range 3 {
				id, members := ids[i], slices.Clone(v.Members)
				for shard, has := range v.Owners {
					for _, m := range v.Members {
						if has == id && v.Rank(shard, m.ID, id) == 0 {
							v.Owners[shard] = m.ID
							moves++
							break
						}
					}
				}
				members[i].ID = fmt.Sprintf("run%d-%d", round, i) // each run has another id
				v.Members = members
			}
			_, more := v.moved()
			all, worst = all+moves+more, max(worst, moves+more)
		}
		t.Logf("%d shards: %.1f moves, at most %d", shards, float64(all)/float64(rounds), worst)
		if worst > most {
			t.Errorf("%d shards: %d moves, want at most %d", shards, worst, most)
		}
	}
}

func TestL13_ReliefGoesToThoseThatCanWork(t *testing.T) {
	v := assigned(3, 6)
	relief := func() (to map[string]int) {
		to = make(map[string]int)
		for _, move := range v.Moves("a", false) {
			if v.Owners[move.Shard] != "a" {
				t.Errorf("%+v of %v", move, v.Owners)
			}
			to[move.To]++
		}
		return to
	}
	if got := relief(); got["b"]+got["c"] != 2 {
		t.Errorf("%v", got)
	}
	v.Members[1].Problem = true
	if got := relief(); !maps.Equal(got, map[string]int{"c": 2}) {
		t.Errorf("%v", got)
	}
	v.Members[2].Settled = false
	if got := relief(); len(got) > 0 {
		t.Errorf("%v, and nobody is ready", got)
	}
}
