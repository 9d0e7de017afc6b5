package lease

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Fails if the clock of a process counts for the age of an entry.
func TestMembersAgeByTheServersClock(t *testing.T) {
	start := time.Unix(1000, 0)
	entry := func(id string, after time.Duration) listed {
		return listed{Member: wire.Member{ID: id}, Stored: start.Add(after)}
	}
	list := []listed{entry("newest", 300*time.Second), entry("old", 0), entry("late", 290*time.Second),
		entry("fresh", 299*time.Second)}
	if got := age(list, list[1]); got != 5*time.Minute {
		t.Errorf("the old one is %v old", got)
	}
	r := &roster{m: &Member{seams: noSeams()}, list: list}
	if got := r.Alive(); len(got) != 2 || got[0].ID != "fresh" || got[1].ID != "newest" {
		t.Errorf("alive %v", got)
	}
}
