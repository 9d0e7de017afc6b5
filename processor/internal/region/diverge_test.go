package region

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
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

// TestJudge: a mirror that differs from the stream of the first region is to be removed, unless it may be the only copy of
// messages that were acknowledged: then nobody goes on without a person.
func TestJudge(t *testing.T) {
	const removed, later, none = "removed", "later", ""
	created := time.Unix(1000, 0)
	stamp := func(seq uint64, there int64) stamped { return stamped{seq, time.Unix(7, 0), time.Unix(there, 0)} }
	metadata := func(r wire.Region) map[string]string { return map[string]string{wire.RegionKey: r.String()} }
	for _, row := range []struct {
		name        string
		here, there uint64 // the last message
		change      func(*facts)
		want        string
		refusal     error
		says        string
	}{
		{"the same", 10, 10, nil, none, nil, ""},
		{"it is behind", 10, 12, nil, none, nil, ""},
		{"the first region has lost its end", 10, 8, nil, none, streams.ErrLogBehind,
			"ends at sequence 8, and the mirror here at 10"},
		{"it seems so", 10, 8, func(f *facts) { f.OutOfDate = true }, later, nil, ""},
		{"another stream is no old answer", 10, 8, func(f *facts) { f.OutOfDate, f.There.Created = true, created.Add(1) },
			none, streams.ErrLogChanged, "another stream LAPSE_LOG"},
		{"no only copy", 10, 8, func(f *facts) { f.OnlyCopy = false }, removed, nil, ""},
		{"a person has given it up", 10, 8, func(f *facts) { f.GivenUp = true }, removed, nil, ""},
		{"it has grown again", 10, 12, func(f *facts) { f.Stamps = []stamped{stamp(6, 7), stamp(8, 9), stamp(10, 9)} }, none,
			streams.ErrLogChanged, "message 8 of stream LAPSE_LOG was stored at 1970-01-01T00:00:09Z in the first region"},
		{"another stream", 10, 12, func(f *facts) { f.There.Created = created.Add(1) }, none, streams.ErrLogChanged,
			"another stream LAPSE_LOG"},
		{"another stream, and nothing here", 0, 12, func(f *facts) { f.There.Created = created.Add(1) }, removed, nil, ""},
		{"another stream, which has the last message", 10, 12, func(f *facts) {
			f.There.Created, f.Stamps = created.Add(1), []stamped{stamp(10, 7)}
		}, removed, nil, ""},
		{"another stream, which has another last message", 10, 12, func(f *facts) {
			f.There.Created, f.Stamps = created.Add(1), []stamped{stamp(9, 7), stamp(10, 8)}
		}, none, streams.ErrLogChanged, "another stream LAPSE_LOG"},
		{"another stream, which had an earlier message", 10, 12, func(f *facts) {
			f.There.Created, f.Stamps = created.Add(1), []stamped{stamp(9, 7)}
		}, none, streams.ErrLogChanged, "another stream LAPSE_LOG"},
		{"another region was promoted", 10, 10, func(f *facts) {
			f.There.Config.Metadata = metadata(wire.Region{Superseded: &wire.Promotion{Domain: "c"}})
		}, none, streams.ErrNotFirst, "is not the first any more: another region was promoted"},
		{"it follows another region", 10, 10, func(f *facts) {
			f.There.Config.Mirror, f.There.Config.Metadata = &jetstream.StreamSource{}, metadata(wire.Region{Follows: "c"})
		}, none, streams.ErrNotFirst, `it follows the one in the JetStream domain "c"`},
	} {
		info := func(last uint64) *jetstream.StreamInfo {
			return &jetstream.StreamInfo{Created: created, Config: jetstream.StreamConfig{Name: "LAPSE_LOG"},
				State: jetstream.StreamState{FirstSeq: 1, LastSeq: last, Msgs: last}}
		}
		f := facts{Domain: "a", Here: info(row.here), There: info(row.there), OnlyCopy: true}
		if row.change != nil {
			row.change(&f)
		}
		v := judge(f)
		got := none
		switch {
		case v.Removal != nil:
			got = removed
		case v.Later != nil:
			got = later
		}
		if got != row.want || (v.Refusal != nil) != (row.refusal != nil) {
			t.Errorf("%s: %+v", row.name, v)
		} else if row.refusal != nil && (!errors.Is(v.Refusal, row.refusal) || !strings.Contains(v.Refusal.Error(), row.says)) {
			t.Errorf("%s: it refuses with %v", row.name, v.Refusal)
		}
	}
}
