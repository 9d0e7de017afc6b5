package lease

import (
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Fails if a member counts as settled at once, or still after it has had a problem, was away or
// did not take a shard; or if a list of a replica that lags behind counts as current.
func TestMembersSettle(t *testing.T) {
	r := newRoster(nil, nil, rosterOptions{ID: "me", Terms: Terms{Away: 8 * time.Second, Settle: 10 * time.Second, Well: 3 * time.Second, Doubt: time.Minute}})
	now := time.Now()
	list := func(problem string) []listed {
		return []listed{{Member: wire.Member{ID: "me"}, Revision: 7, Stored: now},
			{Member: wire.Member{ID: "b", Problem: problem}, Revision: 5, Stored: now}}
	}
	expect := func(what string, settled, current bool) {
		t.Helper()
		members, known := r.Alive()
		i := slices.IndexFunc(members, func(m candidate) bool { return m.ID == "b" })
		if i < 0 || members[i].Settled != settled || known != current {
			t.Errorf("%s: %+v, current %t", what, members, known)
		}
	}
	r.learn(list(""), 7, now)
	expect("at once", false, true)
	r.learn(list(""), 7, now.Add(-11*time.Second)) // does not count anew
	expect("listed again", false, true)
	r = newRoster(nil, nil, r.opts)
	r.learn(list(""), 7, now.Add(-11*time.Second))
	expect("after a while", true, true)
	r.learn(list(""), 8, now)
	expect("in a list that is too old", true, false)
	r.Doubt("nobody")
	r.Doubt("b")
	expect("after it did not take a shard", false, false)
	r = newRoster(nil, nil, r.opts)
	r.learn(list(""), 7, now.Add(-11*time.Second))
	r.learn(list("it is slow"), 7, now)
	r.learn(list(""), 7, now)
	expect("after a problem", false, true)
	r = newRoster(nil, nil, r.opts)
	r.learn(list("it takes over"), 7, now.Add(-11*time.Second))
	r.learn(list(""), 7, now)
	expect("a while after a problem", true, true)
	r.Doubt("b")
	r.outdated()
	expect("after a refresh that failed", false, false)
}

func TestMembersAgeByTheServersClock(t *testing.T) {
	start := time.Unix(1000, 0)
	entry := func(id string, after time.Duration) listed {
		return listed{Member: wire.Member{ID: id}, Stored: start.Add(after)}
	}
	list := []listed{entry("old", 0), entry("late", 290*time.Second), entry("fresh", 299*time.Second), entry("newest", 300*time.Second)}
	if got := alive(list, 8*time.Second); len(got) != 2 || got[0].ID != "fresh" || got[1].ID != "newest" {
		t.Errorf("alive %v", got)
	}
	if got := gone(list, 5*time.Minute); len(got) != 1 || got[0].ID != "old" {
		t.Errorf("gone %v", got)
	}
	if alive(nil, time.Second) != nil || gone(nil, time.Second) != nil {
		t.Error("there is somebody in an empty list")
	}
}
