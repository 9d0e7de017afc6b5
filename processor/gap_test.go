package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// loseWrites writes documents, and removes some of the messages from the log, as only a person can who
// knows how. It returns the sequence of the first message that is gone.
func (r *rig) loseWrites(collection string, ids ...string) (first uint64) {
	r.t.Helper()
	r.send(prefix.Write(wire.Upsert, collection, "before"+ids[0]), `{}`)
	for _, id := range ids {
		seq := r.send(prefix.Write(wire.Upsert, collection, id), `{}`)
		if first == 0 {
			first = seq
		}
	}
	r.send(prefix.Write(wire.Upsert, collection, "behind"+ids[0]), `{}`)
	r.removeWrites(collection, ids...)
	return first
}

// removeWrites removes messages from the log.
func (r *rig) removeWrites(collection string, ids ...string) {
	r.t.Helper()
	log := r.theLog()
	for _, id := range ids {
		subject := prefix.Write(wire.Upsert, collection, id)
		if r.opts.Shards > 1 {
			subject = string(prefix) + ".shard." + fmt.Sprint(r.opts.Shard) + strings.TrimPrefix(subject, string(prefix))
		}
		if err := log.Purge(r.t.Context(), jetstream.WithPurgeSubject(subject)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) theLog() jetstream.Stream {
	r.t.Helper()
	log, err := r.js.Stream(r.t.Context(), prefix.Log(r.opts.Shard, max(1, r.opts.Shards)).Stream())
	if err != nil {
		r.t.Fatal(err)
	}
	return log
}

// lastSeqs are the last sequences of the log and of the events.
func (r *rig) lastSeqs() [2]uint64 {
	r.t.Helper()
	events, err := r.js.Stream(r.t.Context(), prefix.EventsStream())
	if err != nil {
		r.t.Fatal(err)
	}
	return [2]uint64{r.theLog().CachedInfo().State.LastSeq, events.CachedInfo().State.LastSeq}
}

// refusesGap checks that a process refuses the log, says what is missing, and changes nothing. It returns the
// decision that gives it up.
func (r *rig) refusesGap(missing string) Accepted {
	r.t.Helper()
	before, keys := r.lastSeqs(), strings.Join(r.states(), "\n")
	p := r.start(nil)
	p.ends(r.t, ErrLogGap)
	if after := r.lastSeqs(); after != before {
		r.t.Errorf("log and events ended at %v, and end at %v", before, after)
	}
	if now := strings.Join(r.states(), "\n"); now != keys {
		r.t.Errorf("Redis had\n%s\nand has\n%s", keys, now)
	}
	for _, part := range []string{missing, "it was stored at 20", "restore the log from a backup; or go on without them",
		"run lapse begin-anew --accept-lost-log-messages ("} {
		if !strings.Contains(p.err.Error(), part) {
			r.t.Errorf("the reason does not say %q: %v", part, p.err)
		}
	}
	return r.accepts(p.err)
}

// states are what Redis has of each shard, but for its documents.
func (r *rig) states() (all []string) {
	r.t.Helper()
	for _, key := range keysOf(r.t, r, "lapse:{*:state") {
		fields, err := r.redis.HGetAll(r.t.Context(), key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, fmt.Sprint(key, fields))
	}
	return all
}

// TestG12_AGapInTheLog: the log has lost messages that were not applied, from its middle. lapse refuses it and
// changes nothing. With the flag that the refusal names, and with no other, it goes on without them, and does not ask
// again, also if Redis is built again. A later gap is asked for again.
//
// It fails if the gap is passed over, or if a decision is forgotten or counts for another gap.
func TestG12_AGapInTheLog(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		r.put("c", "a", `{}`)
		r.caughtUp(p)
		p.stop(t)
		first := r.loseWrites("c", "x", "y")
		missing := fmt.Sprintf("2 messages are missing (sequences %d to %d)", first, first+1)
		accepted := r.refusesGap(missing)
		if got := r.body("c", "a"); got != `{}` {
			t.Errorf("a document reads %q", got)
		}
		r.beginsNothing(accepted)
		r.refusesGap(missing)
		r.beginAnew(accepted)
		goesOn := func() {
			t.Helper()
			p = r.start(nil)
			p.ready(t)
			r.caughtUp(p)
			for id, want := range map[string]string{"a": `{}`, "beforex": `{}`, "x": "", "y": "", "behindx": `{}`} {
				if got := r.body("c", id); got != want {
					t.Errorf("%s reads %q, want %q", id, got, want)
				}
			}
			p.stop(t)
		}
		goesOn()
		first = r.loseWrites("c", "z")
		r.beginAnew(r.refusesGap(fmt.Sprintf("1 messages are missing (sequences %d)", first)))
		goesOn()
		r.wipe()
		goesOn()
	})
}

