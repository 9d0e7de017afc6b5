package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// idOf is an id whose documents are in a shard.
func idOf(shard, shards, nth int) string {
	for i := 0; ; i++ {
		id := strconv.Itoa(i)
		if in := wire.ShardOf(shards, "c", id); in != shard {
			continue
		}
		if nth--; nth < 0 {
			return id
		}
	}
}

// stateOf is what a stream has.
func (w *world) stateOf(stream string) jetstream.StreamState {
	w.t.Helper()
	s, err := w.JS.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.CachedInfo().State
}

// attempts waits until the process has tried to take a refused shard over so many times from now on: it
// asks for the version of the server twice each time, and at no other time.
func (w *world) attempts(n int) {
	w.t.Helper()
	sub, err := w.NC.SubscribeSync("$JS.API.INFO")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for range 2 * n {
		if _, err := sub.NextMsg(harness.Limit); err != nil {
			w.t.Fatalf("no further attempt: %v", err)
		}
	}
}

// TestG12_ARefusedShardHoldsUpNothingElse: one of two shards is refused: its log has lost its end. The process stays
// up; the other shard goes on, and what Redis has is read. The refused shard is named with what to do, once in the log,
// and nothing of it is touched. When somebody has restored the log, the process goes on with the shard by itself.
//
// It fails if a refusal ends the process, or if an attempt writes before it refuses.
func TestG12_ARefusedShardHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	const shards = 2
	w := serversOf(t, harness.RedisOptions{Persistent: true}, shards)
	w.lapse = harness.PrepareLapse(t, "--nats", w.nats.URL(), "--redis", w.redis.URL(), "--shards", "2",
		"--duplicate-window", duplicateWindow.String())
	w.lapse.Start()
	w.Configure("c", `{"defaultTtl":-1}`)
	write := func(shard, nth int, body string) wire.Outcome {
		t.Helper()
		return w.Want(201, wire.Upsert, "c", idOf(shard, shards, nth), body)
	}
	write(0, 0, `{}`)
	write(1, 0, `{}`)
	w.lapse.Terminate()
	w.nats.Terminate()
	early := w.nats.Copy()
	w.nats.Start()
	w.lapse.Start()
	for nth := range 20 {
		write(1, nth+1, `{}`)
	}
	w.lapse.Terminate()
	w.nats.Terminate()
	whole, refused := w.nats.Copy(), w.Prefix.Log(1, shards).Stream()
	w.nats.RestoreStream(early, refused)

	before, log := redisKeys(t, w.redis), w.stateOf(refused)
	why := w.lapse.Refuses()
	for _, part := range []string{"shard 1: refused: ", "lost its end: restore the log",
		"run lapse begin-anew --accept-lost-log-end --redis-is-saved ("} {
		if !strings.Contains(why, part) {
			t.Errorf("/readyz does not say %q: %s", part, why)
		}
	}
	if strings.Contains(why, "shard 0: refused") || !strings.Contains(w.lapse.Metrics(),
		`lapse_problem{problem="refused"} 1`) {
		t.Errorf("the other shard is refused, or the metric is not set: %s", why)
	}
	w.attempts(2)
	if after, now := redisKeys(t, w.redis), w.stateOf(refused); after != before || now.LastSeq != log.LastSeq ||
		now.FirstSeq != log.FirstSeq {
		t.Errorf("the refusal changed Redis from %s to %s, or the log from %+v to %+v", before, after, log, now)
	}
	o := write(0, 1, `{"ttl":1}`)
	w.ExpiryOf("c", idOf(0, shards, 1), o.Etag, harness.Limit)
	if !w.Found("c", idOf(1, shards, 20)) || !w.Found("c", idOf(0, shards, 0)) {
		t.Error("a document that Redis has is not read")
	}
	if n := strings.Count(w.lapse.Log(), `problem="shard 1: refused"`); n != 1 {
		t.Errorf("the log names the refusal %d times", n)
	}

	w.nats.RestoreStream(whole, refused)
	w.lapse.Ready()
	write(1, 21, `{}`)
	w.verify()
	if code := w.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestG12_ADeletedStreamIsNotMadeAnew: somebody deletes the stream of events. The process stays up and is not ready,
