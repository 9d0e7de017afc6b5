package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
)

// Snapshot lets lapse take a snapshot of every shard now.
type Snapshot struct {
	Forget bool
	Connection
}

// Run runs the command.
func (c *Snapshot) Run(ctx context.Context, streams output.Streams) error {
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	order := conn.Snapshot
	if c.Forget {
		order = conn.Forget
	}
	p, err := order(ctx, func(p client.SnapshotProgress) {
		text := fmt.Sprintf("%d of %s", p.Done, numberOf(p.Shards, "shard"))
		if p.Failure != "" {
			text += ": " + p.Failure
		}
		_, _ = fmt.Fprintln(streams.Err, text)
	})
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, p)
	}
	text := "took " + numberOf(p.Shards, "snapshot")
	if f := p.Forgotten; f != nil {
		text = fmt.Sprintf("nothing is left of what had ended by %s", f.Before)
		if len(f.Left) > 0 {
			text = fmt.Sprintf("of what had ended by %s bytes may be left until %s in: %s", f.Before, f.Until, strings.Join(f.Left, ", "))
		}
	}
	_, err = fmt.Fprintln(streams.Out, text)
	return err
}
