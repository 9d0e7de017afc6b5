package lease

import (
	"testing"
	"time"
)

// A process is about to take a shard, and does not know yet whether another one is quicker. Fails
// if it counts the shard as its own, and hands another one over.
func TestL10_AShardThatIsBeingTakenMovesNothing(t *testing.T) {
	p := startNATS(t).prepare("a", Options{Shards: 4}, func(s *seams) {
		s.view = func(v *view) { v.Members = []candidate{{ID: "a", Settled: true}, {ID: "b", Settled: true}} }
	})
	ago := func() time.Duration { return p.now() - time.Minute }
	for shard, owner := range []string{"b", "a", "", "a"} {
		p.owners.Set(shard, owner, ago())
	}
	moves := func(what string, want int) {
		t.Helper()
		view, _, calm := p.known()
		got := view.Moves()
		if calm == 0 {
			got = nil
		}
		if len(got) != want {
			t.Errorf("%s: %v, want %d moves", what, got, want)
		}
	}
	done := p.owners.Take(2, "a", ago)
	moves("it is being taken", 0)
	done(false)
	moves("nobody knows who has it", 0)
	p.owners.Set(2, "b", ago())
	moves("another process was quicker", 0)
	p.owners.Take(2, "a", ago)(true)
	moves("it was taken", 1)
}