// reads go on, and no attempt makes the stream anew.
func TestG12_ADeletedStreamIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.Want(201, wire.Upsert, "c", "a", `{}`)
	if err := w.JS.DeleteStream(t.Context(), w.Prefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	if why := w.lapse.Refuses(); !strings.Contains(why, "stream LAPSE_EVENTS: restore it from a backup") {
		t.Errorf("/readyz: %s", why)
	}
	w.attempts(2)
	if _, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream()); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream of events: %v", err)
	}
	if !w.Found("c", "a") {
		t.Error("the document is not read")
	}
	if code := w.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestG12_ReadsWithoutALog: the log is gone before a process starts. It stays up, and reads what Redis has.
func TestG12_ReadsWithoutALog(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.Want(201, wire.Upsert, "c", "a", `{}`)
	w.lapse.Terminate()
	for _, stream := range []string{w.Prefix.LogStream(), w.Prefix.EventsStream()} {
		if err := w.JS.DeleteStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
	}
	if why := w.lapse.Refuses(); !strings.Contains(why, "there is no stream LAPSE_LOG: restore that log") {
		t.Errorf("/readyz: %s", why)
	}
	if !w.Found("c", "a") {
		t.Error("the document is not read")
	}
}

// TestG12_ADecisionNeedsThatNobodyServes: a log has lost its end. The command that gives it up refuses while a process
// is there, which it names. Without the flag of this loss, or while nobody says that Redis is saved, it says what is
// refused. Then it begins anew, and both processes go on.
//
// It fails if the command works beside an owner, or changes anything before it refuses.
func TestG12_ADecisionNeedsThatNobodyServes(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.lapse.Terminate()
	w.nats.Terminate()
	early := w.nats.Copy()
	w.nats.Start()
	w.lapse.Start()
	for i := range 20 {
		w.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
	}
	w.lapse.Terminate()
	w.nats.Terminate() // so that it does not forget that the entry of lapse was removed
	w.nats.RestoreStream(early, w.Prefix.LogStream())
	flags := w.lapse.FlagsIn(w.lapse.Refuses())
	standby := harness.PrepareLapse(t, "--nats", w.nats.URL(), "--redis", w.redis.URL())
	standby.Launch()
	harness.Until(t, harness.Limit, "the standby listens",
		func(ctx context.Context) error { return standby.ReadyNow(ctx) })
	before, log := redisKeys(t, w.redis), w.stateOf(w.Prefix.LogStream())
	refuses := func(flags []string, want string) {
		t.Helper()
		if said := w.lapse.BeginAnew(flags, 1); !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
		if after, now := redisKeys(t, w.redis), w.stateOf(w.Prefix.LogStream()); after != before ||
			now.LastSeq != log.LastSeq {
			t.Errorf("it has changed Redis from %s to %s, or the log from %+v to %+v", before, after, log, now)
		}
	}
	refuses(flags, `serves the prefix "lapse" (it was seen `)
	w.lapse.Terminate()
	refuses(flags, `serves the prefix "lapse" (it was seen `) // the standby
	standby.Terminate()
	for _, others := range [][]string{nil, flags[:1], {"--accept-lost-log-beginning", "--accept-lost-documents",
		"--accept-lost-events", "--redis-is-saved"}} {
		refuses(others, "refused, and nothing was changed: restore what is missing, or give it up with the flags "+
			"that are named")
		refuses(others, "save Redis (redis-cli --rdb FILE, or BGSAVE) and run lapse begin-anew "+
			"--accept-lost-log-end --redis-is-saved (")
	}
	if said := w.lapse.BeginAnew(flags, 0); !strings.Contains(said,
		"begins anew from message 1 of the log at the next start") || strings.Contains(said, "refused") {
		t.Errorf("with %s: %s", flags, said)
	}
	if said := w.lapse.BeginAnew(flags, 0); !strings.Contains(said,
		"nothing is refused, and nothing was changed: start lapse") {
		t.Errorf("once more: %s", said)
	}
	w.lapse.Start()
	standby.Start()
	w.Want(201, wire.Upsert, "c", "new", `{}`)
}
