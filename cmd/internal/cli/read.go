package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/seed18712806/lapse/cmd/internal/client"
	"github.com/seed18712806/lapse/sink/wire"
)

type getCommand struct {
	Target
	Connection
}

// Help implements kong.HelpProvider.
func (getCommand) Help() string {
	return `As text it prints the document alone, its bytes unchanged; as JSON, with its etag
and instants. An expired document is not found.`
}

func (c *getCommand) Run(ctx context.Context, streams Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	conn, _, err := c.connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	doc, err := conn.Get(ctx, c.Collection, c.ID)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Target, err)
	}
	if c.json() {
		return printJSON(streams.Out, doc)
	}
	_, err = fmt.Fprintf(streams.Out, "%s\n", doc.Document)
	return err
}

// Collection is the collection that a command is about.
type Collection struct {
	Collection string `arg:"" help:"Name of the collection."`
}

// ask connects, asks, and closes.
func ask[Reply any](c *Connection, streams Streams, collection string, question func(*client.Client) (Reply, error)) (reply Reply, err error) {
	if err := wire.CheckCollection(collection); err != nil {
		return reply, err
	}
	conn, _, err := c.connect(streams)
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	reply, err = question(conn)
	if err != nil {
		return reply, fmt.Errorf("%s: %w", collection, err)
	}
	return reply, nil
}

type listCommand struct {
	Collection
	Limit        int    `default:"100" placeholder:"N" help:"Documents in a page, 1 to 1000 (${default}); fewer, if they are large."`
	Continuation string `placeholder:"TEXT" help:"Go on where the page that gave it ended."`
	All          bool   `help:"Print all pages."`
	Connection
}

// Help implements kong.HelpProvider.
func (listCommand) Help() string {
	return `In no particular order. As JSON it prints one line for each page, as lapse sent it.`
}

func (c *listCommand) Run(ctx context.Context, streams Streams) error {
	if c.Limit < 1 || c.Limit > wire.MaxListLimit {
		return fmt.Errorf("--limit %d: allowed is a number from 1 to %d", c.Limit, wire.MaxListLimit)
	}
	req := wire.ListRequest{Limit: c.Limit, Continuation: c.Continuation}
	_, err := ask(&c.Connection, streams, c.Collection.Collection, func(conn *client.Client) (struct{}, error) {
		table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
		if !c.json() {
			_, _ = fmt.Fprintln(table, "ID\tETAG\tEXPIRES\tDOCUMENT")
		}
		for {
			page, err := conn.List(ctx, c.Collection.Collection, req)
			if err != nil {
				return struct{}{}, err
			}
			if err := c.print(streams.Out, table, page); err != nil {
				return struct{}{}, err
			}
			req.Continuation = page.Continuation
			if page.Continuation == "" || !c.All {
				break
			}
		}
		if req.Continuation != "" && !c.json() {
			_, _ = fmt.Fprintf(streams.Err, "there are more: --all, or --continuation %s\n", req.Continuation)
		}
		return struct{}{}, nil
	})
	return err
}

// print prints a page; as text, aligned for itself, so that no page has to wait
// for the last.
func (c *listCommand) print(w io.Writer, table *tabwriter.Writer, page wire.ListReply) error {
	if c.json() {
		return printJSON(w, page)
	}
	for _, doc := range page.Documents {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", show(doc.ID), doc.Etag, expires(doc.ExpiresAt), compact(doc.Document))
	}
	return table.Flush()
}

type countCommand struct {
	Collection
	Connection
}

func (c *countCommand) Run(ctx context.Context, streams Streams) error {
	reply, err := ask(&c.Connection, streams, c.Collection.Collection, func(conn *client.Client) (wire.CountReply, error) {
		return conn.Count(ctx, c.Collection.Collection)
	})
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(streams.Out, reply)
	}
	_, err = fmt.Fprintf(streams.Out, "%s live=%d expired=%d\n", c.Collection.Collection, reply.Live, reply.Expired)
	return err
}

type forecastCommand struct {
	Collection
	Buckets int    `default:"10" placeholder:"N" help:"Number of stretches of time, 1 to 1000 (${default})."`
	Within  period `default:"1h" placeholder:"TIME" help:"How far to look ahead, such as 90s, 12h or 7d (${default})."`
	Connection
}

func (c *forecastCommand) Run(ctx context.Context, streams Streams) error {
	switch {
	case c.Buckets < 1 || c.Buckets > wire.MaxBuckets:
		return fmt.Errorf("--buckets %d: allowed is a number from 1 to %d", c.Buckets, wire.MaxBuckets)
	case c.Within <= 0:
		return fmt.Errorf("--within %s: allowed is a duration over 0 such as 90s, 12h or 7d", time.Duration(c.Within))
	}
	req := wire.ForecastRequest{Buckets: c.Buckets, Within: time.Duration(c.Within).String()}
	reply, err := ask(&c.Connection, streams, c.Collection.Collection, func(conn *client.Client) (wire.ForecastReply, error) {
		return conn.Forecast(ctx, c.Collection.Collection, req)
	})
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(streams.Out, reply)
	}
	table := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "AFTER\tUNTIL\tEXPIRE")
	for _, b := range reply.Buckets {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\n", b.From, b.Until, b.Count)
	}
	return table.Flush()
}

// show shows an id as it is, unless that could be misread, or worse, on a
// terminal: then quoted.
func show(id string) string {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == '"' }
	if strings.ContainsFunc(id, odd) {
		return strconv.Quote(id)
	}
	return id
}
