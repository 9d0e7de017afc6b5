package streams

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// planned are facts by which a promotion is not refused: region b follows region a, and all is well.
func planned(o Options, drain bool) *Facts {
	f := &Facts{Domain: "b", Drain: drain, Here: map[string]*jetstream.StreamInfo{},
		There: map[string]*jetstream.StreamInfo{}}
	f.Role = Role{Region: wire.Region{Identity: 7, Follows: "a"}, Exists: true, Mirror: true}
	f.Seen = &Seen{Running: true, Following: &wire.Following{Domain: "a", AsOf: 1}}
	if !drain {
		f.Reach = Reach{Silent: true}
		f.Seen.Following.Down = 1
	}
	o.levels = maxLevels
	configs := append([]jetstream.StreamConfig{o.eventsConfig("7"),
		{Name: o.Prefix.SnapshotStream(), Metadata: map[string]string{}}}, o.configsConfig())
	for o.Shard = range o.Shards {
		configs = append(configs, o.logConfig("7"))
	}
	for _, c := range configs {
		if !slices.Contains(o.Prefix.MirrorStreams(o.Shards), c.Name) {
			continue
		}
		c.Metadata[wire.RegionKey] = wire.Region{Identity: 7}.String()
		f.There[c.Name] = &jetstream.StreamInfo{Config: c}
		c.Metadata = maps.Clone(c.Metadata)
		c.Metadata[wire.RegionKey] = wire.Region{Identity: 7, Follows: "a"}.String()
		c.Mirror = &jetstream.StreamSource{Name: c.Name, External: &jetstream.ExternalStream{APIPrefix: "$JS.a.API"}}
		c.Subjects, c.SubjectTransform, c.Sources = nil, nil, nil
		f.Here[c.Name] = &jetstream.StreamInfo{Config: c}
	}
	if !drain {
		f.There = map[string]*jetstream.StreamInfo{}
	}
	return f
}

// Everything that a promotion depends on is checked before anything is changed. Each row is one thing that is wrong.
func TestPlan(t *testing.T) {
	root := func(r wire.Region) func(*Facts) {
		return func(f *Facts) { f.There["LAPSE_CONFIG"].Config.Metadata[wire.RegionKey] = r.String() }
	}
	const inItsPlace = `the region in the JetStream domain "a" is not the first any more: the one in "c" was promoted in ` +
		`its place, and there can be one first region: run lapse demote --first c here, and then lapse serve --follow c`
	for _, row := range []struct {
		name    string
		drain   bool
		wrong   func(*Facts)
		refused string // part of the reason; "" if it is promoted
		force   bool   // a person can override it
	}{
		{"all is well", true, func(*Facts) {}, "", false},
		{"the first region is lost", false, func(*Facts) {}, "", false},
		{"it answers", false, func(f *Facts) { f.Reach = Reach{} }, "the first region answers", true},
		{"it answers with an error", false, func(f *Facts) { f.Reach = Reach{Err: errors.New("insufficient resources")} },
			"insufficient resources", true},
		{"it answers the processes", false, func(f *Facts) { f.Seen.Following.Down = 0 }, "may lack a permission", true},
		{"no answer comes, and no process says that the link is down", false,
			func(f *Facts) { f.Reach, f.Seen = Reach{Late: true}, &Seen{} }, "no answer came", true},
		{"no answer, and the link is down", false, func(f *Facts) { f.Reach = Reach{Late: true} }, "", false},
		{"nothing answers, and no process runs", false, func(f *Facts) { f.Seen = &Seen{} }, "", false},
		{"it cannot hand over", true, func(f *Facts) { f.Reach = Reach{Silent: true} }, "cannot hand over", false},
		{"another region took its place", true, root(wire.Region{Identity: 7, Superseded: &wire.Promotion{Domain: "c"}}),
			inItsPlace, false},
		{"it follows another region", true, root(wire.Region{Identity: 7, Follows: "c"}), inItsPlace, false},
		{"it has handed over to this one", true, root(wire.Region{Identity: 8, Superseded: &wire.Promotion{Domain: "b"}}), "",
			false},
		{"its log cannot be read", true,
			func(f *Facts) { f.There["LAPSE_CONFIG"].Config.Metadata[wire.RegionKey] = "rubbish" },
			`the log of the region in the JetStream domain "a": `, false},
		{"another log", true, func(f *Facts) { f.Role.Identity = 8 }, "another log", false},
		{"Redis is down", true, func(f *Facts) { f.Seen.Problems = []string{"redis: connection refused"} },
			"not ready here: redis", true},
		{"no process runs", true, func(f *Facts) { f.Seen = &Seen{} }, "no process of lapse runs here", true},
		{"the mirror is far behind", true, func(f *Facts) { f.There["LAPSE_LOG_1"].State.LastSeq = nearEnough + 1 },
			"LAPSE_LOG_1 is 10001 messages behind", true},
		{"Redis is far behind", true, func(f *Facts) { f.Seen.Following.Behind = nearEnough + 1 }, "has not applied 10001",
			true},
		{"other messages", true, func(f *Facts) { f.Differ = []string{"message 5 differs"} }, "message 5 differs", true},
		{"a stream is missing", true, func(f *Facts) { delete(f.Here, "LAPSE_EVENTS") }, "there is no stream LAPSE_EVENTS",
			false},
		{"no permission", true, func(f *Facts) { f.Denied = []string{"it cannot be changed"} }, "it cannot be changed",
			false},
		{"another stream takes the writes", true, func(f *Facts) { f.Overlap = []string{"OTHER listens"} }, "OTHER listens",
			false},
		{"no mapping", true, func(f *Facts) { f.Mapping = ErrMapping }, ErrMapping.Error(), false},
		{"a limit that lapse refuses", true, func(f *Facts) { f.Here["LAPSE_LOG_0"].Config.MaxMsgsPerSubject = 1 },
			"max_msgs_per_subject", false},
		{"no mirror", true, func(f *Facts) { f.Here["LAPSE_EVENTS"].Config.Mirror = nil }, "LAPSE_EVENTS is no mirror",
			false},
		{"the first already", true, func(f *Facts) { f.Role = Role{Exists: true} }, "the first already", false},
		{"superseded", true, func(f *Facts) { f.Role.Superseded = &wire.Promotion{Domain: "c"} }, "lapse demote", false},
		{"nothing there", true, func(f *Facts) { f.Role = Role{} }, "nothing to promote", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := Options{Prefix: wire.DefaultPrefix, Shards: 2, Objects: true, MaxPayload: 1 << 20}
			f := planned(o, row.drain)
			row.wrong(f)
			p := PlanPromotion(f, o)
			if got := strings.Join(p.Refused, "; "); row.refused == "" && got != "" || !strings.Contains(got, row.refused) {
				t.Errorf("it is refused with %q, want %q", got, row.refused)
			}
			f.Force = true
			if p := PlanPromotion(f, o); (p.Err() == nil) != (row.force || row.refused == "") {
				t.Errorf("with --force: %v", p.Err())
			} else if row.force && !strings.Contains(strings.Join(p.Overrides, "; "), row.refused) {
				t.Errorf("--force says that it overrides %q", p.Overrides)
			}
		})
	}
}

