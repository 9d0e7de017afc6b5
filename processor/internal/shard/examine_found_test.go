package shard

import (
	"testing"

	"github.com/seed18712806/lapse/sink/store"
)

// TestG7_Lacks: a shard lacks what it had behind its offset, by its own mark, by the checkpoint, or as the
// owner remembers it. It lacks nothing at the offset itself: readers get answers from there on.
func TestG7_Lacks(t *testing.T) {
	state := store.State{Version: "v", Offset: 10}
	rebuilding := state
	rebuilding.Rebuild = 12
	for _, tt := range []struct {
		state      store.State
		checkpoint uint64
		known      known
		want       uint64
	}{
		{state, 0, known{}, 0},
		{state, 10, known{}, 0},
		{state, 11, known{}, 11},
		{rebuilding, 11, known{}, 12},
		{rebuilding, 13, known{}, 13},
		{state, 0, known{EverTaken: true, Committed: 10}, 0},
		{state, 11, known{EverTaken: true, Committed: 14}, 14},
		{state, 11, known{Committed: 14}, 11},
		{store.State{}, 11, known{}, 20},
	} {
		v := verdict{facts: &facts{State: tt.state}, trial: trial{Known: Checkpoint{Seq: tt.checkpoint}}}
		if got := v.Rebuild(tt.known, 20); got != tt.want {
			t.Errorf("%+v, checkpoint %d, %+v: it lacks what is up to %d, want %d", tt.state, tt.checkpoint, tt.known, got, tt.want)
		}
	}
}
