package cli

import (
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// report prints the result of a message: as JSON its outcome as it came, as text what
// describe makes of it.
func report(c *Connection, streams output.Streams, result client.Result, target string, describe func(wire.Outcome) string) (err error) {
	switch {
	case result.Duplicate && c.JSON():
		return output.PrintJSON(streams.Out, map[string]any{"duplicate": true, "seq": result.Seq})
	case result.Duplicate:
		_, err = fmt.Fprintf(streams.Out, "duplicate %s: the log has a message with this id (sequence %d): nothing is changed\n", target, result.Seq)
		return err
	case c.JSON():
		err = output.PrintJSON(streams.Out, result.Raw)
	case result.Outcome.Status < wire.StatusBadRequest:
		_, err = fmt.Fprintln(streams.Out, describe(result.Outcome))
		if warning := result.Outcome.Warning; warning != "" {
			streams.Warn(warning)
		}
	}
	if result.Outcome.Status >= wire.StatusBadRequest {
		text := fmt.Sprintf("%s: %d: %s", target, result.Outcome.Status, result.Outcome.Error)
		return output.Printed(&output.StatusError{Status: result.Outcome.Status, Text: text})
	}
	return err
}

// read connects and sends one read about a collection.
func read[Reply any](c *Connection, streams output.Streams, collection string, send func(*client.Client) (Reply, error)) (reply Reply, err error) {
	if err := CheckCollection(collection); err != nil {
		return reply, err
	}
	conn, _, err := c.Connect(streams)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	reply, err = send(conn)
	if err != nil {
		return reply, fmt.Errorf("%s: %w", collection, err)
	}
	return reply, nil
}