// TestHindrances: a promotion that is run again is not refused because the processes have stopped for it. Without one
// that has begun they have to be ready.
//
// It goes red if all problems of a process count, or none.
func TestHindrances(t *testing.T) {
	o := Options{Prefix: wire.DefaultPrefix, Shards: 1, Objects: true, MaxPayload: 1 << 20}
	began := &wire.Promotion{Domain: "b", From: "a", Drain: true}
	for _, row := range []struct {
		name   string
		began  *wire.Promotion
		seen   Seen
		refuse bool
	}{
		{"they have stopped for it", began, Seen{Stopped: []string{"a promotion has begun"}}, false},
		{"they have stopped for one that was undone", nil, Seen{Stopped: []string{"a promotion has begun"}}, true},
		{"Redis is down", began, Seen{Problems: []string{"redis: refused"}, Stopped: []string{"a promotion has begun"}},
			true},
	} {
		f := planned(o, true)
		row.seen.Running = true
		f.Role.Promotion, f.Seen = row.began, &row.seen
		if p := PlanPromotion(f, o); (p.Err() != nil) != row.refuse || f.Hindered() != row.refuse {
			t.Errorf("%s: %v", row.name, p.Err())
		}
	}
}

// Events may be kept for a shorter time than lapse remembers ids: nats-server refuses a window that is longer than the
// age. A mirror in a cluster has none.
func TestPlan_WindowWithinTheAge(t *testing.T) {
	o := Options{Prefix: wire.DefaultPrefix, Shards: 1, MaxPayload: 1 << 20}
	have := jetstream.StreamConfig{MaxAge: 30 * time.Second, Metadata: map[string]string{}}
	if got := opened(have, o.eventsConfig("7")).Duplicates; got != have.MaxAge {
		t.Errorf("the window is %s, want %s", got, have.MaxAge)
	}
}

// An interrupted promotion names the step that is next.
func TestPlan_Next(t *testing.T) {
	o := Options{Prefix: wire.DefaultPrefix, Shards: 1, Objects: true, MaxPayload: 1 << 20}
	f := planned(o, true)
	want := func(part string) {
		t.Helper()
		if got := next(o.steps(f)); !strings.Contains(got, part) {
			t.Errorf("the next step is to %s, want to %s", got, part)
		}
	}
	want("has begun")
	f.Role.Promotion = &wire.Promotion{Domain: "b", From: "a", Drain: true}
	want("hand over")
	events := &f.Here["LAPSE_EVENTS"].Config
	events.Mirror, events.Subjects = nil, []string{ClosedSubject("b", "LAPSE_EVENTS")}
	want("mirror LAPSE_EVENTS")
	events.Subjects = o.Prefix.EventSubjects()
	want("mirror OBJ_LAPSE_SNAPSHOTS")
	f.Here["OBJ_LAPSE_SNAPSHOTS"].Config.Mirror = nil
	want("mirror LAPSE_LOG")
	for _, info := range f.Here {
		info.Config.Mirror, info.Config.Subjects = nil, []string{"x"}
	}
	want("has ended")
}
