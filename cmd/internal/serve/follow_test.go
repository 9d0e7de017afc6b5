package serve

import (
	"testing"
	"testing/synctest"
	"time"

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

// TestStale: reads are refused once they are further behind than they may be, or while that is not known.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{maxStaleness: time.Minute}
		ago := func(d time.Duration) *wire.Following {
			return &wire.Following{AsOf: wire.Time(time.Now().Add(-d).UnixMilli())}
		}
		for _, c := range []struct {
			name string
			f    *wire.Following
			want bool
		}{
			{"the first region", nil, false},
			{"as much as it may be", ago(time.Minute), false},
			{"more", ago(time.Minute + time.Millisecond), true},
			{"unknown", &wire.Following{}, true},
		} {
			if err := n.stale(c.f); (err != nil) != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if n.maxStaleness = 0; n.stale(ago(time.Hour)) != nil {
			t.Error("it is refused without a limit")
		}
	})
}
