package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// unready waits until /readyz answers that lapse is not ready, with a reason.
func unready(t *testing.T, l *harness.Lapse, reason string) {
	t.Helper()
	harness.Until(t, harness.Limit, "/readyz names "+reason, func(ctx context.Context) error {
		err := l.ReadyNow(ctx)
		if err == nil {
			return errors.New("/readyz answers 200")
		}
		if !strings.Contains(err.Error(), reason) {
			return err
		}
		return nil
	})
}

// TestG11_ServersGoAway: each server fails and comes back while nothing is written. /readyz, the metrics and the log
// show the problem with its reason, the log once, and show when it is over.
//
// It fails if only steps find problems: an idle lapse makes no steps.
func TestG11_ServersGoAway(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.Configure("c", `{"defaultTtl":-1}`)
	w.Want(201, wire.Upsert, "c", "a", `{}`)
	for _, server := range []struct {
		problem string
		reason  string
		stop    func()
		start   func()
	}{
		{"NATS", "NATS: there is no connection", w.nats.Kill, w.nats.Start},
		{"Redis", "Redis: it does not answer", w.redis.Kill, w.redis.Start},
		{"Redis", "Redis: it does not answer", w.redis.Stop, w.redis.Continue},
	} {
		server.stop()
		unready(t, w.lapse, server.reason)
		if metrics := w.lapse.Metrics(); !strings.Contains(metrics,
			fmt.Sprintf("lapse_problem{problem=%q} 1", server.problem)) {
			t.Errorf("the metrics do not name %s", server.problem)
		}
		server.start()
		w.lapse.Ready()
	}
	for _, line := range []string{`msg="there is a problem" problem=NATS`, `msg="a problem is over" problem=NATS`} {
		if n := strings.Count(w.lapse.Log(), line); n != 1 {
			t.Errorf("the log has %d lines with %s, want one", n, line)
		}
	}
	if n := strings.Count(w.lapse.Log(), "there is a problem"); n > 15 {
		t.Errorf("the log has %d problems in three outages, want at most 15", n)
	}
	w.verify()
}

