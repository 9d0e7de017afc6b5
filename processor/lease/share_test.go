package lease

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var ids = []string{"a", "b", "c", "d", "e"}

// views are views in which any member may own any shard.
var views = rapid.Custom(func(t *rapid.T) view {
	var v view
	for _, id := range ids[:rapid.IntRange(1, len(ids)).Draw(t, "members")] {
		v.Members = append(v.Members, candidate{
			ID: id, Started: rapid.Int64Range(0, 2).Draw(t, "started"),
			Problem: rapid.IntRange(0, 4).Draw(t, "problem") == 0, Settled: rapid.IntRange(0, 4).Draw(t, "settled") > 0,
		})
	}
	for range rapid.IntRange(1, 12).Draw(t, "shards") {
		v.Owners = append(v.Owners, v.Members[rapid.IntRange(0, len(v.Members)-1).Draw(t, "owner")].ID)
	}
	return v
})

// taken is a view after a member has taken a shard.
func (v view) taken(shard int, by string) view {
	v.Owners = slices.Clone(v.Owners)
	v.Owners[shard] = by
	return v
}

func (v view) owns(id string) (n int) {
	for _, has := range v.Owners {
		if has == id {
			n++
		}
	}
	return n
}

// spread is how many shards the member with most has more than the one with fewest.
func (v view) spread() int {
	most, fewest := 0, len(v.Owners)
	for _, m := range v.Members {
		most, fewest = max(most, v.owns(m.ID)), min(fewest, v.owns(m.ID))
	}
	return most - fewest
}

func even(members, shards int) (v view) {
	for _, id := range ids[:members] {
		v.Members = append(v.Members, candidate{ID: id, Settled: true})
	}
	for i := range shards {
		v.Owners = append(v.Owners, ids[i%members])
	}
	return v
}

// Fails if two members have the same rank, or if the process that is gone has one.
func TestL10_RanksAreAnOrderThatAllAgreeOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		shard := rapid.IntRange(0, len(v.Owners)-1).Draw(t, "shard")
		gone := v.Owners[shard]
		var ranks []int
		for _, m := range v.without(gone) {
			ranks = append(ranks, v.Rank(shard, m.ID, gone))
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

// The shards of an owner that dies are taken one after the other, in any order, by the members
// that come first. Fails if the outcome depends on the order, so that one member gets all.
func TestL10_ShardsOfADeadOwnerAreSpreadInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := even(rapid.IntRange(2, len(ids)).Draw(t, "members"), rapid.IntRange(1, 16).Draw(t, "shards"))
		gone := v.Owners[0]
		var orphans []int
		for i, has := range v.Owners {
			if has == gone {
				orphans = append(orphans, i)
			}
		}
		for _, shard := range rapid.Permutation(orphans).Draw(t, "order") {
			for _, m := range v.without(gone) {
				if v.Rank(shard, m.ID, gone) == 0 {
					v = v.taken(shard, m.ID)
					break
				}
			}
		}
		v.Members = v.without(gone)
		if v.owns(gone) > 0 || v.spread() > 1 {
			t.Fatalf("%v", v.Owners)
		}
	})
}

func TestL10_WhoTakesAFreeShard(t *testing.T) {
	for name, tt := range map[string]struct {
		owners  []string
		members []candidate
		want    string
	}{
		"the one with fewer shards":        {[]string{"", "a", "a", "b"}, []candidate{{ID: "a"}, {ID: "b"}}, "b"},
		"one without a problem":            {[]string{"", "a"}, []candidate{{ID: "a"}, {ID: "b", Problem: true}}, "a"},
		"nobody else is there":             {[]string{""}, []candidate{{ID: "b", Problem: true}}, "b"},
		"the youngest":                     {[]string{""}, []candidate{{ID: "a", Started: 1}, {ID: "b", Started: 3}, {ID: "c", Started: 2}}, "b"},
		"one that is not settled, as well": {[]string{"", "a"}, []candidate{{ID: "a", Settled: true}, {ID: "b"}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Owners: tt.owners, Members: tt.members}
			if got := v.Rank(0, tt.want, ""); got != 0 {
				t.Errorf("rank %d", got)
			}
		})
	}
	firsts := map[string]int{}
	v := even(5, 0)
	v.Owners = make([]string, 200)
	for shard := range v.Owners {
		for _, id := range ids {
			if v.Rank(shard, id, "") == 0 {
				firsts[id]++
			}
		}
	}
	for _, id := range ids {
		if firsts[id] != 40 {
			t.Errorf("%s goes first for %d of 200 shards", id, firsts[id])
		}
	}
}

