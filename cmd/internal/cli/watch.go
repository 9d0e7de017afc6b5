package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/client"
	"github.com/seed18712806/lapse/sink/wire"
)

type watchCommand struct {
	Collection string   `arg:"" optional:"" help:"Collection to watch; all, if none is given."`
	ID         string   `arg:"" optional:"" name:"id" help:"Document to watch; all, if none is given."`
	Rejected   bool     `help:"Print rejections too."`
	Since      *instant `placeholder:"TIME" help:"Begin with the events since then: an instant such as 2026-01-31T12:00:00Z, or how long ago, such as 12h or 7d."`
	Count      int      `placeholder:"N" help:"Stop after so many."`
	Connection
}

// Help implements kong.HelpProvider.
func (watchCommand) Help() string {
	return `Without --since it prints what is new from now on; it says on standard error from
when that is. An interrupt ends it.`
}

func (c *watchCommand) Run(ctx context.Context, streams Streams) error {
	if c.Collection != "" {
		if err := wire.CheckCollection(c.Collection); err != nil {
			return err
		}
	}
	if c.ID != "" {
		if err := wire.CheckID(c.ID); err != nil {
			return err
		}
	}
	if c.Count < 0 {
		return fmt.Errorf("--count %d: allowed is a number over 0, or none for no end", c.Count)
	}
	conn, _, err := c.connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()

	opts := client.WatchOptions{Collection: c.Collection, ID: c.ID, Rejected: c.Rejected}
	if c.Since != nil {
		opts.Since = c.Since.Time
	}
	opts.Watching = func(subjects []string) {
		_, _ = fmt.Fprintf(streams.Err, "watching %s\n", strings.Join(subjects, " "))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	printed := 0
	return conn.Watch(ctx, opts, func(n client.Notification) error {
		if err := c.print(streams, n); err != nil {
			return err
		}
		if printed++; printed == c.Count {
			stop()
		}
		return nil
	})
}

func (c *watchCommand) print(streams Streams, n client.Notification) error {
	var err error
	switch {
	case n.Expired != nil && c.json():
		err = printJSON(streams.Out, n.Expired)
	case n.Expired != nil:
		e := n.Expired
		document := "(too large for the event)"
		if !e.Omitted {
			document = compact(e.Document)
		}
		_, err = fmt.Fprintf(streams.Out, "%s expired %s etag=%s ttl=%d %s\n",
			e.ExpiredAt, Target{e.Collection, e.ID}, e.Etag, e.TTL, document)
	case c.json():
		err = printJSON(streams.Out, n.Rejected)
	default:
		r := n.Rejected
		_, err = fmt.Fprintf(streams.Out, "%s rejected %s seq=%d %d: %s\n", wire.Time(n.At.UnixMilli()), show(r.Subject), r.Seq, r.Code, r.Error)
	}
	return err
}

// compact puts a document on one line.
func compact(document []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, document) != nil {
		return string(document)
	}
	return b.String()
}
