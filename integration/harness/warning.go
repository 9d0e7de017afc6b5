package harness

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Warn publishes a warning to the stream of events as lapse does, in the name of another log, so that a
// lapse that runs beside it takes no notice.
func Warn(ctx context.Context, nc *nats.Conn, warning wire.Expiring, trace string) error {
	const shard = 1 << 20 // none has this number, so there is no fence
	p, err := events.NewPublisher(nc, wire.DefaultPrefix, jetstream.StreamConfig{})
	if err != nil {
		return err
	}
	defer p.Close()
	log := events.NewSource(wire.DefaultPrefix.Log(0, 1), 1)
	_, err = p.Publish(ctx, p.Unfenced(shard), []events.Message{events.Expiring(log, warning, trace)})
	return err
}
