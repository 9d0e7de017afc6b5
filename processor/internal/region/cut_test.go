package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

func options() streams.Options {
	return streams.Options{Prefix: wire.DefaultPrefix, Shards: 1, MaxPayload: 1 << 20,
		Logger: slog.New(slog.DiscardHandler)}
}

// over makes a follower over streams of its region. The first region is that in the JetStream domain a.
func over(t *testing.T, js jetstream.JetStream, s *streams.Streams) *Follower {
	t.Helper()
	f := newFollower(t)
	link, stop := streams.WatchLink(js.Conn())
	t.Cleanup(stop)
	var err error
	if f.Origin, err = streams.NewOrigin(js.Conn(), "a"); err != nil {
		t.Fatal(err)
	}
	f.Names, f.Log, f.Options = wire.DefaultPrefix.Log(0, 1), streams.NewLog(s, link), options()
	f.JetStream, f.NATS, f.Tail = js, js.Conn(), &events.Tail{}
	return f
}

// alone makes a follower whose streams are those of the first region themselves.
func alone(t *testing.T) *Follower {
	t.Helper()
	js := natstest.Connect(t, natstest.Options{JetStream: "domain: a"})
	s, err := streams.Provision(t.Context(), js, options())
	if err != nil {
		t.Fatal(err)
	}
	return over(t, js, s)
}