// Fails if a move does not lead to fewer differences, so that shards could go in circles; if
// it is to a member that is not ready; or if a difference is left.
func TestL10_MovesMakeTheLoadEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		takers := v.takers("")
		for _, move := range v.Moves() {
			if v.Owners[move.Shard] != move.From || v.owns(move.From) < v.owns(move.To)+2 {
				t.Fatalf("%+v of %v", move, v.Owners)
			}
			if !slices.ContainsFunc(takers, func(m candidate) bool { return m.ID == move.To }) {
				t.Fatalf("%+v to one of %+v", move, v.Members)
			}
			v = v.taken(move.Shard, move.To)
		}
		if more := v.Moves(); more != nil {
			t.Fatalf("then %+v", more)
		}
		if len(takers) == len(v.Members) && v.spread() > 1 {
			t.Fatalf("left: %v", v.Owners)
		}
	})
}

// Each process makes only the moves that are its own, and may be slow. Fails if the moves of
// some, without those of others, overshoot.
func TestL12_EachMoveIsRightByItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		for _, move := range v.Moves() {
			if rapid.Bool().Draw(t, "made") {
				if v.owns(move.From) < v.owns(move.To)+2 {
					t.Fatalf("%+v of %v", move, v.Owners)
				}
				v = v.taken(move.Shard, move.To)
			}
		}
	})
}

func TestL10_NoNeedlessMoves(t *testing.T) {
	for name, tt := range map[string]struct {
		v     view
		moves int
	}{
		"one shard":               {view{[]string{"a"}, even(3, 0).Members}, 0},
		"a third joins two":       {view{[]string{"a", "b"}, even(3, 0).Members}, 0},
		"a second joins, 4":       {view{[]string{"a", "a", "a", "a"}, even(2, 0).Members}, 2},
		"a third joins, 4":        {view{[]string{"a", "a", "b", "b"}, even(3, 0).Members}, 1},
		"a fourth joins, 6":       {view{[]string{"a", "a", "b", "b", "c", "c"}, even(4, 0).Members}, 1},
		"a shard without owner":   {view{[]string{"a", "a", ""}, even(2, 0).Members}, 0},
		"an owner that is not up": {view{[]string{"a", "a", "z"}, even(2, 0).Members}, 0},
		"nobody":                  {view{[]string{"a", "a"}, nil}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.v.Moves(); len(got) != tt.moves {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Three processes are restarted one after the other, quicker than members settle. Fails if a
// shard moves that its owner did not have to release, or if a lone shard moves a third time.
func TestL10_ARollingRestartMovesFewShards(t *testing.T) {
	for shards, most := range map[int]int{1: 2, 2: 3, 3: 5, 4: 7, 6: 10, 16: 27} {
		for first := range 3 { // the one that owns the lone shard is restarted first, second or last
			v, moves := even(3, shards), 0
			for i := range 3 {
				id := ids[(i+first)%3]
				for shard, has := range v.Owners {
					for _, m := range v.without(id) {
						if has == id && v.Rank(shard, m.ID, id) == 0 {
							v = v.taken(shard, m.ID)
							moves++
							break
						}
					}
				}
				at := slices.IndexFunc(v.Members, func(m candidate) bool { return m.ID == id })
				v.Members[at].Started = int64(i + 1)
			}
			moves += len(v.Moves())
			t.Logf("%d shards, beginning with %s: %d moves", shards, ids[first], moves)
			if moves > most {
				t.Errorf("%d shards, beginning with %s: %d moves, want at most %d", shards, ids[first], moves, most)
			}
		}
	}
}

func TestL13_ReliefGoesToThoseThatCanWork(t *testing.T) {
	v := even(3, 6)
	if got := fmt.Sprint(v.Relief("a")); got != "[{0 a b} {3 a c}]" && got != "[{0 a c} {3 a b}]" {
		t.Errorf("%s", got)
	}
	v.Members[1].Problem = true
	if got := fmt.Sprint(v.Relief("a")); got != "[{0 a c} {3 a c}]" {
		t.Errorf("%s", got)
	}
	v.Members[2].Settled = false
	if got := v.Relief("a"); got != nil {
		t.Errorf("%v, and nobody is ready", got)
	}
}
