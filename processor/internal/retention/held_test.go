//go:build held

package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// servers are the streams of a prefix with some shards.
type servers struct {
	t  *testing.T
	js jetstream.JetStream
	o  streams.Options
}

// newServers begins with nothing, under a prefix of its own.
func newServers(t *testing.T, js jetstream.JetStream, prefix string, shards int) *servers {
	t.Helper()
	return &servers{t, js, streams.Options{Prefix: wire.Prefix(prefix), Shards: shards, Objects: true, MaxPayload: 1 << 20,
		Logger: slog.New(slog.DiscardHandler)}}
}

// keeper makes the keeper of a shard, as the owner of it does. It has read what a former one has done.
func (s *servers) keeper(number int) *Keeper {
	s.t.Helper()
	o := s.o
	o.Shard = number
	all, err := streams.Provision(context.Background(), s.js, o)
	if err != nil {
		s.t.Fatal(err)
	}
	link, stop := streams.WatchLink(s.js.Conn())
	s.t.Cleanup(stop)
	k := New(Parts{Names: o.Prefix.Log(number, o.Shards), Log: streams.NewLog(all, link), JetStream: s.js,
		Status: shard.NewStatus(health.New(o.Logger)), Logger: o.Logger, Metrics: NewMetrics()}, 50*time.Second)
	if k.kept, err = k.load(context.Background(), k.info()); err != nil {
		s.t.Fatal(err)
	}
	return k
}

// info is what the log has now.
func (k *Keeper) info() *jetstream.StreamInfo {
	info, err := k.Log.Info(context.Background())
	if err != nil {
		panic(err)
	}
	return info
}

// recorded is what the bucket has of a shard.
func (k *Keeper) recorded(t *testing.T, number int) (is kept) {
	t.Helper()
	value, _, err := k.Log.Value(context.Background(), keyOf(number))
	if err == nil {
		err = json.Unmarshal(value, &is)
	}
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// TestHeldEndFiles: while an owner ends the files of the log and of the snapshots, writes come, an object is stored, and
// a former owner ends the same files. Whatever the edge says is true: all that was stored before its instant is at or
// before its sequence, and what is stored from then on is behind it, in another file. So nothing counts as gone that is
// still in a file (G10).
func TestHeldEndFiles(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/retention.Keeper.endFiles", held.Takeover, func(t *testing.T, during func(func())) {
		gap++
		s := newServers(t, js, fmt.Sprint("files", gap), 1)
		k, former := s.keeper(0), s.keeper(0)
		write := func() (seq uint64) {
			ack, err := js.Publish(context.Background(), s.o.Prefix.Write(wire.Upsert, "c", "a"), []byte("{}"))
			if err != nil {
				t.Fatal(err)
			}
			return ack.Sequence
		}
		snapshots := k.Log.Streams.Snapshots
		object := func(name string) (seq uint64) {
			info, err := snapshots.Stream().Info(context.Background())
			if err == nil {
				err = snapshots.Put(context.Background(), name, []byte(name))
			}
			if err != nil {
				t.Fatal(err)
			}
			return info.State.LastSeq + 1 // its first message
		}
		before, stored := write(), object("0.1.0")
		info := k.info()
		info.TimeStamp = info.TimeStamp.Add(time.Hour) // the last edge is old by then
		during(func() {
			write()
			object("0.2.0")
			if _, err := former.endFiles(context.Background(), info); err != nil {
				t.Error(err)
			}
			write()
		})
		objects, err := k.endFiles(t.Context(), info)
		if err != nil {
			t.Fatal(err)
		}
		is := k.recorded(t, 0)
		for what, one := range map[string]struct {
			edges
			before, behind uint64
		}{"log": {is.Log, before, write()}, "snapshots": {is.Objects, stored, object("0.3.0")}} {
			last := one.last()
			if last.At != info.TimeStamp.UnixMilli() || last.Seq < one.before || last.Seq >= one.behind {
				t.Errorf("%s: the edge is %+v, of what was stored from %d to before %d", what, last, one.before, one.behind)
			}
			if what == "snapshots" && (objects < last.Seq || objects >= one.behind) {
				t.Errorf("what is stored from now on is behind object %d, and comes at %d", objects, one.behind)
			}
		}
	})
}