// publish publishes n messages on a subject.
func publish(t *testing.T, js jetstream.JetStream, subject string, n int) {
	t.Helper()
	for range n {
		if _, err := js.Publish(t.Context(), subject, []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTakeCut: a cut has the values that the first region has, but none that it has removed, and where its streams begin
// and end. A follower that takes a mirror for whole too early would let its shard go on without messages (M3).
func TestTakeCut(t *testing.T) {
	t.Parallel()
	f := alone(t)
	publish(t, f.JetStream, f.Names.Prefix.Write(wire.Upsert, "c", "1"), 3)
	publish(t, f.JetStream, f.Names.Prefix.Expired("c", "1"), 2)
	s := f.Log.Streams
	if err := s.Log.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
		t.Fatal(err)
	}
	for _, key := range f.keys() {
		if _, err := s.Checkpoints.Put(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Checkpoints.Delete(t.Context(), wire.SnapshotKey(0)); err != nil {
		t.Fatal(err)
	}
	c, err := f.takeCut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := shard.CheckpointKey(0)
	if diff := cmp.Diff(map[string][]byte{key: []byte(key)}, c.values); diff != "" {
		t.Errorf("the values (-want, +got):\n%s", diff)
	}
	if c.events == nil || c.events.State.LastSeq != 2 || c.snaps != nil || c.config != nil {
		t.Errorf("shard 0 compares the events alone: %+v, %+v, %+v", c.events, c.snaps, c.config)
	}
	if want := (ends{log: 3, events: 2}); c.first != 2 || c.ends != want {
		t.Errorf("the log begins at %d, and the streams end at %+v, want %+v", c.first, c.ends, want)
	}
}

// TestStepAdopts: a cut that the mirrors have reached is adopted, and the owner learns that they have reached one. If it
// cannot be adopted, the follower says so, and keeps it.
func TestStepAdopts(t *testing.T) {
	t.Parallel()
	f, key := alone(t), shard.CheckpointKey(0)
	f.pending = &cut{asked: time.Now(), values: map[string][]byte{key: []byte("rubbish")}}
	if err := f.step(t.Context()); err == nil || f.adopted || f.Reached() || f.pending == nil {
		t.Errorf("with a checkpoint that is not valid: %v, adopted %t, reached %t", err, f.adopted, f.Reached())
	}
	f.pending.values[key] = []byte(`{"seq":7}`)
	f.pending.ends.log = 1
	if err := f.step(t.Context()); err != nil || f.adopted || f.Reached() {
		t.Errorf("before the mirror of the log has its end: %v, adopted %t, reached %t", err, f.adopted, f.Reached())
	}
	publish(t, f.JetStream, f.Names.Prefix.Write(wire.Upsert, "c", "1"), 1)
	if err := f.step(t.Context()); err != nil || !f.adopted || !f.Reached() || f.pending != nil {
		t.Errorf("then: %v, adopted %t, reached %t", err, f.adopted, f.Reached())
	}
	if value, _, err := f.Log.Value(t.Context(), key); err != nil || string(value) != `{"seq":7}` {
		t.Errorf("stored is %s, %v", value, err)
	}
	if c, _ := f.Published(); c == nil || c.Seq != 7 {
		t.Errorf("the owner knows %+v", c)
	}
}

// TestRunEnds: a follower whose streams are no mirrors ends: they may have grown by themselves.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	f := alone(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Run(ctx); !errors.Is(err, streams.ErrPromotion) || f.pending != nil {
		t.Errorf("it ends with %v", err)
	}
}

// TestFollows: an owner in a region whose streams are no mirrors learns that it follows no longer: else two regions would
// publish the same events.
func TestFollows(t *testing.T) {
	t.Parallel()
	if err := alone(t).Mirror(t.Context()).Follows(t.Context()); !errors.Is(err, streams.ErrPromotion) {
		t.Errorf("the streams are its own: %v", err)
	}
}

// TestStampsAreInOrder: many messages are compared at a time, and a refusal names the first that differs.
func TestStampsAreInOrder(t *testing.T) {
	t.Parallel()
	f := alone(t)
	const n = 3 * askAtOnce
	publish(t, f.JetStream, f.Names.Prefix.Write(wire.Upsert, "c", "1"), n)
	info, err := f.Log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var seqs []uint64
	for seq := uint64(n + 1); seq > 0; seq-- { // there is none at n + 1
		seqs = append(seqs, seq)
	}
	all, err := f.askStamps(t.Context(), &facts{Here: info}, seqs)
	if err != nil || len(all) != n {
		t.Fatalf("of %d messages it has %d stamps, %v", n, len(all), err)
	}
	for i, s := range all {
		if s.Seq != uint64(i+1) || s.Here.IsZero() || !s.Here.Equal(s.There) {
			t.Errorf("stamp %d is %+v", i, s)
		}
	}
}

// TestComparedAgain: the message up to which a mirror was the same is compared again with the next cut, after both have
// grown: a first region that has lost its end and has grown again has another one there.
func TestComparedAgain(t *testing.T) {
	t.Parallel()
	a, b, _ := natstest.StartJoined(t)
	var js []jetstream.JetStream
	for _, url := range []string{a, b} {
		nc, err := nats.Connect(url, natstest.Patient)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js = append(js, natstest.JetStream(t, nc))
	}
	if _, err := streams.Provision(t.Context(), js[0], options()); err != nil {
		t.Fatal(err)
	}
	origin, err := streams.NewOrigin(js[1].Conn(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		return streams.ProvisionMirrors(ctx, js[1], origin, options())
	}); err != nil {
		t.Fatal(err)
	}
	s, err := streams.OpenMirrors(t.Context(), js[1], options())
	if err != nil {
		t.Fatal(err)
	}
	f := over(t, js[1], s)
	var info *jetstream.StreamInfo
	grow := func(n int, end uint64) {
		t.Helper()
		publish(t, js[0], f.Names.Prefix.Write(wire.Upsert, "c", "1"), n)
		if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) (err error) {
			if info, err = f.Log.Info(ctx); err == nil && info.State.LastSeq != end {
				err = fmt.Errorf("the mirror ends at %d, want %d", info.State.LastSeq, end)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	grow(5, 5)
	c, err := f.takeCut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.compare(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	grow(3, 8)
	if places := f.of(f.Names.Stream()).places(info.State, info.State); !slices.Equal(places, []uint64{5, 8}) {
		t.Errorf("messages %v are compared, want 5 and 8", places)
	}
}
