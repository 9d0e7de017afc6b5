package integration

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_ShardsOverTwoProcesses: four shards belong to two processes, two each. Each process reads the messages of its
// own shards alone: about half of all. Then one is killed under load, and the other goes on with all shards; reads go
// over all shards all the time.
//
// It fails if a process reads a log that it does not own, if a shard stays without an owner, or
// if a configuration does not reach every shard.
func TestG1_ShardsOverTwoProcesses(t *testing.T) {
	t.Parallel()
	const shards, documents = 4, 400
	w := serversOf(t, harness.RedisOptions{}, shards)
	flags := []string{"--duplicate-window", duplicateWindow.String(), "--shards", strconv.Itoa(shards)}
	w.lapse = harness.StartLapse(t, w.nats.URL(), w.redis.Address(), flags...)
	other := harness.StartLapse(t, w.nats.URL(), w.redis.Address(), flags...)
	owned := func(l *harness.Lapse) float64 { return metric(t, l, "lapse_shard_owner") }
	harness.Until(t, harness.Limit, "each process owns two shards", func(context.Context) error {
		if a, b := owned(w.lapse), owned(other); a != 2 || b != 2 {
			return fmt.Errorf("they own %v and %v", a, b)
		}
		return nil
	})
	w.Configure("c", `{"defaultTtl":-1}`)
	read := func(l *harness.Lapse) float64 { return metric(t, l, "lapse_messages_read_total") }
	before := read(w.lapse) + read(other)
	mine := read(w.lapse)
	for i := range documents {
		w.SendLater(w.Prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
	}
	w.Flush()
	harness.Until(t, harness.Limit, "all are applied", func(ctx context.Context) error {
		count, err := w.reader.Count(ctx, "c")
		if err == nil && count.Live != documents {
			err = fmt.Errorf("%d documents", count.Live)
		}
		return err
	})
	all, part := read(w.lapse)+read(other)-before, read(w.lapse)-mine
	t.Logf("%.0f messages were read for %d writes; one process has read %.0f %%", all, documents, 100*part/all)
	if all < documents || all > documents*1.1 {
		t.Errorf("the processes have read %.0f messages for %d writes", all, documents)
	}
	if part < all*0.3 || part > all*0.7 {
		t.Errorf("one of two processes has read %.0f of %.0f messages", part, all)
	}
	l := startLoad(t, w.Client, 11)
	l.wait(t, 300)
	other.Kill()
	l.wait(t, 300)
	harness.Until(t, harness.Limit, "the process that is left owns all shards", func(context.Context) error {
		if n := owned(w.lapse); n != shards {
			return fmt.Errorf("it owns %v", n)
		}
		return nil
	})
	w.lapse.Ready()
	l.end()
	w.verify()
	l.verifyStored(t)
}

// TestG7_EmbeddedShards: the embedded default with four shards is killed, and starts again with what it had.
//
// It fails if the embedded server does not map writes, or if a start does not rebuild every shard.
func TestG7_EmbeddedShards(t *testing.T) {
	t.Parallel()
	w := &world{t: t, shards: 4, lapse: harness.EmbeddedLapse(t, "--duplicate-window", duplicateWindow.String(),
		"--shards", "4")}
	w.connectEmbedded()
	l := startLoad(t, w.Client, 12)
	for range 2 {
		l.wait(t, 200)
		w.lapse.Kill()
		w.lapse.Start()
	}
	l.wait(t, 200)
	l.end()
	w.verify()
	l.verifyStored(t)
}
