package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/processor"
)

// Demote makes a region ready to follow another one.
type Demote struct {
	Connection
	First string `placeholder:"DOMAIN"`
	Save  string `placeholder:"FILE"`
}

// Run runs the command.
func (c *Demote) Run(ctx context.Context, streams output.Streams) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := conn.Status(ctx)
	if err != nil {
		return err
	}
	for _, m := range state.Members {
		if m.SeenAgo < goneAfter.Seconds() {
			return fmt.Errorf("the process %s of lapse runs here, and was seen %s ago: stop it first, and wait %s", output.Name(m.Name), output.Seconds(m.SeenAgo), goneAfter)
		}
	}
	var save func() (io.WriteCloser, error)
	if c.Save != "" {
		save = func() (io.WriteCloser, error) {
			f, err := os.OpenFile(c.Save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return nil, fmt.Errorf("--save: %w", err)
			}
			return synced{f}, nil
		}
	}
	n, err := processor.Demote(ctx, conn.Conn(), prefix, c.First, save)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, map[string]any{"saved": n})
	}
	text := "removed the streams; the first region has everything that was in the log here"
	if n > 0 {
		text = fmt.Sprintf("removed the streams; %d messages that the first region does not have are in %s", n, c.Save)
	}
	_, err = fmt.Fprintln(streams.Out, text)
	return err
}

// goneAfter is since when a process that runs must have been seen.
const goneAfter = 10 * time.Second

// synced is a file that is on the disk when it is closed.
type synced struct{ *os.File }

func (s synced) Close() error {
	err := s.Sync()
	if closeErr := s.File.Close(); err == nil {
		err = closeErr
	}
	return err
}
