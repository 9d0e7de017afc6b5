package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// truncate removes all but the last messages of the log.
func (r *rig) truncate(keep uint64) {
	r.t.Helper()
	log, err := r.js.Stream(r.t.Context(), prefix.LogStream())
	if err == nil {
		err = log.Purge(r.t.Context(), jetstream.WithPurgeKeep(keep))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// stored is how many documents Redis holds, of all shards.
func (r *rig) stored() (n int64) {
	r.t.Helper()
	for _, key := range keysOf(r.t, r, "lapse:{*docs:*") {
		one, err := r.redis.HLen(r.t.Context(), key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		n += one
	}
	return n
}

// lose removes one document of a collection from Redis, so that the shard
// is damaged.
func (r *rig) lose(collection string) {
	r.t.Helper()
	key := keysOf(r.t, r, "*docs:"+collection)[0]
	fields, err := r.redis.HKeys(r.t.Context(), key).Result()
	if err == nil {
		err = r.redis.HDel(r.t.Context(), key, fields[0]).Err()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// refusesTruncated runs lapse until it has applied ten documents. Ten more are written while it does not
// run, and the log is truncated behind some of those. It returns the process that refuses that.
func (r *rig) refusesTruncated() *process {
	r.t.Helper()
	p := r.start(nil)
	p.ready(r.t)
	for i := range 10 {
		r.put("c", fmt.Sprint(i), `{}`)
	}
	r.caughtUp(p)
	p.stop(r.t)
	for i := range 10 {
		r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint("new", i)), `{}`)
	}
	r.truncate(3)
	p = r.start(nil)
	p.ends(r.t, ErrLogTruncated)
	return p
}

// TestG7_DamagedAndTruncated: a damaged shard that the log cannot rebuild is refused
// and kept as it is, and readers get an error. The refusal survives a restart, until a person
// decides to begin anew. It fails if the shard is cleared before the log is examined: of 2,000
// documents 1,866 were left then.
func TestG7_DamagedAndTruncated(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		const documents = 60
		for i := range documents {
			r.put("c", fmt.Sprint(i), `{}`)
		}
		r.caughtUp(p)
		p.stop(t)
		r.truncate(3)
		r.lose("c")
		const id = "0"
		var accepted Accepted
		for range 2 { // it survives a restart
			p = r.start(nil)
			p.ends(t, ErrRefused)
			eventually(t, "readers learn it", func() bool {
				_, err := r.newReader().Get(t.Context(), "c", id)
				return errors.Is(err, sink.ErrUnavailable)
			})
			if n := r.stored(); n != documents-1 {
				t.Errorf("Redis holds %d documents, want the %d that were left", n, documents-1)
			}
			if accepted = r.accepts(p.err); accepted.Losses[0] != streams.LostDocuments || !accepted.RedisIsSaved ||
				!strings.Contains(p.err.Error(), "the log begins at sequence") {
				t.Errorf("the reason does not say what is missing: %v", p.err)
			}
		}
		r.beginsNothing(accepted)
		r.beginAnew(accepted)
		p = r.start(nil)
		p.ready(t)
		r.put("c", id, `{"n":3}`)
		if got := r.body("c", id); got != `{"n":3}` {
			t.Errorf("the shard that was begun anew reads %q", got)
		}
		if n := r.stored(); n >= documents/2 || n == 0 {
			t.Errorf("Redis holds %d documents after the shard was begun anew", n)
		}
		p.stop(t)
		p = r.start(nil)
		p.ready(t)
		p.stop(t)
	})
}

// TestG7_TruncatedBeginsAnew: a log that does not reach back ends the start. By a person's decision lapse
// begins anew.
func TestG7_TruncatedBeginsAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		accepted := r.accepts(r.refusesTruncated().err)
		if n := r.stored(); n != 10 || accepted.Losses[0] != streams.LostLogBeginning {
			t.Errorf("Redis holds %d documents, want 10; it is given up by %v", n, accepted)
		}
		r.beginsNothing(accepted)
		r.beginAnew(accepted)
		r.hasBegunAnew()
	})
}

// TestG1_LogEndsBeforeTheCheckpoint: where the checkpoint is after the end of the log, the
// log has lost its end, even if Redis is empty.
func TestG1_LogEndsBeforeTheCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	r.put("c", "x", `{}`)
	r.caughtUp(p)
	p.stop(t)
	if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	bucket, err := r.js.KeyValue(t.Context(), prefix.CheckpointBucket())
	if err != nil {
		t.Fatal(err)
	}
	entry, err := bucket.Get(t.Context(), shard.CheckpointKey(0))
	if err != nil {
		t.Fatal(err)
	}
	var c shard.Checkpoint
	if err := json.Unmarshal(entry.Value(), &c); err != nil {
		t.Fatal(err)
	}
	right := entry.Value()
	for name, change := range map[string]struct {
		do   func(*shard.Checkpoint)
		want error
	}{
		"beyond the end":   {func(c *shard.Checkpoint) { c.Seq += 1000 }, ErrLogBehind},
		"of another stamp": {func(c *shard.Checkpoint) { s := c.ParsedStamp(); s.At++; c.Stamp = s.String() }, ErrLogChanged},
	} {
		c := c
		change.do(&c)
		wrong, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bucket.Put(t.Context(), shard.CheckpointKey(0), wrong); err != nil {
			t.Fatal(err)
		}
		p := r.start(nil)
		<-p.done
		if !errors.Is(p.err, change.want) {
			t.Errorf("%s: run ended with %v, want %v", name, p.err, change.want)
		}
	}
	if _, err := bucket.Put(t.Context(), shard.CheckpointKey(0), right); err != nil {
		t.Fatal(err)
	}
	r.run()
}

