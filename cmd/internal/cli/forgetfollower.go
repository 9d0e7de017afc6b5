package cli

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/processor"
)

// ForgetFollower makes a region forget one that has followed it.
type ForgetFollower struct {
	Connection
	Region string `arg:""`
}

// Run runs the command.
func (c *ForgetFollower) Run(ctx context.Context, streams output.Streams) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	known, err := processor.ForgetFollower(ctx, conn.Conn(), prefix, c.Region)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, map[string]bool{"forgotten": known})
	}
	text := fmt.Sprintf("forgot the region %q", c.Region)
	if !known {
		text = fmt.Sprintf("no region %q is remembered", c.Region)
	}
	_, err = fmt.Fprintln(streams.Out, text)
	return err
}
