package client

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
)

// Without a lease the owner of a shard is the process with the newest entry that claims it.
// A process whose entry is older than 10 seconds is gone.
func TestStatusOfProcessesThatAreGone(t *testing.T) {
	s := Status{Members: []MemberStatus{
		{SeenAgo: 10.001, Member: wire.Member{ID: "a", Name: "a", Owns: []int{0, 1}, Applied: 5}},
		{SeenAgo: 10, Member: wire.Member{ID: "b", Name: "b", Owns: []int{0}, Applied: 6}},
		{SeenAgo: 3600, Member: wire.Member{ID: "c", Name: "c"}},
	}}
	s.assign(make(map[int]wire.Lease))
	want := []ShardStatus{
		{Shard: 0, Owner: "b", Alive: true, Applied: 6},
		{Shard: 1, Owner: "a", Alive: false, Applied: 5},
	}
	if diff := cmp.Diff(want, s.Shards); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
	var roles []string
	for _, m := range s.Members {
		roles = append(roles, m.Name+" "+m.Role)
	}
	if diff := cmp.Diff([]string{"b owner", "a gone", "c gone"}, roles); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// It fails if a shard has the progress of all shards of its owner.
func TestStatusOfSeveralShards(t *testing.T) {
	s := Status{Members: []MemberStatus{{Member: wire.Member{
		ID: "a", Name: "a", Owns: []int{0, 2}, Applied: 12, LagMessages: 3, Overdue: 2.5,
		Shards: []wire.ShardProgress{{Shard: 0, Applied: 5, LagMessages: 3, Overdue: 2.5}, {Shard: 2, Applied: 7}},
	}}}}
	s.assign(map[int]wire.Lease{0: {Owner: "a", Name: "a"}, 1: {Owner: "a", Name: "a"}, 2: {Owner: "a", Name: "a"}})
	want := []ShardStatus{
		{Shard: 0, Owner: "a", Alive: true, Applied: 5, LagMessages: 3, Overdue: 2.5},
		{Shard: 1, Owner: "a", Alive: true}, // taken since the entry was written
		{Shard: 2, Owner: "a", Alive: true, Applied: 7},
	}
	if diff := cmp.Diff(want, s.Shards); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
