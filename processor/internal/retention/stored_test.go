package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// onNATS is a keeper that has the streams of a server, and has done nothing.
func onNATS(t *testing.T) *Keeper {
	t.Helper()
	js := natstest.Connect(t, natstest.Options{})
	k := keeper()
	k.Logger, k.JetStream, k.Names = slog.New(slog.DiscardHandler), js, wire.DefaultPrefix.Log(0, 1)
	s, err := streams.Provision(t.Context(), js, streams.Options{Prefix: wire.DefaultPrefix, Shards: 1,
		MaxPayload: 1 << 20, Logger: k.Logger, Objects: true})
	if err != nil {
		t.Fatal(err)
	}
	link, stop := streams.WatchLink(js.Conn())
	t.Cleanup(stop)
	k.Log = streams.NewLog(s, link)
	k.Desk = snapshot.NewDesk(snapshot.NewStore(s.Snapshots, k.Log, 0, k.Log.ID(), nil))
	info, err := k.Log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if k.kept, err = k.load(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestTakeOrders: orders are answered, and what is none is passed over: else anybody's message would be an order of a
// snapshot.
func TestTakeOrders(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	ctx, cancel := context.WithCancel(t.Context())
	var taking sync.WaitGroup
	taking.Go(func() { k.TakeOrders(ctx) })
	defer taking.Wait()
	defer cancel()
	nc, subject := k.JetStream.Conn(), k.Names.Prefix.Snapshot(0)
	var reply wire.SnapshotReply
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		m, err := nc.RequestWithContext(ctx, subject, nil)
		if err == nil {
			err = json.Unmarshal(m.Data, &reply)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if asked := k.asked.Load(); reply.Since == 0 || asked != reply.Since {
		t.Errorf("the answer is %+v, and a snapshot is wanted since %d", reply, asked)
	}
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"rubbish", `{"forget":true,"since":5}`} {
		if err := nc.PublishRequest(subject, answers.Subject, []byte(order)); err != nil {
			t.Fatal(err)
		}
	}
	var m *nats.Msg
	if m, err = answers.NextMsg(time.Minute); err != nil {
		t.Fatal(err)
	}
	reply = wire.SnapshotReply{}
	if err := json.Unmarshal(m.Data, &reply); err != nil || reply.Since != 5 || k.forget.Load() != 5 {
		t.Errorf("the first answer is %s, and the order is to forget what had died before %d", m.Data, k.forget.Load())
	}
}

// TestForgetSinceNow: an order to forget counts from the instant at which it is given, by the clock of NATS, and the
// client asks again with that.
func TestForgetSinceNow(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	before, err := k.Log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for since := int64(0); ; {
		reply, err := k.Forget(t.Context(), since)
		if err != nil || reply.Since <= before.TimeStamp.UnixMilli() || since != 0 && reply.Since != since ||
			k.forget.Load() != reply.Since || int64(reply.Until)-reply.Since != k.within.Milliseconds() {
			t.Fatalf("at %s, an order of %d: %+v, %v", before.TimeStamp, since, reply, err)
		}
		if since != 0 {
			return
		}
		since = reply.Since
	}
}

// TestEdgesAreStored: the next owner knows which files were ended. Else it would end them again, and count their bytes
// from before.
func TestEdgesAreStored(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	info, err := k.Log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.endFiles(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	created := info.Created.UnixMilli()
	if k.kept.Log.last().At != created {
		t.Errorf("the owner knows the edges %v, want one at %d", k.kept.Log, created)
	}
	next, err := k.load(t.Context(), info)
	if err != nil || next.Log.last().At != created {
		t.Errorf("the next owner knows the edges %v, %v, want one at %d", next.Log, err, created)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := k.take(ended, info); !errors.Is(err, context.Canceled) {
		t.Errorf("a snapshot whose files cannot be ended: %v", err)
	}
}

// TestG12_OnDiskAfterAStart: a new owner does not know since when the server has the snapshots that are recorded. It takes
// them for new, and truncates nothing before it has known them for the sync interval.
func TestG12_OnDiskAfterAStart(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	record, err := json.Marshal(wire.SnapshotRecord{Format: wire.Format, Log: k.Log.ID(), Generations: []wire.Generation{
		{Generation: 2, Offset: 20}, {Generation: 1, Offset: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Log.Streams.Checkpoints.Put(t.Context(), wire.SnapshotKey(0), record); err != nil {
		t.Fatal(err)
	}
	k.kept, k.Sync = nil, time.Hour
	if _, err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(k.generations) != 2 || k.onDisk() || k.behind() != 0 {
		t.Errorf("it knows %+v, on disk %t, and truncates up to %d", k.generations, k.onDisk(), k.behind())
	}
	k.synced.known = time.Now().Add(-time.Hour)
	if k.behind() != 10 {
		t.Errorf("an hour later it truncates up to %d", k.behind())
	}
}

// TestG12_NothingIsTruncatedBehindFewerThanTwo: a log is not truncated whose record names fewer snapshots than are wanted.
func TestG12_NothingIsTruncatedBehindFewerThanTwo(t *testing.T) {
	t.Parallel()
	if err := onNATS(t).verify(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "names 0 snapshots") {
		t.Errorf("verified with %v", err)
	}
}

// TestRunWaitsForTheShard: the keeper does nothing while the shard lacks something, and looks again and again whether it
// does.
func TestRunWaitsForTheShard(t *testing.T) {
	k := keeper()
	k.within = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks := 0
	k.Applying = func() error {
		if looks++; looks == 3 {
			cancel()
		}
		return errors.New("a load is under way")
	}
	if k.Run(ctx); looks != 3 {
		t.Errorf("it has looked %d times", looks)
	}
}

// TestNoteRest: what the looks find is stored now and then, and not with each look: a look comes each second.
func TestNoteRest(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	var last uint64
	for _, look := range []struct {
		hours  float64
		stored bool
	}{{0, true}, {0.1, false}, {1.2, false}, {1.3, true}, {2.5, false}, {2.6, true}} {
		k.saw(at(look.hours), false)
		if err := k.noteRest(t.Context(), at(look.hours)); err != nil {
			t.Fatal(err)
		}
		value, revision, err := k.Log.Value(t.Context(), keyOf(0))
		if err != nil || revision > last != look.stored {
			t.Errorf("after %v hours, %s is stored at revision %d behind %d, %v", look.hours, value, revision, last, err)
		}
		last = revision
	}
}

// TestReadOthers: a keeper knows what the keepers of the other shards have stored, and tells what it knows meanwhile.
func TestReadOthers(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	k.Names.Shards = 3
	if _, err := k.Log.Streams.Checkpoints.Put(t.Context(), keyOf(2), []byte(`{"stirred":5}`)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.readOthers(t.Context(), at(3)); err != nil || len(k.others) != 1 || k.others[2].Stirred != 5 {
			t.Errorf("it knows %+v, %v", k.others, err)
		}
		if !k.mu.TryLock() {
			t.Fatal("nobody can ask it any more")
		}
		k.mu.Unlock()
	}
}

// TestEndEvents: the keeper learns for how long events are kept, and says so if it cannot.
func TestEndEvents(t *testing.T) {
	t.Parallel()
	k := onNATS(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := k.endEvents(ended, time.Now()); !errors.Is(err, context.Canceled) || k.eventsAge != 0 {
		t.Errorf("events are kept for %s, %v", k.eventsAge, err)
	}
	if err := k.endEvents(t.Context(), time.Now()); err != nil || k.eventsAge != 7*24*time.Hour {
		t.Errorf("events are kept for %s, %v", k.eventsAge, err)
	}
	k.free(t)
}

// rewritten is a Redis whose answer the test gives.
type rewritten struct{ err error }

func (r *rewritten) Rewrite(context.Context) error { return r.err }

// TestRedisMayNotBeRewritten: Redis does not permit to rewrite its files. That keeps nothing else from going on, and the
// keeper promises nothing of Redis, until it is permitted. Any other error is one.
func TestRedisMayNotBeRewritten(t *testing.T) {
	t.Parallel()
	k, redis := onNATS(t), &rewritten{}
	k.Redis = redis
	for i, step := range []struct {
		err    error
		denied bool
		fails  bool
	}{
		{fmt.Errorf("master 1: %w", store.ErrDenied), true, false}, {errors.New("no answer"), true, true},
		{nil, false, false}, {fmt.Errorf("master 2: %w", store.ErrDenied), true, false},
	} {
		hours := float64(20 * (i + 1))
		k.stirred, redis.err = at(hours).UnixMilli(), step.err
		if err := k.rewriteRedis(t.Context(), logAt(hours, 1, 100)); (err != nil) != step.fails || k.denied != step.denied {
			t.Errorf("Redis says %v: %v, denied %t", step.err, err, k.denied)
		}
		if done := k.kept.Redis == at(hours).UnixMilli(); done == step.fails {
			t.Errorf("Redis says %v: it counts as tried: %t", step.err, done)
		}
	}
}