// TestG7_CheckpointOfAnotherLog: a process stood still while somebody began another log, which has a
// checkpoint now. It fails if the process replaces that: no owner could take the shard over.
func TestG7_CheckpointOfAnotherLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.run()
	bucket, err := r.js.KeyValue(t.Context(), prefix.CheckpointBucket())
	if err != nil {
		t.Fatal(err)
	}
	other := `{"format":3,"log":"1700000000000000000","seq":1}`
	for i := range 1 {
		if _, err := bucket.PutString(t.Context(), shard.CheckpointKey(i), other); err != nil {
			t.Fatal(err)
		}
	}
	r.put("c", "x", `{}`)
	eventually(t, "lapse tells of it", func() bool {
		err := p.Ready()
		return err != nil && strings.Contains(err.Error(), shard.ProblemCheckpoints.Name) &&
			strings.Contains(err.Error(), "is of a log that was created at 2023-11-14")
	})
	for i := range 1 {
		if entry, err := bucket.Get(t.Context(), shard.CheckpointKey(i)); err != nil || string(entry.Value()) != other {
			t.Errorf("the checkpoint of shard %d is %v, %v", i, entry, err)
		}
	}
}

// TestLastMessageDeleted: the last message of the log is deleted while lapse does not
// run, which is a gap as soon as there is another one. It fails if the reader waits for that message.
func TestLastMessageDeleted(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.put("c", "x", `{}`)
		r.caughtUp(p)
		p.stop(t)
		r.send(prefix.Write(wire.Upsert, "c", "y"), `{}`)
		r.removeWrites("c", "y")
		r.beginAnew(r.refusesGap("1 messages are missing"))
		p = r.start(nil)
		p.ready(t)
		if got := r.body("c", "y"); got != "" {
			t.Errorf("a write that was deleted from the log reads %q", got)
		}
		p.stop(t)
	})
}

// TestRefusedStartCreatesNothing: Redis holds documents of a log that does not exist.
func TestRefusedStartCreatesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.put("c", "x", `{}`)
		r.caughtUp(p)
		p.stop(t)
		names := []string{prefix.LogStream(), prefix.EventsStream(), "KV_" + prefix.CheckpointBucket()}
		for _, name := range names {
			if err := r.js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		r.start(nil).ends(t, ErrLogChanged)
		for _, name := range names {
			if _, err := r.js.Stream(t.Context(), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("a start that was refused has made %s: %v", name, err)
			}
		}
	})
}

// TestG3_OrderOfTakingOver: the fence in Redis, then the fence in the events, then a tick:
// the causes of everything that a former owner can have published are at or before that
// tick. It fails if the end of the log is read before both fences stand.
func TestG3_OrderOfTakingOver(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	first := r.start(nil)
	first.ready(t)
	r.put("c", "x", `{}`)
	r.caughtUp(first)
	first.stop(t)
	log, err := r.js.Stream(t.Context(), prefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	last := func() uint64 {
		info, err := log.Info(context.Background())
		if err != nil {
			t.Error(err)
			return 0
		}
		return info.State.LastSeq
	}
	var version string
	var atFence uint64
	p := r.start(func(here crash.Point) error {
		switch here {
		case crash.AfterTake:
			version = r.redis.HGet(context.Background(), keysOf(t, r, "*:state")[0], "version").Val()
		case crash.AfterFence:
			if now := r.redis.HGet(context.Background(), keysOf(t, r, "*:state")[0], "version").Val(); now != version {
				t.Errorf("the version was %s, and is %s when the events are fenced", version, now)
			}
			r.send(prefix.Write(wire.Upsert, "c", "y"), `{}`) // a former owner could have read this
			atFence = last()
		}
		return nil
	})
	p.ready(t)
	if published := p.session.owner.Announcer().UpTo(); version == "" || atFence == 0 || published <= atFence {
		t.Errorf("outputs caused after %d count as new; the fence was stored when the log ended at %d", published, atFence)
	}
	p.stop(t)
}

// TestG11_NoPartitionIsTakenOverAtOnce: all takeovers fail for a while, and the log was truncated
// behind what is applied.
//
// It fails if the main reader, which then has nobody to read for, reads from the beginning of
// the log: the process would end for good, and name the log, which lacks nothing.
func TestG11_NoPartitionIsTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	for i := range 20 {
		r.put("c", fmt.Sprint(i), `{}`)
	}
	r.caughtUp(p)
	p.stop(t)
	r.truncate(3)
	var takes atomic.Int32
	p = r.start(func(here crash.Point) error {
		if here == crash.AfterTake && takes.Add(1) <= 12 {
			return errFail
		}
		return nil
	})
	p.ready(t)
	r.put("c", "0", `{"n":1}`)
	p.stop(t)
}
