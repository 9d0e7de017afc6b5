package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Watch prints expiry events, due messages, warnings, rejections and changes.
type Watch struct {
	Collection *string `arg:"" optional:""`
	ID         *string `arg:"" optional:"" name:"id"`
	Due        *string `placeholder:"TARGET"`
	Warnings   bool
	Rejected   bool
	Changes    bool
	Since      *Instant `placeholder:"TIME"`
	Count      *int     `placeholder:"N"`
	Connection
}

// Run runs the command.
func (c *Watch) Run(ctx context.Context, streams output.Streams) error {
	opts, err := c.options()
	if err != nil {
		return err
	}
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()

	opts.Watching = func(subjects []string) {
		_, _ = fmt.Fprintf(streams.Err, "watching %s\n", strings.Join(subjects, " "))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	printed := 0
	return conn.Watch(ctx, opts, func(n client.Notification) error {
		if err := c.print(streams, n); err != nil || n.Current {
			return err
		}
		if printed++; c.Count != nil && printed == *c.Count {
			stop()
		}
		return nil
	})
}

// options checks the flags and arguments.
func (c *Watch) options() (client.WatchOptions, error) {
	opts := client.WatchOptions{Warnings: c.Warnings, Rejected: c.Rejected, Changes: c.Changes}
	if c.Collection != nil {
		opts.Collection = *c.Collection
		if err := CheckCollection(opts.Collection); err != nil {
			return opts, err
		}
	}
	if c.Changes && c.Collection == nil {
		return opts, output.Usagef("--changes prints those of a collection: name one, as in lapse watch orders --changes")
	}
	if c.ID != nil {
		opts.ID = *c.ID
		if err := output.Usage(wire.CheckID(opts.ID)); err != nil {
			return opts, err
		}
	}
	if c.Due != nil {
		opts.Due = *c.Due
		if err := output.Usage(wire.CheckTargetFilter(opts.Due)); err != nil {
			return opts, err
		}
	}
	if c.Count != nil && *c.Count < 1 {
		return opts, output.Usagef("--count %d is not valid: use a number over 0, or leave --count out to go on until an "+
			"interrupt", *c.Count)
	}
	if c.Since != nil && !c.Since.Now {
		if c.Since.After(time.Now()) {
			return opts, output.Usagef("--since %s is in the future: use an instant in the past, or how long ago, such as 12h",
				c.Since.Format(time.RFC3339))
		}
		opts.Since = &c.Since.Time
	}
	return opts, nil
}

// print prints a notification.
func (c *Watch) print(streams output.Streams, n client.Notification) error {
	print := func(value any, format string, args ...any) error {
		return c.Connection.print(streams, value, format, args...)
	}
	switch e, d, w, r := n.Expired, n.Due, n.Expiring, n.Rejected; {
	case e != nil:
		return print(e, "%s expired %s etag=%s ttl=%s %s", e.ExpiredAt, Target{e.Collection, e.ID}, e.Etag,
			output.TTL(e.TTL), document(e.Document, e.Omitted))
	case d != nil:
		return print(d, "%s due %s etag=%s target=%s %s", d.DueAt, Target{d.Collection, d.ID}, d.Etag, d.Target,
			document(d.Document, d.Omitted))
	case w != nil:
		return print(w, "%s expiring %s etag=%s ttl=%s before=%d expires=%s %s", w.At(), Target{w.Collection, w.ID}, w.Etag,
			output.TTL(w.TTL), w.Before, w.ExpiresAt, document(w.Document, w.Omitted))
	case r != nil:
		return print(r, "%s rejected %s seq=%d %d: %s", wire.Time(n.At.UnixMilli()), output.Name(r.Subject), r.Seq, r.Code,
			r.Error)
	}
	return c.printChange(streams, n)
}

// stored is a document that was there at the beginning, as JSON: with a type, as changes have one.
type stored struct {
	Type       string `json:"type"`
	Collection string `json:"collection"`
	*wire.Document
}

// printChange prints a change, a document of the beginning or its end. That is on standard error, but for
// machines.
func (c *Watch) printChange(streams output.Streams, n client.Notification) error {
	var text string
	var value any
	switch {
	case n.Current:
		if !c.JSON() {
			_, err := fmt.Fprintln(streams.Err, "these are all documents; from here on come changes")
			return err
		}
		value = map[string]string{"type": "current"}
	case n.Document != nil:
		d := n.Document
		value = stored{"stored", *c.Collection, d}
		text = fmt.Sprintf("%s stored %s etag=%s expires=%s %s", d.Ts, Target{Collection: *c.Collection, ID: d.ID}, d.Etag,
			output.Expires(d.ExpiresAt), output.Compact(d.Document))
	default:
		d := n.Changed
		value, text = d, fmt.Sprintf("%s %s %s", d.Ts, d.Kind(), d.Collection)
		if d.ID != "" {
			text = fmt.Sprintf("%s %s %s", d.Ts, d.Kind(), Target{Collection: d.Collection, ID: d.ID})
		}
		if d.Etag != 0 {
			text += fmt.Sprintf(" etag=%s expires=%s %s", d.Etag, output.Expires(d.ExpiresAt), document(d.Document, d.Omitted))
		}
	}
	return c.Connection.print(streams, value, "%s", text)
}

// document is the document of an event, on one line.
func document(body []byte, omitted bool) string {
	if omitted {
		return "(not in the event)"
	}
	return output.Compact(body)
}
