//go:build held

package streams

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldMapping: the connection is lost while a process finds out whether NATS maps the writes. It asks again: else
// its start would end, or it would tell a person to add a mapping that is there.
func TestHeldMapping(t *testing.T) {
	log := wire.Prefix("lapse").Log(1, 4)
	from, to := log.Prefix.Mapping(log.Shards)
	url := natstest.StartMapped(t, natstest.Options{}, from, to)
	held.Each(t, "processor/internal/streams.CheckMapping", held.Reconnection, func(t *testing.T, during func(func())) {
		nc, err := nats.Connect(url, natstest.Patient, nats.ReconnectWait(1), nats.MaxReconnects(-1))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		during(held.LoseConnections)
		if err := Again(t.Context(), slog.Default(), func(ctx context.Context) error {
			return CheckMapping(ctx, nc, log)
		}); err != nil {
			t.Error(err)
		}
	})
}