// TestG11_DataIsGone: the data directory is removed while lapse runs. lapse ends with the reason, and does not go on
// acknowledging writes that would be lost.
//
// It fails if lapse does not watch its data directory.
func TestG11_DataIsGone(t *testing.T) {
	t.Parallel()
	w := embedded(t)
	w.Want(201, wire.Upsert, "c", "a", `{}`)
	if err := os.RemoveAll(w.lapse.Data()); err != nil {
		t.Fatal(err)
	}
	if code := w.lapse.WaitEnded(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if !strings.Contains(w.lapse.Log(), "was removed or replaced while lapse was running") {
		t.Error("the reason is not in the log")
	}
}

// TestG1_AStandbyTakesOver: two processes run on the same servers. The second is a standby: it is ready, serves reads
// and names the owner. When the owner dies, and when it ends, the other goes on.
//
// It fails if two processes keep taking the shard from each other.
func TestG1_AStandbyTakesOver(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	window := "--duplicate-window=" + duplicateWindow.String()
	owner, standby := w.lapse, harness.StartLapse(t, w.nats.URL(), w.redis.Address(), window)
	w.Configure("c", `{"defaultTtl":1}`)
	for round, end := range []func(l *harness.Lapse){
		(*harness.Lapse).Kill,
		func(l *harness.Lapse) { l.Terminate() },
		(*harness.Lapse).Kill,
	} {
		var before int
		harness.Until(t, harness.Limit, "one process owns the shard", func(context.Context) error {
			before = takeovers(t, owner, standby)
			if !owns(t, owner) {
				owner, standby = standby, owner
			}
			if !owns(t, owner) || owns(t, standby) {
				return errors.New("both own it, or none")
			}
			return nil
		})
		for i := range 50 {
			w.Want(201, wire.Upsert, "c", fmt.Sprint(round, "-", i), `{}`)
		}
		if n := strings.Count(standby.Log(), "standing by: another process owns the shard"); n == 0 ||
			n > 3+takeovers(t, owner, standby) {
			t.Errorf("round %d: the standby has logged %d times who the owner is, want once in each of its lives",
				round, n)
		}
		// A standby may suspect the owner once on a busy machine. Two processes that
		// fight would take the shard at almost each write.
		switch n := takeovers(t, owner, standby) - before; {
		case n > 5:
			t.Errorf("round %d: the shard was taken over %d times in 50 writes", round, n)
		case n == 0 && !strings.Contains(owner.Metrics(), `lapse_steps_fenced_total 0`):
			t.Errorf("round %d: a step of the owner was fenced, though nobody took over", round)
		}
		if !owns(t, owner) {
			owner, standby = standby, owner
		}
		end(owner)
		o := w.Want(201, wire.Upsert, "c", fmt.Sprint("after-", round), `{}`)
		w.ExpiryOf("c", fmt.Sprint("after-", round), o.Etag, harness.Limit)
		owner.Start()
		owner, standby = standby, owner
	}
	w.verify()
}

// owns reports whether a process owns the only shard.
func owns(t *testing.T, l *harness.Lapse) bool {
	t.Helper()
	return metric(t, l, `lapse_shard_owner{shard="0"}`) == 1
}

// takeovers returns how often these processes have taken the only shard over.
func takeovers(t *testing.T, all ...*harness.Lapse) int {
	t.Helper()
	n := 0
	for _, l := range all {
		n += int(metric(t, l, `lapse_shard_taken_total{shard="0"}`))
	}
	return n
}

// TestG10_NothingIsLeftInRedis: the bytes of documents that expired, or were overwritten, deleted or dropped, are in no
// key of Redis.
//
// It fails if a removed document leaves its bytes in any key.
func TestG10_NothingIsLeftInRedis(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":-1}`)
	var last wire.Outcome
	for i := range 20 {
		id := fmt.Sprint(i)
		w.Want(201, wire.Upsert, "c", id, `{"secret":"s3cr3t-first"}`)
		if i%2 == 0 {
			w.Want(200, wire.Upsert, "c", id, `{"ttl":3600,"secret":"s3cr3t-overwritten"}`)
			w.Want(204, wire.Delete, "c", id, "")
		} else {
			last = w.Want(200, wire.Upsert, "c", id, `{"ttl":1,"secret":"s3cr3t-overwritten"}`)
		}
	}
	w.Want(201, wire.Upsert, "dropped", "a", `{"secret":"s3cr3t-dropped"}`)
	w.Drop("dropped")
	w.ExpiryOf("c", "19", last.Etag, harness.Limit)
	client := w.redis.Client()
	harness.Until(t, harness.Limit, "the bytes are gone from Redis", func(ctx context.Context) error {
		keys, err := client.Keys(ctx, "*").Result()
		for _, key := range keys {
			dump, dumpErr := client.Dump(ctx, key).Result()
			err = errors.Join(err, dumpErr)
			if strings.Contains(dump, "s3cr3t") || strings.Contains(key, ":docs:") {
				err = errors.Join(err, fmt.Errorf("key %s has some", key))
			}
		}
		return err
	})
	w.verify()
}

// TestG1_LogLostItsEnd: the log loses its end and grows again, while lapse runs and while it does not run. lapse
// refuses it, because it is another log, and refuses it again at the next start. With the flags that the refusal names,
// lapse begin-anew lets it begin anew from that log.
//
// It fails if lapse compares only sequences: it would then skip messages.
func TestG1_LogLostItsEnd(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %v", running), func(t *testing.T) {
			t.Parallel()
			w := external(t, harness.RedisOptions{Persistent: true})
			for i := range 20 {
				w.Want(201, wire.Upsert, "c", fmt.Sprint("kept-", i), `{}`)
			}
			w.lapse.Terminate()
			w.nats.Terminate()
			copied := w.nats.Copy()
			w.nats.Start()
			w.lapse.Start()
			for i := range 100 {
				w.Want(201, wire.Upsert, "c", fmt.Sprint("lost-", i), `{}`)
			}
			if running {
				w.lapse.Stop() // it sees the log again only once that has grown
			} else {
				w.lapse.Terminate()
			}
			w.nats.Restore(copied)
			for i := range 300 {
				w.Write(wire.Upsert, "c", fmt.Sprint("new-", i), `{}`)
			}
			stored := redisKeys(t, w.redis)
			var text string
			if running {
				w.lapse.Continue()
			}
			for range 2 {
				text = w.lapse.Refuses()
				if !strings.Contains(text, "lost its end") {
					t.Fatalf("the reason is not named: %s", text)
				}
				if code := w.lapse.Terminate(); code != 0 {
					t.Errorf("exit code %d after a refusal", code)
				}
			}
			if after := redisKeys(t, w.redis); after != stored {
				t.Errorf("Redis held %s before the refusal, and %s after it", stored, after)
			}
			w.lapse.BeginAnew(w.lapse.FlagsIn(text), 0)
			if after := redisKeys(t, w.redis); after != stored {
				t.Errorf("the decision has changed Redis from %s to %s", stored, after)
			}
			w.lapse.Start()
			for id, there := range map[string]bool{"kept-3": true, "new-299": true, "new-0": true, "lost-7": false} {
				if found := w.Found("c", id); found != there {
					t.Errorf("c/%s is found: %v, want %v", id, found, there)
				}
			}
			w.verify()
		})
	}
}
