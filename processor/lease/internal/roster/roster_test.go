package roster

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/lease/internal/bucket"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMembersAgeByTheServersClock(t *testing.T) {
	start := time.Unix(1000, 0)
	entry := func(id string, after time.Duration) bucket.Member {
		return bucket.Member{Member: wire.Member{ID: id}, Stored: start.Add(after)}
	}
	list := []bucket.Member{entry("old", 0), entry("late", 290*time.Second), entry("fresh", 299*time.Second), entry("newest", 300*time.Second)}
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
