// Package commands has the client commands of lapse, but for import and export (package
// transfer). Each is a struct of its flags and arguments, for kong, with a method Run:
//
//	write.go      put, create, replace, patch, touch, delete
//	configure.go  config, drop
//	read.go       get, list, count, forecast, collections
//	watch.go      watch
//	status.go     status
//	snapshot.go   snapshot
//	health.go     health
//	backup.go     backup, restore: what they do is in package backup
//
// A command prints its result and returns its error, which package output then reports.
package commands

import (
	"context"
	"fmt"

	"github.com/seed18712806/lapse/cmd/internal/flags"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// publish publishes a message, waits for its outcome and reports it. An error names the
// target.
func publish(ctx context.Context, c *flags.Connection, streams output.Streams, message func(wire.Prefix) client.Message, target string, describe func(wire.Outcome) string) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	result, err := conn.Write(ctx, message(prefix))
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	return report(c, streams, result, target, describe)
}

// report prints the result of a message: as JSON its outcome as it came, as text what
// describe makes of it.
func report(c *flags.Connection, streams output.Streams, result client.Result, target string, describe func(wire.Outcome) string) (err error) {
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
func read[Reply any](c *flags.Connection, streams output.Streams, collection string, send func(*client.Client) (Reply, error)) (reply Reply, err error) {
	if err := flags.CheckCollection(collection); err != nil {
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
