package cli

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
)

// Snapshot lets lapse take a snapshot of every shard now.
type Snapshot struct {
	Connection
}

// Help implements [kong.HelpProvider].
func (Snapshot) Help() string {
	return `lapse takes snapshots by itself. This asks for one of every shard now, for example before
a backup, and waits until all are stored. The progress goes to standard error. A snapshot that
fails is tried again; an interrupt (ctrl-C) ends the waiting, not the snapshots.`
}

// Run runs the command.
func (c *Snapshot) Run(ctx context.Context, streams output.Streams) error {
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	p, err := conn.Snapshot(ctx, func(p client.SnapshotProgress) {
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
	_, err = fmt.Fprintf(streams.Out, "took %s\n", numberOf(p.Shards, "snapshot"))
	return err
}
