package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestWhatIsThere: the stamp of a message is told, and whether it is there. A stream that is not there hides no other one
// of the prefix, and no region opens without the snapshots. What is wrong with a stream is told with its name.
func TestWhatIsThere(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	o.Shards = 1
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	link, stop := WatchLink(js.Conn())
	defer stop()
	log := NewLog(s, link)
	if _, err := js.Publish(t.Context(), o.Prefix.Config("c"), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	m, err := s.Log.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[uint64]int64{1: m.Time.UnixNano(), 2: 0} {
		if at, found, err := log.Stamp(t.Context(), seq); err != nil || found != (want != 0) || at != want {
			t.Errorf("message %d was stored at %d: %t, %v; want %d", seq, at, found, err, want)
		}
	}
	if err := js.DeleteStream(t.Context(), o.Prefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	there, err := o.infos(t.Context(), js)
	if err != nil || len(there) != 2 || there[o.Root()] == nil || there[o.Prefix.SnapshotStream()] == nil {
		t.Errorf("without the stream of events there are %v, %v", there, err)
	}
	if _, err := Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), o.Prefix.SnapshotStream()); err != nil {
		t.Fatal(err)
	}
	if opened, err := OpenMirrors(t.Context(), js, o); err == nil {
		t.Errorf("opened without the snapshots: %+v", opened)
	}
	c := s.Log.CachedInfo().Config
	setMetadata(&c, wire.RegionKey, "rubbish")
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := reopen(t.Context(), js, o, wire.Promotion{}); err == nil || !strings.Contains(err.Error(),
		"stream "+o.Root()+": ") {
		t.Errorf("reopened with metadata that cannot be read: %v", err)
	}
}

// TestCompareEnds: a person who promotes a region reads, in order, which mirrors are not as the streams of the first
// region, and why.
func TestCompareEnds(t *testing.T) {
	t.Parallel()
	a, b, _ := natstest.StartJoined(t)
	o := options()
	o.Shards = 1
	f := &Facts{Here: map[string]*jetstream.StreamInfo{}, There: map[string]*jetstream.StreamInfo{}}
	p := &Promotion{Opts: o, Domain: "b"}
	names := o.Prefix.MirrorStreams(1)
	for _, url := range []string{a, b} {
		nc, err := nats.Connect(url, natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, infos := natstest.JetStream(t, nc), f.There
		if url == b {
			p.JS, infos = js, f.Here
		}
		for i, name := range names {
			subject := fmt.Sprintf("in.%s.%d", strings.TrimPrefix(url, "nats://"), i)
			stream := natstest.CreateStream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{strings.ReplaceAll(subject,
				":", ".")}, Storage: jetstream.MemoryStorage})
			for range 2 {
				if url == a && i == 0 && stream.CachedInfo().State.LastSeq > 0 {
					continue // it has lost its end
				}
				if _, err := js.Publish(t.Context(), strings.ReplaceAll(subject, ":", "."), nil); err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Info(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if infos[name] = stream.CachedInfo(); url == b {
				infos[name].Config.Mirror = &jetstream.StreamSource{Name: name}
			}
		}
	}
	var err error
	if p.Origin, err = NewOrigin(p.JS.Conn(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		f.Differ = nil
		return p.compareEnds(ctx, f)
	}); err != nil {
		t.Fatal(err)
	}
	if len(f.Differ) != len(names) || !slices.IsSorted(f.Differ) {
		t.Errorf("of %v differ %q", names, f.Differ)
	}
	for i, name := range names {
		want := "message 2 of stream " + name + " was stored at"
		if i == 0 {
			want = "the mirror " + name + " ends at sequence 2, and the first region's at 1: it has lost its end"
		}
		if !slices.ContainsFunc(f.Differ, func(said string) bool { return strings.HasPrefix(said, want) }) {
			t.Errorf("%q is missing in %q", want, f.Differ)
		}
	}
	f.Here[names[1]].Config.Mirror, f.Differ = nil, nil // the region's own by now
	if err := p.compareEnds(t.Context(), f); err != nil || len(f.Differ) != len(names)-1 {
		t.Errorf("%v, %q", err, f.Differ)
	}
	for name, lacks := range map[string]func(){
		"the first region answers no more": func() { p.Origin.Domain = "nowhere" },
		"a mirror is there no more":        func() { f.Here["GONE"], f.There["GONE"] = f.Here[names[2]], f.There[names[2]] },
	} {
		was := *p.Origin
		lacks()
		if err := p.compareEnds(t.Context(), f); err == nil {
			t.Errorf("%s, and the ends count as compared", name)
		}
		*p.Origin = was
		delete(f.Here, "GONE")
	}
}
