package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Get prints a document.
type Get struct {
	Target
	Renew bool
	Connection
}

// Run runs the command.
func (c *Get) Run(ctx context.Context, streams output.Streams) error {
	doc, err := read(&c.Connection, streams, c.Target, func(conn *client.Client) (wire.Document, error) {
		if c.Renew {
			return conn.GetRenewed(ctx, c.Collection, c.ID)
		}
		return conn.Get(ctx, c.Collection, c.ID)
	})
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, doc)
	}
	return streams.PrintDocument(doc.Document)
}

// Collections prints all collections.
type Collections struct {
	Names bool
	Connection
}

// Run runs the command.
func (c *Collections) Run(ctx context.Context, streams output.Streams) error {
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	table := newTable(streams.Headed())
	if !c.JSON() && !c.Names {
		_, _ = fmt.Fprintln(table, "COLLECTION\tDEFAULT-TTL\tINDEXING\tLIVE\tEXPIRED")
	}
	for req := (wire.CollectionsRequest{Limit: wire.MaxListLimit}); ; {
		page, err := conn.Collections(ctx, req)
		if err != nil {
			return fmt.Errorf("collections: %w", err)
		}
		for _, one := range page.Collections {
			if c.Names {
				_, _ = fmt.Fprintln(streams.Out, one.Name)
				continue
			}
			if c.JSON() {
				if err := output.PrintJSON(streams.Out, one); err != nil {
					return err
				}
				continue
			}
			var more []string
			if one.MaxLife != 0 {
				more = append(more, fmt.Sprintf("max-life=%d", one.MaxLife))
			}
			if one.Paused {
				more = append(more, "paused")
			}
			if len(one.Indexes) > 0 {
				more = append(more, "indexes="+output.Names(one.Indexes))
			}
			line := fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s", output.Name(one.Name), output.DefaultTTL(one.DefaultTTL),
				one.IndexingMode, one.Live, one.Expired, strings.Join(more, " "))
			_, _ = fmt.Fprintln(table, strings.TrimSuffix(line, "\t"))
		}
		if err := table.Flush(); err != nil || page.Continuation == "" {
			return err
		}
		req.Continuation = page.Continuation
	}
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// List prints the documents of a collection.
type List struct {
	Collection
	Limit        int    `default:"100" placeholder:"N"`
	Continuation string `placeholder:"TEXT"`
	All          bool
	Selection
	Connection
}

// Run runs the command.
func (c *List) Run(ctx context.Context, streams output.Streams) error {
	if c.Limit < 1 || c.Limit > wire.MaxListLimit {
		return output.Usagef("--limit %d is not valid: use a number from 1 to %d", c.Limit, wire.MaxListLimit)
	}
	pages, err := c.pager(c.Limit, c.Continuation)
	if err != nil {
		return err
	}
	_, err = read(&c.Connection, streams, c.Collection, func(conn *client.Client) (struct{}, error) {
		page, err := pages.first(ctx, conn, c.Name)
		if err != nil {
			return struct{}{}, err
		}
		table := newTable(streams.Headed())
		if !c.JSON() {
			_, _ = fmt.Fprintln(table, "ID\tETAG\tEXPIRES\tDOCUMENT")
		}
		for {
			if err := c.print(streams.Out, table, page); err != nil {
				return struct{}{}, err
			}
			if page.Continuation == "" || !c.All {
				break
			}
			if page, err = pages.next(ctx, conn, c.Name); err != nil {
				return struct{}{}, err
			}
		}
		if page.Continuation != "" && !c.JSON() {
			there := "there are more documents"
			if pages.queries {
				there = fmt.Sprintf("there may be more documents, %d were examined for this page", page.Examined)
			}
			_, _ = fmt.Fprintf(streams.Err, "%s: use --all, or --continuation %s for the next page\n", there, page.Continuation)
		}
		return struct{}{}, nil
	})
	return err
}

