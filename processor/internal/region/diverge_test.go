package region

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestPlaces: a follower compares the last message that both streams have, where the two were the same before, where
// the mirror has ended while the first region did not answer and, once, samples of what was mirrored while no follower
// ran. It compares only messages that both have.
func TestPlaces(t *testing.T) {
	state := func(first, last uint64) jetstream.StreamState {
		return jetstream.StreamState{FirstSeq: first, LastSeq: last}
	}
	for _, row := range []struct {
		name        string
		k           compared
		here, there jetstream.StreamState
		want        []uint64
	}{
		{"empty", compared{}, state(0, 0), state(0, 0), nil},
		{"one message", compared{}, state(1, 1), state(1, 1), []uint64{1}},
		{"samples from the first of both on", compared{}, state(3, 6), state(4, 9), []uint64{4, 5, 6}},
		{"samples from what was the same on", compared{upTo: 5}, state(1, 8), state(1, 7), []uint64{5, 6, 7}},
		{"sampled", compared{upTo: 5, sampled: true}, state(1, 8), state(1, 9), []uint64{5, 8}},
		{"where it has ended", compared{upTo: 5, highs: []uint64{2, 3, 6, 9}, sampled: true}, state(3, 8), state(1, 9),
			[]uint64{3, 5, 6, 8}},
		{"the first region has truncated", compared{upTo: 5, highs: []uint64{6}, sampled: true}, state(1, 8), state(7, 8),
			[]uint64{8}},
	} {
		if got := row.k.places(row.here, row.there); !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
	many := new(compared).places(state(1, 100_000), state(1, 100_000))
	if n := len(many); n != mostSamples+1 || many[0] != 1 || many[n-1] != 100_000 {
		t.Errorf("of 100,000 messages %d are compared, from %d to %d", n, many[0], many[n-1])
	}
}
