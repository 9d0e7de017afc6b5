package region

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// A follower follows only what is first, and what its mirrors are mirrors of. What differs is made anew where nothing
// is lost with it, and refused where the mirror may be the only copy.
//
// It fails if a mirror is judged by its log alone (F5), or a region counts as the first that was superseded (F6).
func TestJudge(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	identity := func(region wire.Region) map[string]string { return map[string]string{wire.RegionKey: region.String()} }
	for _, row := range []struct {
		name    string
		f       func(*facts)
		anew    string // part of the verdict
		later   string
		refusal string
	}{
		{"it is the same", func(*facts) {}, "", "", ""},
		{"the first region is ahead", func(f *facts) { f.There.State.LastSeq = 30 }, "", "", ""},
		{"the first region was superseded", func(f *facts) {
			f.There.Config.Metadata = identity(wire.Region{Identity: 7, Superseded: &wire.Promotion{Domain: "c"}})
		}, "", "", "not the first any more"},
		{"the first region follows another one", func(f *facts) {
			f.There.Config.Metadata = identity(wire.Region{Identity: 7, Follows: "c"})
			f.There.Config.Mirror = &jetstream.StreamSource{}
		}, "", "", `it follows the one in the JetStream domain "c"`},
		{"the end of an only copy", func(f *facts) { f.There.State.LastSeq = 15; f.Stamps = f.Stamps[:1] }, "", "",
			"has lost its end, and this region has it"},
		{"the end of events", func(f *facts) {
			f.There.State.LastSeq, f.Stamps, f.OnlyCopy = 15, f.Stamps[:1], false
		}, "ends at sequence 15", "", ""},
		{"a replica says so", func(f *facts) { f.There.State.LastSeq, f.Stamps, f.OutOfDate = 15, f.Stamps[:1], true }, "",
			"may be out of date", ""},
		{"a person has given it up", func(f *facts) { f.There.State.LastSeq, f.Stamps, f.GivenUp = 15, f.Stamps[:1], true },
			"ends at sequence 15", "", ""},
		{"another message in an only copy", func(f *facts) { f.Stamps[1].There = at(21) }, "", "", "has grown again"},
		{"another message of the events", func(f *facts) { f.Stamps[1].There, f.OnlyCopy = at(21), false }, "was stored at",
			"", ""},
		{"another log", func(f *facts) { f.There.Config.Metadata = identity(wire.Region{Identity: 8}); f.Stamps = nil }, "",
			"", "has another stream"},
		{"another log, and the mirror is empty", func(f *facts) {
			f.There.Config.Metadata, f.Stamps, f.Here.State = identity(wire.Region{Identity: 8}), nil, jetstream.StreamState{}
		}, "has another stream", "", ""},
	} {
		f := facts{
			Domain: "a", OnlyCopy: true,
			Here:   &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1, LastSeq: 20, Msgs: 20}},
			There:  &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1, LastSeq: 20, Msgs: 20}},
			Stamps: []stamped{{10, at(10), at(10)}, {20, at(20), at(20)}},
		}
		f.Here.Config = jetstream.StreamConfig{Name: "LAPSE_LOG", Metadata: identity(wire.Region{Identity: 7, Follows: "a"}),
			Mirror: &jetstream.StreamSource{}}
		f.There.Config = jetstream.StreamConfig{Name: "LAPSE_LOG", Metadata: identity(wire.Region{Identity: 7})}
		row.f(&f)
		v := judge(f)
		var later, refusal string
		if v.Later != nil {
			later = v.Later.Error()
		}
		if v.Refusal != nil {
			refusal = v.Refusal.Error()
		}
		for _, one := range [][2]string{{v.Anew, row.anew}, {later, row.later}, {refusal, row.refusal}} {
			if (one[1] == "") != (one[0] == "") || !strings.Contains(one[0], one[1]) {
				t.Errorf("%s: %q, want %q", row.name, one[0], one[1])
			}
		}
	}
}