// TestHeldReadOthers: the keeper of another shard stores what it has done while this one reads it of all shards. What is
// known of each shard is what it had once, of that shard alone, and how old it may be is counted from before the first
// question: a document of another shard that has died since counts in time (G10).
func TestHeldReadOthers(t *testing.T) {
	js, gap := natstest.Connect(t, natstest.Options{}), 0
	held.Each(t, "processor/internal/retention.Keeper.readOthers", held.Write, func(t *testing.T, during func(func())) {
		gap++
		s := newServers(t, js, fmt.Sprint("others", gap), 4)
		k := s.keeper(0)
		store := func(round int64) {
			for number := 1; number < 3; number++ { // that of shard 3 has done nothing yet
				other := s.keeper(number)
				next := *other.kept
				next.Stirred = 10*int64(number) + round
				if err := other.save(context.Background(), next); err != nil {
					t.Error(err)
				}
			}
		}
		store(1)
		happened := false
		during(func() { happened = true; store(2) })
		now := k.info().TimeStamp
		if err := k.readOthers(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		for number, other := range k.others {
			if want := 10 * int64(number); number == 0 || number == 3 || other.Stirred != want+1 && other.Stirred != want+2 {
				t.Errorf("of shard %d it knows %+v", number, other)
			}
		}
		if len(k.others) != 2 || !k.othersAt.Equal(now) {
			t.Errorf("it knows %d others, of %s, want %s", len(k.others), k.othersAt, now)
		}
		later := now.Add(k.noteEvery()) // by then the last word of each is known
		if err := k.readOthers(t.Context(), later); err != nil {
			t.Fatal(err)
		}
		want := int64(21)
		if happened {
			want = 22
		}
		if got := k.stirredIn(inRedis); got != want {
			t.Errorf("a document in Redis has died last at %d, want %d", got, want)
		}
	})
}

// rewriting is a Redis that writes its files.
type rewriting struct {
	denied bool
	at     time.Time // when it began last
}

// Rewrite writes the files.
func (r *rewriting) Rewrite(context.Context) error {
	if r.at = time.Now(); r.denied {
		return store.ErrDenied
	}
	return nil
}

// TestHeldRewriteRedis: Redis has written its files anew, and before the keeper stores that, a document dies, or another
// owner stores what it has done. What the keeper stores is no later than the beginning of the rewriting, so the document
// that has died since is waited for, and Redis writes once more. Somebody who has ordered to forget it is not told that
// it is gone (G10).
func TestHeldRewriteRedis(t *testing.T) {
	js, runs := natstest.Connect(t, natstest.Options{}), 0
	for _, denied := range []bool{false, true} {
		held.Each(t, "processor/internal/retention.Keeper.rewriteRedis", held.Takeover,
			func(t *testing.T, during func(func())) {
				runs++
				s, redis := newServers(t, js, fmt.Sprint("redis", runs), 1), &rewriting{denied: denied}
				k, other := s.keeper(0), s.keeper(0)
				k.Redis, other.Redis = redis, redis
				info := k.info()
				info.TimeStamp = info.TimeStamp.Add(time.Hour)
				now := info.TimeStamp.UnixMilli()
				k.stirred, other.stirred = now-1, now-1
				died := int64(0)
				during(func() {
					died = now + 1
					k.stirred = died
					if err := other.rewriteRedis(context.Background(), info); err != nil {
						t.Error(err)
					}
				})
				if err := k.rewriteRedis(t.Context(), info); err != nil {
					t.Fatal(err)
				}
				if is := k.recorded(t, 0); is.Redis != now || k.denied != denied {
					t.Errorf("Redis has written at %d, want %d", is.Redis, now)
				}
				if died == 0 {
					return
				}
				k.seen = info
				if k.goneFrom(inRedis, died) && !denied {
					t.Error("a document that died meanwhile counts as gone")
				}
				redis.at = time.Time{}
				info.TimeStamp = info.TimeStamp.Add(k.interval())
				if err := k.rewriteRedis(t.Context(), info); err != nil || redis.at.IsZero() {
					t.Errorf("Redis does not write once more: %v", err)
				}
			})
	}
}
