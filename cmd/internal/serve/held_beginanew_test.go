//go:build held

package serve

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldBeginAnew: the servers are started again, or the connections are lost, while a person gives up what two shards
// have lost. The command either has done it, or ends with an error and does it when it is run again. After that the
// shards are not refused any more.
//
// It fails if the command ends without an error, and a shard is still refused.
func TestHeldBeginAnew(t *testing.T) {
	const shards = 2
	for _, row := range []struct {
		operation string
		kind      held.Kind
	}{
		{"cmd/internal/serve.BeginAnew", held.Restart}, {"cmd/internal/serve.BeginAnew", held.Reconnection},
		{"processor.Processor.BeginAnew", held.Reconnection},
	} {
		held.Each(t, row.operation, row.kind, func(t *testing.T, during func(happen func())) {
			n := harness.StartNATS(t, harness.NATSOptions{Shards: shards})
			r := harness.StartRedis(t, harness.RedisOptions{Persistent: true})
			opts := options(t)
			opts.NATS, opts.Redis = n.URL(), redisconn.Options{URL: r.URL()}
			opts.Processor.Shards = shards
			l := launch(t, opts)
			api := l.ready()
			for id := range 10 { // in both shards
				takes(t, opts, fmt.Sprint(id), api)
			}
			l.ends()
			loseBeginnings(t, natstest.JetStream(t, connected(t, n.URL())), shards)
			during(func() {
				if row.kind == held.Reconnection {
					held.LoseConnections()
					return
				}
				n.Kill()
				r.Kill()
				r.Start()
				n.Start()
			})
			accepted := processor.Accepted{Losses: []processor.Loss{"lost-log-beginning"}, RedisIsSaved: true}
			// A nats-server that was killed may have lost that the process has left: it counts for ten seconds more.
			wait(t, "the command is done", func() bool {
				_, left, err := BeginAnew(t.Context(), opts, accepted)
				if len(left) > 0 {
					t.Errorf("%v is left, and the error is %v", left, err)
				}
				if err != nil {
					t.Logf("it is to be run again: %v", err)
				}
				return err == nil
			})
			l = launch(t, opts)
			takes(t, opts, "after", l.ready())
			l.ends()
		})
	}
}

// loseBeginnings stores writes in the logs of all shards, and truncates them before anybody has applied them.
func loseBeginnings(t *testing.T, js jetstream.JetStream, shards int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for id := range 20 {
		if _, err := js.Publish(ctx, wire.DefaultPrefix.Write(wire.Upsert, "c", fmt.Sprint("lost", id)), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	for shard := range shards {
		log, err := js.Stream(ctx, wire.DefaultPrefix.Log(shard, shards).Stream())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Purge(ctx, jetstream.WithPurgeKeep(1)); err != nil {
			t.Fatal(err)
		}
	}
}
