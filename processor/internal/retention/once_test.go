package retention

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// writes stores messages in the log, which then ends at a sequence.
func (k *Keeper) writes(t *testing.T, upTo uint64) *jetstream.StreamInfo {
	t.Helper()
	for {
		info, err := k.Log.Info(t.Context())
		if err == nil && info.State.LastSeq < upTo {
			_, err = k.JetStream.Publish(t.Context(), k.Names.Prefix.Write(wire.Upsert, "c", "1"), []byte(`{}`))
		} else if err == nil {
			return info
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// takes takes a snapshot; the owner of the shard ends it at an offset, or abandons it for a reason.
func (k *Keeper) takes(t *testing.T, offset uint64, why error) error {
	t.Helper()
	info := k.writes(t, 10)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if w := k.Desk.Order(); w == nil {
				continue
			} else if w.Add(snapshot.Entry{Kind: snapshot.Put, Collection: "c", ID: "1", Value: []byte("x")}); why != nil {
				w.Abandon(why)
			} else {
				w.Finish(snapshot.Manifest{Offset: offset})
			}
		}
	}()
	err := k.take(t.Context(), info)
	cancel()
	<-done
	return err
}

// free checks that somebody else can ask the keeper.
func (k *Keeper) free(t *testing.T) {
	t.Helper()
	if !k.mu.TryLock() {
		t.Fatal("nobody can ask the keeper any more")
	}
	k.mu.Unlock()
}

// TestTake: a snapshot that fails is wanted again, after a pause that grows, and counts as one more only where two were
// wanted in place of damaged ones. The two newest that were taken are known.
func TestTake(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	k.Metrics = NewMetrics()
	fenced := errors.New("fenced")
	for i, row := range []struct {
		anew     int // before
		fails    bool
		want     int // snapshots that are wanted then
		failures int
		offsets  []uint64
	}{
		{0, true, 1, 1, nil},
		{1, true, 1, 2, nil},
		{2, true, 2, 3, nil},
		{2, false, 1, 0, []uint64{3}},
		{1, false, 0, 0, []uint64{4, 3}},
		{0, false, 0, 0, []uint64{5, 4}},
		{0, true, 1, 1, []uint64{5, 4}},
	} {
		var why error
		if row.fails {
			why = fenced
		}
		k.tries.anew = row.anew
		before := k.writes(t, 10).TimeStamp
		if err := k.takes(t, uint64(i), why); !errors.Is(err, why) {
			t.Errorf("snapshot %d: %v", i, err)
		}
		var offsets []uint64
		for _, g := range k.generations {
			offsets = append(offsets, g.Offset)
		}
		if k.tries.anew != row.want || k.tries.failures != row.failures || !slices.Equal(offsets, row.offsets) {
			t.Errorf("snapshot %d: %+v, and the offsets are %v, want %+v", i, k.tries, offsets, row)
		}
		if pause := k.tries.until.Sub(before); row.fails && pause < k.pauseAfter(row.failures) || !row.fails &&
			!k.tries.until.IsZero() {
			t.Errorf("snapshot %d: it is tried again in %s", i, pause)
		}
		k.free(t)
	}
}

// TestG12_Truncate: the log is truncated up to the older of two snapshots that are whole, once the shard has applied it
// up to there, and has published its outputs; the message at that offset stays. A snapshot that is damaged keeps the
// log as it is, and two others are wanted.
func TestG12_Truncate(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	k.Metrics, k.Checkpoints = NewMetrics(), shard.NewCheckpoints(k.Log, 0)
	settled := func(applied, published uint64, want uint64) {
		t.Helper()
		k.Status.Applied.Store(applied)
		if err := k.Checkpoints.Replace(t.Context(), shard.Checkpoint{Seq: published}); err != nil {
			t.Fatal(err)
		}
		if err := k.truncate(t.Context()); err != nil {
			t.Errorf("applied up to %d, published up to %d: %v", applied, published, err)
		}
		if first := k.writes(t, 10).State.FirstSeq; first != want {
			t.Errorf("applied up to %d, published up to %d, the log begins at %d, want %d", applied, published, first, want)
		}
		k.free(t)
	}
	k.writes(t, 10)
	for _, offset := range []uint64{4, 6} {
		settled(10, 10, 1)
		if err := k.takes(t, offset, nil); err != nil {
			t.Fatal(err)
		}
	}
	settled(10, 3, 1)
	settled(3, 10, 1)
	settled(4, 4, 4)
	if k.seen == nil || k.seen.State.FirstSeq != 4 {
		t.Errorf("it knows of the log %+v", k.seen)
	}
	settled(10, 10, 4)
	if err := k.takes(t, 9, nil); err != nil {
		t.Fatal(err)
	}
	objects := k.Log.Streams.Snapshots
	names, err := objects.Names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := objects.Put(t.Context(), names[0], []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	if err := k.truncate(t.Context()); !errors.Is(err, snapshot.ErrDamaged) || len(k.generations) != 0 || k.tries.anew != 2 {
		t.Errorf("with a damaged snapshot: %v, %v, %d are wanted", err, k.generations, k.tries.anew)
	}
	settled(10, 10, 4)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, may, err := k.mayTruncate(ended, 9); may || !errors.Is(err, context.Canceled) {
		t.Errorf("without an answer the log may be truncated: %t, %v", may, err)
	}
	if err := k.JetStream.DeleteStream(t.Context(), k.Names.Stream()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.JetStream.CreateStream(t.Context(), k.Log.Streams.Log.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	if _, may, err := k.mayTruncate(t.Context(), 9); may || !errors.Is(err, streams.ErrLogChanged) {
		t.Errorf("another log may be truncated: %t, %v", may, err)
	}
}

// TestRunOnce: what the keeper cannot do is an error, which the report tells. The events and Redis are for shard 0.
func TestRunOnce(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	redis := &rewritten{errors.New("no answer")}
	k.Redis = redis
	once := func(when string, shard int, want error) {
		t.Helper()
		k.Names.Shard = shard
		k.tries.until = time.Now().Add(time.Hour) // no snapshot is taken
		k.forget.Store(k.writes(t, 1).TimeStamp.UnixMilli() + 1)
		if err := k.runOnce(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", when, err, want)
		}
		k.free(t)
	}
	once("Redis does not answer", 0, redis.err)
	once("Redis does not answer, and is another shard's", 1, nil)
	redis.err = nil
	once("all is well", 0, nil)
	remove := func(stream string) {
		t.Helper()
		if err := k.JetStream.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	remove(k.Names.Prefix.EventsStream())
	once("the stream of events is gone", 0, streams.ErrStreamGone)
	once("it is gone, and is another shard's", 1, nil)
	remove(k.Names.Prefix.CheckpointStream())
	k.noted, k.stored = time.Time{}, kept{}
	once("what was found cannot be stored", 1, jetstream.ErrNoStreamResponse)
	remove(k.Names.Prefix.SnapshotStream())
	once("the snapshots are gone", 1, streams.ErrStreamGone)
}

// TestBegin: a new owner takes a snapshot at once in place of one that was not finished. It begins with nothing that it
// could not read.
func TestBegin(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	info := k.writes(t, 1)
	begin := func(when string, anew int, want error) {
		t.Helper()
		k.kept, k.tries = nil, tries{}
		if err := k.begin(t.Context(), info); !errors.Is(err, want) || k.tries.anew != anew || (k.kept == nil) != (err != nil) {
			t.Errorf("%s: %v, %d are wanted, and it knows %v", when, err, k.tries.anew, k.kept)
		}
		k.free(t)
	}
	begin("nothing is left", 0, nil)
	claimed := []byte(`{"format":3,"log":"` + k.Log.ID() + `","claimed":2}`)
	if _, err := k.Log.Streams.Checkpoints.Put(t.Context(), wire.SnapshotKey(0), claimed); err != nil {
		t.Fatal(err)
	}
	if err := k.Log.Streams.Snapshots.Put(t.Context(), "0.2.0", []byte("x")); err != nil {
		t.Fatal(err)
	}
	begin("a part of a snapshot is left", 1, nil)
	if err := k.JetStream.DeleteStream(t.Context(), k.Names.Prefix.SnapshotStream()); err != nil {
		t.Fatal(err)
	}
	begin("it is not known what is left", 0, jetstream.ErrStreamNotFound)
	if err := k.JetStream.DeleteStream(t.Context(), k.Names.Prefix.CheckpointStream()); err != nil {
		t.Fatal(err)
	}
	begin("it is not known what was done", 0, jetstream.ErrStreamNotFound)
}

// TestEnd: a file is ended again after a while, or as soon as somebody has ordered to forget what has died since it was
// ended last. Where nothing was stored since, there is nothing to fill.
func TestEnd(t *testing.T) {
	t.Parallel()
	had := edges{{at(1).UnixMilli(), 100}}
	for _, row := range []struct {
		name        string
		now, forget float64
		ended       bool
	}{
		{"not yet", 5.99, 0, false},
		{"in time", 6, 0, true},
		{"an order of before", 3, 1, false},
		{"an order", 3, 1.01, true},
		{"an order, late", 8, 1.01, true},
	} {
		k := keeper()
		k.forget.Store(at(row.forget).UnixMilli())
		now, err := k.end(t.Context(), had, at(row.now), logAt(row.now, 1, 100), streams.Filling{}, 5*time.Hour)
		want := had
		if row.ended {
			want = edges{had[0], {at(row.now).UnixMilli(), 100}}
		}
		if err != nil || !slices.Equal(now, want) {
			t.Errorf("%s: the edges are %v, %v, want %v", row.name, now, err, want)
		}
	}
}

// TestRested: a place that is clean is known as such for the time after the next death, whatever is left elsewhere.
func TestRested(t *testing.T) {
	t.Parallel()
	for range 50 { // the order of the places is another each time
		k := keeper()
		k.seen = logAt(20, 1, 100)
		k.kept.Redis, k.stirred = at(9).UnixMilli(), at(8).UnixMilli()
		k.saw(at(21), false)
		rested := k.seen.TimeStamp.Add(-k.unnoticed(inRedis)).UnixMilli()
		if want := map[string]int64{inRedis: rested}; !maps.Equal(k.kept.Rested, want) ||
			k.kept.Stirred != at(21).UnixMilli() {
			t.Fatalf("rested were %v, want %v, and something died last at %d", k.kept.Rested, want, k.kept.Stirred)
		}
		k.seen = logAt(20, 1, 100)
		k.stirred, k.kept.Redis = at(8).UnixMilli(), 0
		k.saw(at(21), true)
		if k.kept.Stirred != at(8).UnixMilli() || k.kept.Rested[inRedis] != rested {
			t.Fatalf("after a rest of all: %+v", k.kept)
		}
	}
}

// TestRunLooksAgain: the keeper looks again and again, whether a look succeeds or not, until it is to end.
func TestRunLooksAgain(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	k.within, k.Redis = time.Second, &rewritten{}
	k.tries.until = time.Now().Add(time.Hour) // no snapshot is taken
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks, away := 0, false
	k.Applying = func() error {
		switch looks++; {
		case looks == 3:
			if k.failure != nil || k.seen == nil {
				t.Errorf("it has looked twice: %v", k.failure)
			}
			away = k.JetStream.DeleteStream(t.Context(), k.Names.Prefix.EventsStream()) == nil
			k.forget.Store(time.Now().Add(time.Hour).UnixMilli())
		case looks == 5:
			if k.failure == nil {
				t.Error("nothing has failed without the stream of events")
			}
			cancel()
		}
		return nil
	}
	if k.Run(ctx); looks != 5 || !away {
		t.Errorf("it has looked %d times", looks)
	}
}

// TestEvery: the keeper looks a hundred times while it may take to forget, but no more often than a look costs, and
// often enough for a person who waits.
func TestEvery(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{time.Second: 50 * time.Millisecond,
		10 * time.Second: 100 * time.Millisecond, 500 * time.Second: longestLook, 50 * time.Hour: longestLook} {
		k := keeper()
		k.within = within
		if got := k.every(); got != want {
			t.Errorf("within %s it looks every %s, want %s", within, got, want)
		}
	}
}

// TestAsk: who has asked for a snapshot learns whether there is one since, by the clock of NATS, and why there is none.
func TestAsk(t *testing.T) {
	k := keeper()
	if reply := k.Ask(5); reply.Since != 5 || reply.Done || k.asked.Load() != 5 {
		t.Errorf("before anything is known: %+v", reply)
	}
	k.seen = logAt(20, 1, 100)
	since := at(20).UnixMilli() + 1
	want := func(when string, since int64, want wire.SnapshotReply, asked int64) {
		t.Helper()
		if reply := k.Ask(since); !reflect.DeepEqual(reply, want) || k.asked.Load() != asked {
			t.Errorf("%s: %+v, asked since %d, want %+v, %d", when, reply, k.asked.Load(), want, asked)
		}
	}
	want("an order", 0, wire.SnapshotReply{Since: since}, since)
	want("one of before", 7, wire.SnapshotReply{Since: 7}, since)
	k.failure = errors.New("no disk")
	want("it fails", since, wire.SnapshotReply{Since: since, Failure: "no disk"}, since)
	k.generations = []wire.Generation{{Begun: since - 1}}
	want("a snapshot of before", since, wire.SnapshotReply{Since: since, Failure: "no disk"}, since)
	k.failure, k.generations = nil, []wire.Generation{{Begun: since}}
	want("it is taken", since, wire.SnapshotReply{Since: since, Done: true}, since)
	want("a later order of another owner", since+1, wire.SnapshotReply{Since: since + 1}, since+1)
}
