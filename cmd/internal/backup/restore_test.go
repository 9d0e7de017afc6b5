package backup

import (
	"bytes"
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// written runs lapse, and writes a document.
func written(t *testing.T, client *harness.Client, id string) {
	t.Helper()
	p := harness.StartProcessor(t, client.NC.ConnectedUrl(), harness.StartRedis(t, harness.RedisOptions{}).Address(), processor.Options{Partitions: 1})
	client.Want(201, wire.Upsert, "c", id, `{}`)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
}

// A restore stands still. Somebody takes it for dead and runs the command again, which removes
// what it has left, and ends. lapse starts, and clients write. Then the first one goes on.
//
// It fails if that removes a stream that it has not made.
func TestG7_ARestoreThatStoodStill(t *testing.T) {
	t.Parallel()
	nobody := func(context.Context) (bool, error) { return false, nil }
	first := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	written(t, first, "x")
	var file bytes.Buffer
	if _, err := Take(t.Context(), Source{NATS: first.NC, Prefix: wire.DefaultPrefix, Applying: nobody}, &file); err != nil {
		t.Fatal(err)
	}
	second := harness.NewClient(t, natstest.Start(t, natstest.Options{}), "")
	restore := func(nc *nats.Conn, stands func(string)) error {
		c, err := Scan(bytes.NewReader(file.Bytes()), Until{})
		if err != nil {
			t.Fatal(err)
		}
		return c.Restore(t.Context(), Target{NATS: nc, Applying: nobody, Progress: stands}, bytes.NewReader(file.Bytes()), Until{})
	}
	stood := false
	err := restore(second.NC, func(string) {
		if stood {
			return
		}
		stood = true
		if err := restore(second.NC, nil); err != nil {
			t.Fatal(err)
		}
		written(t, second, "y")
	})
	if err == nil {
		t.Error("both have restored the same streams")
	}
	for _, name := range []string{"LAPSE_LOG", "LAPSE_EVENTS", "KV_LAPSE_CHECKPOINTS", "OBJ_LAPSE_SNAPSHOTS"} {
		if _, err := second.JS.Stream(t.Context(), name); err != nil {
			t.Errorf("stream %s: %v", name, err)
		}
	}
}
