package region

import (
	"context"
	"encoding/json"
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
	"github.com/seed18712806/lapse/processor/internal/snapshot"
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
	both := func(here, there uint64, want ...uint64) {
		t.Helper()
		if err := f.Log.Streams.Log.Purge(t.Context(), jetstream.WithPurgeSequence(here)); err != nil {
			t.Fatal(err)
		}
		original, err := js[0].Stream(t.Context(), f.Names.Stream())
		if err == nil {
			err = original.Purge(t.Context(), jetstream.WithPurgeSequence(there))
		}
		if err != nil {
			t.Fatal(err)
		}
		stamps, err := f.askStamps(t.Context(), &facts{Here: info}, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9})
		var seqs []uint64
		for _, s := range stamps {
			if seqs = append(seqs, s.Seq); !s.Here.Equal(s.There) {
				t.Errorf("message %d was stored at %s, and at %s there", s.Seq, s.Here, s.There)
			}
		}
		if err != nil || !slices.Equal(seqs, want) {
			t.Errorf("of messages from %d on here, and from %d on there, %v are compared, %v", here, there, seqs, err)
		}
	}
	both(3, 5, 5, 6, 7, 8)
	both(7, 5, 7, 8)
	f.Origin.Domain = "nowhere"
	if stamps, err := f.askStamps(t.Context(), &facts{Here: info}, []uint64{8}); !errors.Is(err, streams.ErrOrigin) {
		t.Errorf("the first region does not answer: %v, %v", stamps, err)
	}
	f.Origin.Domain = "a"
	if c, err = f.takeCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.compared = map[string]*compared{}
	if err := js[1].DeleteStream(t.Context(), f.Names.Prefix.CheckpointStream()); err != nil {
		t.Fatal(err)
	}
	if err := f.compare(t.Context(), c); !errors.Is(err, jetstream.ErrStreamNotFound) ||
		f.of(f.Names.Prefix.EventsStream()).sampled {
		t.Errorf("what is noted of a former mirror cannot be forgotten: %v", err)
	}
}

// taken takes a snapshot at an offset, as the owner of the shard does.
func taken(t *testing.T, s *snapshot.Store, offset uint64) {
	t.Helper()
	desk, done := snapshot.NewDesk(s), make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			if w := desk.Order(); w != nil {
				w.Add(snapshot.Entry{Kind: snapshot.Put, Collection: "c", ID: "1", Value: []byte("x")})
				w.Finish(snapshot.Manifest{Offset: offset})
				return
			}
		}
	}()
	if _, err := desk.Take(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	<-done
}