// TestG12_AGapOfWhatWasApplied: the log has lost messages that Redis, or a snapshot, has. lapse goes on: what is
// there is the whole. Where neither has them, it refuses to build Redis again.
//
// It fails if lapse goes on without what nobody has, or refuses what is whole.
func TestG12_AGapOfWhatWasApplied(t *testing.T) {
	t.Parallel()
	for i, snapshot := range []bool{false, true} {
		t.Run(fmt.Sprintf("snapshot %v", snapshot), func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[i], "")
			p := r.start(noPurge)
			p.ready(t)
			r.put("c", "a", `{}`)
			r.put("c", "x", `{}`)
			r.put("c", "b", `{}`)
			r.caughtUp(p)
			if snapshot {
				r.snapshot(p)
			}
			p.stop(t)
			r.removeWrites("c", "x")
			p = r.start(noPurge)
			p.ready(t)
			r.put("c", "d", `{}`)
			p.stop(t)
			r.wipe()
			if !snapshot {
				r.beginAnew(r.refusesGap("1 messages are missing"))
			}
			p = r.start(noPurge)
			p.ready(t)
			for id, want := range map[string]string{"a": `{}`, "x": map[bool]string{true: `{}`}[snapshot], "b": `{}`,
				"d": `{}`} {
				if got := r.body("c", id); got != want {
					t.Errorf("%s reads %q, want %q", id, got, want)
				}
			}
			p.stop(t)
		})
	}
}

// TestG12_AShardWithAGap: the log of one of two shards has lost a message. The other shard goes on.
func TestG12_AShardWithAGap(t *testing.T) {
	t.Parallel()
	r := startMapped(t, backends[1], 2)
	r.opts.ReplyPrefixes = []string{"_INBOX_acme"}
	for _, p := range r.startShards() {
		p.stop(t)
	}
	configs, err := r.js.Stream(t.Context(), prefix.ConfigStream())
	if err != nil {
		t.Fatal(err)
	}
	config := configs.CachedInfo().Config
	var id [2]string // a document of each shard
	for n := 0; id[0] == "" || id[1] == ""; n++ {
		one := fmt.Sprint("id", n)
		shard := wire.ShardOf(2, "c", one)
		id[shard] = one
	}
	r.send(prefix.Write(wire.Upsert, "c", id[0]), `{}`)
	r.send(prefix.Write(wire.Upsert, "c", id[1]), `{}`)
	r.opts.Shard = 0
	r.removeWrites("c", id[0])
	other := r.startShard(1)
	other.ready(t)
	r.opts.Shard = 0
	if _, err := r.js.Publish(t.Context(), prefix.Log(0, 2).Tick(), nil); err != nil {
		t.Fatal(err)
	}
	p := r.startShard(0)
	p.ends(t, ErrLogGap)
	if got := r.body("c", id[1]); got != `{}` {
		t.Errorf("a document of the other shard reads %q", got)
	}
	prefixes := r.opts.ReplyPrefixes
	r.opts.ReplyPrefixes = nil // which is no wish of the person who decides
	r.beginAnew(r.accepts(p.err))
	r.opts.ReplyPrefixes = prefixes
	if info, err := configs.Info(t.Context()); err != nil || !reflect.DeepEqual(info.Config, config) {
		t.Errorf("the decision has changed the stream of configurations from %+v to %+v, %v", config, info.Config, err)
	}
	p = r.startShard(0)
	p.ready(t)
	p.stop(t)
	other.stop(t)
}

// TestG12_AFileOfTheLogIsLost: nats-server has lost one of the files of the log, or the middle of it is damaged,
// which it finds at its next start.
func TestG12_AFileOfTheLogIsLost(t *testing.T) {
	t.Parallel()
	for i, how := range []string{"removed", "damaged"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r := newLossRig(t, backends[i], "")
			p := r.start(noPurge)
			p.ready(t)
			r.put("c", "a", `{}`)
			p.stop(t)
			large := `{"n":"` + strings.Repeat("x", 500<<10) + `"}`
			for n := range 60 { // of 8 MB each
				r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(n)), large)
			}
			was := r.now()
			path := filepath.Join(was.streams, "jetstream", "$G", "streams", theLog, "msgs", "2.blk")
			if how == "removed" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				content, err := os.ReadFile(path)
				if err == nil {
					copy(content[len(content)/2:], strings.Repeat("\xff", 1000))
					err = os.WriteFile(path, content, 0o600)
				}
				// Without it the server reads its files.
				if err == nil {
					err = os.RemoveAll(filepath.Join(filepath.Dir(path), "index.db"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			r.putBack(was, theLog)
			r.beginAnew(r.refusesGap("messages are missing (sequences "))
			p = r.start(noPurge)
			p.ready(t)
			r.caughtUp(p)
			if r.body("c", "59") == "" || r.body("c", "a") == "" {
				t.Error("what the log has was not applied")
			}
			p.stop(t)
		})
	}
}

// TestG12_AGapWhileLapseReads: the log loses a message that lapse, which runs, has not read.
func TestG12_AGapWhileLapseReads(t *testing.T) {
	t.Parallel()
	r, pause := newPausing(t)
	p := r.start(nil)
	p.ready(t)
	end := pause(p.session.queue.Again)
	first := r.loseWrites("c", "x")
	end()
	p.ends(t, ErrLogGap)
	if !strings.Contains(p.err.Error(), fmt.Sprintf("(sequences %d)", first)) {
		t.Errorf("it does not say what is missing: %v", p.err)
	}
	if err := p.Run(context.Background()); !errors.Is(err, ErrLogGap) {
		t.Errorf("the next run: %v", err)
	}
	r.beginAnew(r.accepts(p.err))
	p = r.start(nil)
	p.ready(t)
	r.caughtUp(p)
	if r.body("c", "behindx") == "" {
		t.Error("what follows was not applied")
	}
	p.stop(t)
}
