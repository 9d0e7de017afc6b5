package streams

import (
	"context"
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
		var alone []string
		d := &Demotion{JS: a, First: origin, Opts: o}
		if err := d.Alone(t.Context(), func(stream string, m jetstream.Msg) error {
			alone = append(alone, stream+" "+string(m.Data()))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(alone, want) {
			t.Errorf("%d shards: saved are %q, want %q", shards, alone, want)
		}
	}
}
