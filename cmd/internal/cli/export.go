package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/seed18712806/lapse/cmd/internal/ndjson"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Export prints all live documents of a collection.
type Export struct {
	Collection
	File     string `arg:"" optional:"" default:"-"`
	Progress bool
	Selection
	Connection
}

// Run runs the command.
func (c *Export) Run(ctx context.Context, streams output.Streams) (err error) {
	if err := c.Check(); err != nil {
		return err
	}
	pages, err := c.pager(wire.MaxListLimit, "")
	if err != nil {
		return err
	}
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	// It reads the first page before it opens the file, so that an export that cannot begin
	// overwrites nothing.
	first, err := pages.first(ctx, conn, c.Name)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	out := streams.Out
	if c.File != "-" {
		file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) // for this user alone
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	var exported atomic.Int64
	progress := output.StartProgress(streams, c.Progress, progressEvery, func() string {
		return fmt.Sprintf("exporting %s documents=%d", c.Name, exported.Load())
	})
	err = c.write(ctx, conn, pages, first, bufio.NewWriterSize(out, 64<<10), &exported)
	progress.End()
	if err != nil {
		text := fmt.Sprintf("%s: the export is not complete, it has %d documents", c.Name, exported.Load())
		if ctx.Err() != nil {
			err = output.Interrupted("%s", text)
		} else {
			err = fmt.Errorf("%s: %w", text, err)
		}
		if c.File == "-" {
			err = output.Printed(err) // standard output has the documents, and nothing else
		}
		return err
	}
	if c.File == "-" {
		return nil
	}
	n := exported.Load()
	return c.print(streams, map[string]int64{"documents": n}, "exported %s documents=%d", c.Name, n)
}

// write writes the documents of this page and of all after it.
func (c *Export) write(
	ctx context.Context, conn *client.Client, pages pager, page page, out *bufio.Writer, exported *atomic.Int64,
) error {
	for {
		for _, doc := range page.Documents {
			text, err := ndjson.Append(nil, doc)
			if err != nil {
				return fmt.Errorf("document %s: %w", output.Name(doc.ID), err)
			}
			if _, err := out.Write(append(text, '\n')); err != nil {
				return err
			}
			exported.Add(1)
		}
		if err := out.Flush(); err != nil || page.Continuation == "" {
			return err
		}
		var err error
		if page, err = pages.next(ctx, conn, c.Name); err != nil {
			return err
		}
	}
}
