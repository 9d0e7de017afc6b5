package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestOpenMirrors: a region opens only with all its streams, which have to be of this format and of as many shards. It
// is told which one is wrong.
func TestOpenMirrors(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	o.Shards = 2
	provision := func() *Streams {
		t.Helper()
		var s *Streams
		for o.Shard = range o.Shards {
			var err error
			if s, err = Provision(t.Context(), js, o); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	want := provision()
	s, err := OpenMirrors(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	for what, have := range map[string][2]string{
		"log":         {s.Log.CachedInfo().Config.Name, o.Prefix.Log(1, 2).Stream()},
		"configs":     {s.Configs.CachedInfo().Config.Name, o.Prefix.ConfigStream()},
		"events":      {s.Events.CachedInfo().Config.Name, o.Prefix.EventsStream()},
		"checkpoints": {s.Checkpoints.Bucket(), o.Prefix.CheckpointBucket()},
		"snapshots":   {s.Snapshots.Stream().CachedInfo().Config.Name, o.Prefix.SnapshotStream()},
	} {
		if have[0] != have[1] {
			t.Errorf("the %s are %s, want %s", what, have[0], have[1])
		}
	}
	if s.ID != want.ID || s.MaxBody != want.MaxBody || s.MaxLevels != want.MaxLevels {
		t.Errorf("the limits are %+v, want %+v", s, want)
	}
	for key, kind := range map[string]error{wire.ShardsKey: ErrMismatch, wire.FormatKey: wire.ErrFormat,
		maxLevelsKey: ErrMismatch, wire.RegionKey: ErrMismatch} {
		s := provision()
		c := s.Log.CachedInfo().Config
		was := c.Metadata[key]
		setMetadata(&c, key, "9x")
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenMirrors(t.Context(), js, o); !errors.Is(err, kind) ||
			!strings.Contains(err.Error(), s.Log.CachedInfo().Config.Name) {
			t.Errorf("opened a log whose %s is 9x: %v", key, err)
		}
		if setMetadata(&c, key, was); was == "" {
			delete(c.Metadata, key)
		}
		if _, err := js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range o.Mirrored() { // the root is the last
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenMirrors(t.Context(), js, o); !errors.Is(err, jetstream.ErrStreamNotFound) ||
			!strings.Contains(err.Error(), strings.TrimPrefix(name, "OBJ_")) {
			t.Errorf("opened without %s: %v", name, err)
		}
		if name != o.Root() {
			provision()
		}
	}
}

// TestConsumersAreMadeAgain: a person removes the mirror of the events. The durable consumers that it had are there
// again in the next one, behind what they had acknowledged, but not behind what both regions have: no event is passed
// over. One that its user has made anew meanwhile stays, and keeps none of the others away.
func TestConsumersAreMadeAgain(t *testing.T) {
	t.Parallel()
	ctx, o := t.Context(), options()
	js := natstest.Connect(t, natstest.Options{})
	var said bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&said, nil))
	if err := restoreConsumers(ctx, js, o); err != nil {
		t.Errorf("before there is a bucket: %v", err)
	}
	s, err := Provision(ctx, js, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := restoreConsumers(ctx, js, o); err != nil {
		t.Errorf("nothing is noted: %v", err)
	}
	for n := range 6 {
		if _, err := js.Publish(ctx, o.Prefix.Expired("c", fmt.Sprint(n)), nil); err != nil {
			t.Fatal(err)
		}
	}
	name := o.Prefix.EventsStream()
	begins := func(durable string) uint64 {
		t.Helper()
		consumer, err := js.Consumer(ctx, name, durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return consumer.CachedInfo().Config.OptStartSeq
	}
	after := time.Now().Add(-time.Hour)
	for durable, acknowledged := range map[string]int{"again": 1, "behind": 2, "near": 5} {
		consumer, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: durable,
			AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &after})
		if err != nil {
			t.Fatal(err)
		}
		for range acknowledged {
			m, err := consumer.Next()
			if err == nil {
				err = m.DoubleAck(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Name: "passing"}); err != nil {
		t.Fatal(err)
	}
	var revision uint64
	for range 2 {
		if err := s.NoteConsumers(ctx, 3); err != nil {
			t.Fatal(err)
		}
		_, now, err := s.Value(ctx, consumersKey)
		if err != nil || now == 0 || revision != 0 && now != revision {
			t.Errorf("noted at revision %d, and then at %d, %v", revision, now, err)
		}
		revision = now
	}
	if err := restoreConsumers(ctx, js, o); err != nil || begins("behind") != 0 {
		t.Errorf("nobody has removed the mirror: %v", err)
	}
	if _, still, err := s.Value(ctx, consumersKey); err != nil || still != revision {
		t.Errorf("it is no longer noted for when somebody does: %v", err)
	}
	if err := js.DeleteStream(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := restoreConsumers(ctx, js, o); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a mirror: %v", err)
	}
	if s, err = Provision(ctx, js, o); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "again"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := restoreConsumers(ctx, js, o); err != nil {
			t.Fatal(err)
		}
	}
	for durable, want := range map[string]uint64{"again": 0, "behind": 3, "near": 4, "passing": 0} {
		if got := begins(durable); got != want {
			t.Errorf("the consumer %s begins at %d, want %d", durable, got, want)
		}
	}
	if n := strings.Count(said.String(), "was not made again"); n != 1 || !strings.Contains(said.String(), "again") {
		t.Errorf("it says %s", &said)
	}
	forgotten := func(when string) {
		t.Helper()
		if value, _, err := s.Value(ctx, consumersKey); value != nil || err != nil {
			t.Errorf("%s, it is still noted: %s, %v", when, value, err)
		}
	}
	forgotten("once they are made again")
	if err := s.NoteConsumers(ctx, 3); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.ForgetConsumers(ctx); err != nil {
			t.Fatal(err)
		}
		forgotten("once it is forgotten")
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := errors.Join(s.NoteConsumers(ended, 3), restoreConsumers(ended, js, o)); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	forgotten("a list that was not complete")
	if _, err := s.Checkpoints.Put(ctx, consumersKey, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := restoreConsumers(ctx, js, o); err == nil {
		t.Error("a note that cannot be read is taken for none")
	}
}

// TestMirrorMetadata: a mirror has the metadata of its original, whose log it has, and names whom it follows. What the
// server notes in the original is not the mirror's, and the mark of a promotion there neither.
func TestMirrorMetadata(t *testing.T) {
	original := &jetstream.StreamInfo{Created: time.Unix(0, 5), Config: jetstream.StreamConfig{Name: "LAPSE_LOG"}}
	for _, row := range []struct{ region, want wire.Region }{
		{wire.Region{}, wire.Region{Identity: 5, Follows: "a"}},
		{wire.Region{Identity: 7, Former: []wire.Former{{Identity: 6, Last: 3}}, Promotion: &wire.Promotion{Domain: "a"}},
			wire.Region{Identity: 7, Follows: "a", Former: []wire.Former{{Identity: 6, Last: 3}}}},
	} {
		original.Config.Metadata = map[string]string{wire.FormatKey: "3", "_nats.ver": "2", wire.RegionKey: row.region.String()}
		want := map[string]string{wire.FormatKey: "3", wire.RegionKey: row.want.String()}
		if got, err := mirrorMetadata(original, "a"); err != nil || !maps.Equal(got, want) {
			t.Errorf("the metadata are %v, %v, want %v", got, err, want)
		}
	}
	original.Config.Metadata[wire.RegionKey] = "rubbish"
	if got, err := mirrorMetadata(original, "a"); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "LAPSE_LOG") {
		t.Errorf("of an original whose region cannot be read: %v, %v", got, err)
	}
}
