package serve

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/processor/lease"
	"github.com/seed18712806/lapse/sink/wire"
)

// listing is statuses with the entries of other processes.
type listing struct {
	statuses
	entries []wire.Member
}

func (l listing) Members() []wire.Member { return l.entries }

// TestFollowing: how far a region is behind is what its owners say. After a promotion, neither the former entry of this
// process nor that of one that is gone counts.
func TestFollowing(t *testing.T) {
	near := &wire.Following{Domain: "a", Behind: 2, AsOf: 5000}
	far := &wire.Following{Domain: "a", Behind: 3, AsOf: 3000, Down: 4000}
	unknown := &wire.Following{Domain: "a"}
	entries := []wire.Member{{ID: "b", Following: far}, {ID: "me", Following: near}, {ID: "gone", Following: near}}
	for name, tt := range map[string]struct {
		see   statuses
		apply []applies
		want  *wire.Following
	}{
		"own":              {statuses{mine}, []applies{{following: near}}, near},
		"own, promoted":    {statuses{mine}, []applies{{}}, nil},
		"another's":        {statuses{another}, []applies{{}}, far},
		"another's, twice": {statuses{another, another}, []applies{{}}, far},
		"own and another's": {statuses{mine, another}, []applies{{following: near}},
			&wire.Following{Domain: "a", Behind: 5, AsOf: 3000, Down: 4000}},
		"own, one is not known": {statuses{mine, mine}, []applies{{following: near}, {following: unknown}},
			&wire.Following{Domain: "a", Behind: 2}},
		"no owner":               {statuses{nobody}, []applies{{following: unknown}}, unknown},
		"of an owner not listed": {statuses{{Role: lease.Standby, Lease: wire.Lease{Owner: "c"}}}, []applies{{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newTestNode(tt.see, tt.apply...)
			n.member = listing{tt.see, entries}
			if diff := cmp.Diff(tt.want, n.following()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(&wire.Following{Domain: "a", Behind: 2, AsOf: 5000}, near); diff != "" {
		t.Errorf("an entry was changed: %s", diff)
	}
}