// print prints a page. As text it aligns each page for itself, so that no page has to
// wait for the last.
func (c *List) print(w io.Writer, table *tabwriter.Writer, page page) error {
	if c.JSON() {
		return output.PrintJSON(w, page.Reply)
	}
	for _, doc := range page.Documents {
		expires := output.Expires(doc.ExpiresAt)
		if doc.Target != "" {
			expires += " target=" + doc.Target
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", output.Name(doc.ID), doc.Etag, expires, output.Compact(doc.Document))
	}
	return table.Flush()
}

// Count prints how many documents a collection has.
type Count struct {
	Collection
	Conditions
	Connection
}

// Run runs the command.
func (c *Count) Run(ctx context.Context, streams output.Streams) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	if req.Where != nil {
		return c.query(ctx, streams, req)
	}
	reply, err := read(&c.Connection, streams, c.Collection, func(conn *client.Client) (wire.CountReply, error) {
		reply, err := conn.Count(ctx, c.Name)
		if err == nil && reply.Live+reply.Expired == 0 {
			err = checkExists(ctx, conn, c.Name)
		}
		return reply, err
	})
	if err == nil {
		err = c.print(streams, reply, "%s live=%d expired=%d", c.Name, reply.Live, reply.Expired)
	}
	if err != nil || c.JSON() {
		return err
	}
	for _, index := range reply.Indexes {
		_, _ = fmt.Fprintf(streams.Out, "%s index=%s entries=%d not-indexed=%d%s\n", c.Name, output.Name(index.Pointer),
			index.Entries, index.NotIndexed, making(index))
	}
	return nil
}

// making says how far an index is made; "" if it is.
func making(index wire.IndexCount) string {
	if index.Making == nil {
		return ""
	}
	return fmt.Sprintf(" making=%d/%d", index.Making.Made, index.Making.Of)
}

// query counts the documents of a query.
func (c *Count) query(ctx context.Context, streams output.Streams, req wire.QueryRequest) error {
	n, err := read(&c.Connection, streams, c.Collection, func(conn *client.Client) (counted, error) {
		return countQuery(ctx, conn, c.Name, req)
	})
	if err != nil {
		return err
	}
	return c.print(streams, n, "%s live=%d examined=%d", c.Name, n.Count, n.Examined)
}

// Forecast prints how many documents will expire.
type Forecast struct {
	Collection
	Buckets int    `default:"10" placeholder:"N"`
	Within  Period `default:"1h" placeholder:"TIME"`
	Connection
}

// Run runs the command.
func (c *Forecast) Run(ctx context.Context, streams output.Streams) error {
	switch {
	case c.Buckets < 1 || c.Buckets > wire.MaxBuckets:
		return output.Usagef("--buckets %d is not valid: use a number from 1 to %d", c.Buckets, wire.MaxBuckets)
	case c.Within <= 0:
		return output.Usagef("--within %s is not valid: use a duration over 0 such as 90s, 12h or 7d",
			time.Duration(c.Within))
	}
	req := wire.ForecastRequest{Buckets: c.Buckets, Within: time.Duration(c.Within).String()}
	reply, err := read(&c.Connection, streams, c.Collection, func(conn *client.Client) (wire.ForecastReply, error) {
		reply, err := conn.Forecast(ctx, c.Name, req)
		if err == nil && !slices.ContainsFunc(reply.Buckets, func(b wire.Bucket) bool { return b.Count > 0 }) {
			err = checkExists(ctx, conn, c.Name)
		}
		return reply, err
	})
	if err != nil {
		return err
	}
	return printForecast(&c.Connection, streams, reply)
}

func printForecast(c *Connection, streams output.Streams, reply wire.ForecastReply) error {
	if c.JSON() {
		return output.PrintJSON(streams.Out, reply)
	}
	table := newTable(streams.Headed())
	_, _ = fmt.Fprintln(table, "AFTER\tUNTIL\tEXPIRE")
	for _, b := range reply.Buckets {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\n", b.From, b.Until, b.Count)
	}
	return table.Flush()
}