// TestTruncate: a mirror is truncated as the log of the first region is, once Redis here has what goes, or a snapshot
// that is whole here. Until then it stays (M3).
func TestTruncate(t *testing.T) {
	t.Parallel()
	f, objects := alone(t), &snapshot.Memory{}
	publish(t, f.JetStream, f.Names.Prefix.Write(wire.Upsert, "c", "1"), 10)
	truncated := func(when string, upTo, want uint64) {
		t.Helper()
		if err := f.truncate(t.Context(), &cut{first: upTo}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if info, err := f.Log.Info(t.Context()); err != nil || info.State.FirstSeq != want {
			t.Errorf("%s: it begins at %d, %v, want %d", when, info.State.FirstSeq, err, want)
		}
	}
	f.Status.Committed.Store(1)
	truncated("Redis has not got message 2", 3, 1)
	f.Status.Committed.Store(2)
	truncated("Redis has it", 3, 3)
	truncated("an older cut", 2, 3)
	f.Status.Committed.Store(0)
	f.Snapshots = snapshot.NewStore(objects, f.Log, 0, f.Log.ID(), nil)
	truncated("there is no snapshot", 5, 3)
	taken(t, f.Snapshots, 3)
	truncated("the snapshot ends two messages before", 5, 3)
	truncated("it ends one message before", 4, 4)
	taken(t, f.Snapshots, 9)
	taken(t, f.Snapshots, 5) // the log has lost its end, and has grown again
	truncated("the older snapshot continues the log", 8, 8)
	names, err := objects.Names(t.Context())
	for _, name := range names {
		err = errors.Join(err, objects.Put(t.Context(), name, []byte("damaged")))
	}
	if err != nil {
		t.Fatal(err)
	}
	truncated("both are damaged", 9, 8)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := f.truncate(ended, &cut{first: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer: %v", err)
	}
	if _, err := f.Log.Streams.Checkpoints.Put(t.Context(), wire.SnapshotKey(0), []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	if err := f.truncate(t.Context(), &cut{first: 9}); err == nil {
		t.Error("a record that cannot be read counts as none")
	}
}

// TestAdopt: what the first region has stored is stored here, and the owner learns of it. The checkpoint counts here
// once the shard has applied the log up to it: who reads the documents here, and then the events behind the checkpoint,
// misses none. What lies before it is given up. If the shard began anew there, it begins anew here.
func TestAdopt(t *testing.T) {
	t.Parallel()
	f := alone(t)
	config := f.Log.Streams.Events.CachedInfo().Config
	publisher, err := events.NewPublisher(f.NATS, f.Names.Prefix, config)
	if err != nil {
		t.Fatal(err)
	}
	source := events.NewSource(f.Names, f.Log.Streams.Log.CachedInfo().Created.UnixNano())
	rejected := func(seq uint64) events.Message {
		return events.Rejected(source, events.Rejection{Subject: "x", Rest: "x", Seq: seq, Ts: 1, Code: 400, Error: "x"})
	}
	for seq := range uint64(3) {
		if _, err := publisher.Publish(t.Context(), events.Fence{}, []events.Message{rejected(seq + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	f.Tail = publisher.NewTail(source)
	f.Tail.Hold()
	defer f.Tail.Release()
	if err := f.Tail.Cover(t.Context(), 0, 3); err != nil {
		t.Fatal(err)
	}
	key, record := shard.CheckpointKey(0), wire.SnapshotKey(0)
	stored := func(when string, seq uint64, wantRecord string) {
		t.Helper()
		value, _, err := f.Log.Value(t.Context(), key)
		point, bad := f.checkpoint(map[string][]byte{key: value})
		had, _, failed := f.Log.Value(t.Context(), record)
		if err := errors.Join(err, bad, failed); err != nil || point.Seq != seq || string(had) != wantRecord {
			t.Errorf("%s: stored is the checkpoint at %d, and %s, %v, want %d, %s", when, point.Seq, had, err, seq, wantRecord)
		}
	}
	adopt := func(c shard.Checkpoint, snapshots string) error {
		t.Helper()
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return f.adopt(t.Context(), &cut{values: map[string][]byte{key: value, record: []byte(snapshots)}})
	}
	knows := func(seq uint64) {
		t.Helper()
		if c, _ := f.Published(); c == nil || c.Seq != seq {
			t.Errorf("the owner knows %+v, want the checkpoint at %d", c, seq)
		}
	}
	for range 2 {
		if err := adopt(shard.Checkpoint{Seq: 3, From: events.Place{Seq: 1}, Anew: 4}, "one"); err != nil {
			t.Fatal(err)
		}
		stored("before the shard runs", 3, "one")
		knows(3)
	}
	for seq, has := range map[uint64]bool{1: false, 2: true, 3: true} {
		if _, found := f.Tail.Find(rejected(seq)); found != has {
			t.Errorf("output %d is in the tail: %t", seq, found)
		}
	}
	f.running = true
	f.Status.Committed.Store(6)
	for _, seq := range []uint64{7, 9} {
		if err := adopt(shard.Checkpoint{Seq: seq, Anew: 4}, "two"); err != nil {
			t.Fatal(err)
		}
		knows(seq)
		if err := f.storeLater(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored("the shard has applied 6", 3, "two")
	}
	f.Status.Committed.Store(7)
	for range 2 {
		if err := f.storeLater(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored("the shard has applied 7", 7, "two")
	}
	if err := adopt(shard.Checkpoint{Seq: 8, Anew: 5}, "three"); !errors.Is(err, errAnew) {
		t.Errorf("the shard was begun anew there, and goes on here: %v", err)
	}
	stored("it was begun anew there", 8, "three")
	f.running = false
	if err := adopt(shard.Checkpoint{Seq: 8, Anew: 6}, "four"); err != nil {
		t.Errorf("before the shard runs nothing has to begin anew: %v", err)
	}
	if err := f.adopt(t.Context(), &cut{}); err != nil {
		t.Error(err)
	}
	stored("the first region has lost its values", 8, "four")
	f.stored = map[string][]byte{}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := f.adopt(ended, &cut{values: map[string][]byte{record: []byte("five")}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a record that cannot be stored: %v", err)
	}
}

// TestAdoptSweepsOnce: what the record no longer names is removed from the mirror of the snapshots when a cut has
// another end of it. Cuts come all the time, and one with the same end lists no objects again.
func TestAdoptSweepsOnce(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{JetStream: "domain: a"}), options()
	o.Objects = true
	s, err := streams.Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	f := over(t, js, s)
	f.Snapshots = snapshot.NewStore(s.Snapshots, f.Log, 0, f.Log.ID(), nil)
	taken(t, f.Snapshots, 3)
	for i, row := range []struct {
		end    uint64
		sweeps bool
	}{{7, true}, {7, false}, {8, true}} {
		if err := s.Snapshots.Put(t.Context(), "0.0.0", []byte("of a former generation")); err != nil {
			t.Fatal(err)
		}
		if err := f.adopt(t.Context(), &cut{ends: ends{snapshots: row.end}}); err != nil {
			t.Fatal(err)
		}
		if left, err := f.Snapshots.Leftovers(t.Context()); err != nil || left == row.sweeps {
			t.Errorf("cut %d, whose snapshots end at %d: a former generation is left: %t, %v", i, row.end, left, err)
		}
	}
}
