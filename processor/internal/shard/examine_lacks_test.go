package shard

import (
	"testing"

	"github.com/seed18712806/lapse/sink/store"
)

// TestG7_WhatAShardLacks: a shard in Redis that is older than it was lacks all that came since,
// and readers get errors until it has that again. How far it was is known from the rebuild that has not
// ended, from the checkpoint, and to its owner from the last commit.
//
// It fails if one of them does not count: readers would get what Redis has gone back to.
func TestG7_WhatAShardLacks(t *testing.T) {
	for name, tt := range map[string]struct {
		state      store.State
		checkpoint uint64
		known      known
		want       uint64
	}{
		"there is no state":             {store.State{}, 5, known{EverTaken: true, Committed: 7}, 99},
		"nothing is known of it":        {store.State{Version: "v", Offset: 10}, 0, known{}, 0},
		"it is as far as it was":        {store.State{Version: "v", Offset: 10}, 10, known{EverTaken: true, Committed: 10}, 0},
		"it is farther":                 {store.State{Version: "v", Offset: 10}, 9, known{EverTaken: true, Committed: 9}, 0},
		"the checkpoint is farther":     {store.State{Version: "v", Offset: 10}, 11, known{}, 11},
		"its last commit is farther":    {store.State{Version: "v", Offset: 10}, 9, known{EverTaken: true, Committed: 11}, 11},
		"a commit of another life":      {store.State{Version: "v", Offset: 10}, 9, known{Committed: 11}, 0},
		"it is being rebuilt":           {store.State{Version: "v", Offset: 10, Rebuild: 20}, 11, known{EverTaken: true, Committed: 12}, 20},
		"it has just been rebuilt":      {store.State{Version: "v", Offset: 10, Rebuild: 10}, 0, known{}, 0},
		"it went back while rebuilding": {store.State{Version: "v", Offset: 10, Rebuild: 11}, 20, known{EverTaken: true, Committed: 12}, 20},
	} {
		v := verdict{facts: &facts{State: tt.state}, trial: trial{Known: Checkpoint{Seq: tt.checkpoint}}}
		if got := v.Rebuild(tt.known, 99); got != tt.want {
			t.Errorf("%s: it lacks what came up to %d, want %d", name, got, tt.want)
		}
	}
}
