package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// inDomain is JetStream of a server, whose streams are provisioned with logs of one identity.
func inDomain(t *testing.T, url string, o Options, identity int64) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for o.Shard = range o.Shards {
		if _, err := Provision(t.Context(), js, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range o.Prefix.MirrorStreams(o.Shards) {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			continue // snapshots are elsewhere
		}
		c := stream.CachedInfo().Config
		c.Metadata[wire.RegionKey] = wire.Region{Identity: identity}.String()
		if o.sharded() && name != o.Root() {
			c.Sources = nil // the test stores what they would
		}
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return js
}

// A region that is demoted may have other messages than the first region at the same sequences: the one of them has
// lost its end and has grown again. Then lapse demote saves those, and those alone; with several shards also
// configurations that no log has sourced.
func TestDemote_StampsDecide(t *testing.T) {
	urlA, urlB, link := natstest.StartJoined(t)
	for _, shards := range []int{1, 2} {
		o := options()
		o.Prefix, o.Shards, o.Objects = wire.Prefix([]string{"one", "two"}[shards-1]), shards, false
		a := inDomain(t, urlA, o, 7)
		link.Down() // writes for one region do not reach the other
		b := inDomain(t, urlB, o, 7)
		put := func(js jetstream.JetStream, subject, body string) {
			t.Helper()
			if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		log, root := o.Prefix.Log(0, shards), o.Root()
		write := o.Prefix.Write(wire.Upsert, "c", "1")
		if shards > 1 {
			write = log.Mapped(write)
		}
		put(a, write, "a")
		put(a, log.Tick(), "")
		put(a, write, "a too")
		put(b, write, "b")
		put(b, log.Tick(), "")
		put(b, write, "b too")
		want := []string{log.Stream() + " a", log.Stream() + " a too"}
		if shards > 1 {
			put(a, o.Prefix.Config("c"), "config")
			want = append([]string{root + " config"}, want...)
		}
		link.Up()
		origin, err := NewOrigin(a.Conn(), "b")
		if err != nil {
			t.Fatal(err)
		}
		if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
			asking, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := origin.Info(asking, root)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		d := &Demotion{JS: a, First: origin, Opts: o}
		saves := func(when string, want []string) {
			t.Helper()
			var alone []string
			if err := d.Alone(t.Context(), func(stream string, m jetstream.Msg) error {
				alone = append(alone, stream+" "+string(m.Data()))
				return nil
			}); err != nil || !slices.Equal(alone, want) {
				t.Errorf("%d shards, %s: saved are %q, %v, want %q", shards, when, alone, err, want)
			}
		}
		saves("at first", want)
		if shards > 1 { // a demotion is interrupted after it has removed a log
			if err := a.DeleteStream(t.Context(), log.Stream()); err != nil {
				t.Fatal(err)
			}
			other := o.Prefix.Log(1, shards)
			put(a, other.Mapped(o.Prefix.Write(wire.Upsert, "c", idOf(1))), "of the other log")
			saves("without the first log", []string{root + " config", other.Stream() + " of the other log"})
		}
	}
}

// idOf is the id of a document of a shard, of two.
func idOf(shard int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint(n); wire.ShardOf(2, "c", id) == shard {
			return id
		}
	}
}

// TestDemote_TruncatedThere: the first region has truncated messages that this region has. They count as the same if
// the message nearest to them is: its first one, or where it was promoted. Else all are compared, and saved. A region
// whose log is another one is left alone.
//
// It goes red if lapse demote passes over messages that nobody else has.
func TestDemote_TruncatedThere(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{JetStream: "domain: a"}), options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := js.Publish(t.Context(), o.log().Tick(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Log.Purge(t.Context(), jetstream.WithPurgeSequence(3)); err != nil {
		t.Fatal(err)
	}
	stamp := func(seq uint64) time.Time {
		m, err := s.Log.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		return m.Time
	}
	former := func(identity int64, last uint64, stamp time.Time) wire.Region {
		return wire.Region{Identity: 8, Former: []wire.Former{{Identity: identity, Last: last, Stamp: stamp.UnixNano()}}}
	}
	for _, row := range []struct {
		name       string
		here       string // metadata of the region
		there      wire.Region
		first      uint64 // message there
		stored     time.Time
		compared   uint64 // from there on
		refused    error
		elsewhere  bool // that is a mirror
		unreadable bool // its metadata
	}{
		{name: "it has all", there: wire.Region{Identity: 7}, first: 1, compared: 3},
		{name: "it begins where this one does", there: wire.Region{Identity: 7}, first: 3, compared: 3},
		{name: "its first is the same", there: wire.Region{Identity: 7}, first: 6, stored: stamp(6), compared: 6},
		{name: "its first is the last here", there: wire.Region{Identity: 7}, first: 10, stored: stamp(10), compared: 10},
		{name: "it was promoted before that", there: former(7, 8, stamp(7)), first: 10, stored: stamp(10), compared: 10},
		{name: "its first is another", there: wire.Region{Identity: 7}, first: 6, stored: stamp(7), compared: 3},
		{name: "it was promoted", there: former(7, 8, stamp(8)), first: 20, compared: 9},
		{name: "it was promoted with all", there: former(7, 10, stamp(10)), first: 20, compared: 11},
		{name: "it was promoted right before its first", there: former(7, 10, stamp(10)), first: 11, compared: 11},
		{name: "with another message", there: former(7, 8, stamp(7)), first: 20, compared: 3},
		{name: "with more than this one has", there: former(7, 11, stamp(10)), first: 20, compared: 3},
		{name: "another log was promoted", there: former(6, 8, stamp(8)), first: 20, refused: ErrLogChanged},
		{name: "this one continues that", here: former(6, 2, stamp(3)).String(), there: former(6, 8, stamp(8)), first: 20,
			compared: 9},
		{name: "a former one is not told apart", there: wire.Region{Identity: 7, Former: former(6, 8, stamp(8)).Former},
			first: 20, compared: 3},
		{name: "it follows another region", there: wire.Region{Identity: 7}, first: 1, refused: ErrMismatch,
			elsewhere: true},
		{name: "rubbish here", here: "rubbish", there: wire.Region{Identity: 7}, first: 1, refused: ErrMismatch},
		{name: "rubbish there", there: wire.Region{Identity: 7}, first: 1, refused: ErrMismatch, unreadable: true},
	} {
		c := s.Log.CachedInfo().Config
		setMetadata(&c, wire.RegionKey, cmp.Or(row.here, wire.Region{Identity: 7}.String()))
		here, err := js.UpdateStream(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		there := &jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: row.first, FirstTime: row.stored}}
		setMetadata(&there.Config, wire.RegionKey, row.there.String())
		if row.unreadable {
			setMetadata(&there.Config, wire.RegionKey, "rubbish")
		}
		if row.elsewhere {
			there.Config.Mirror = &jetstream.StreamSource{}
		}
		d := &Demotion{JS: js, First: &Origin{Domain: "b"}, Opts: o}
		from, err := d.comparable(t.Context(), here, there)
		if from != row.compared || (err != nil) != (row.refused != nil) || row.refused != nil && !errors.Is(err, row.refused) {
			t.Errorf("%s: compared from %d on, %v, want from %d, %v", row.name, from, err, row.compared, row.refused)
		}
		if err != nil {
			continue
		}
		seq := from - 1
		if err := d.read(t.Context(), here, from, func(m jetstream.Msg) error {
			meta, err := m.Metadata()
			if seq++; err == nil && meta.Sequence.Stream != seq {
				t.Errorf("%s: reads %d in place of %d", row.name, meta.Sequence.Stream, seq)
			}
			return err
		}); err != nil || seq != 10 {
			t.Errorf("%s: read from %d to %d, %v", row.name, from, seq, err)
		}
	}
}
