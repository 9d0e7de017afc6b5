package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// selectedWrite is the commands that write a document, or all that are selected: touch and delete.
type selectedWrite struct {
	Collection string  `arg:""`
	ID         string  `arg:"" optional:"" name:"id"`
	IDPrefix   *string `name:"id-prefix" placeholder:"TEXT"`
	Conditions
	DryRun       bool
	Continuation string `placeholder:"TOKEN"`
	Progress     bool
	Asking
	Writing
	Connection
}

// Run runs the command.
func (c *selectedWrite) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	several, err := c.several()
	if err != nil {
		return err
	}
	if several {
		return c.writeMany(ctx, streams, opOf(parsed))
	}
	one := Target{Collection: c.Collection, ID: c.ID}
	m, err := c.message()
	if err := cmp.Or(one.Check(), err); err != nil {
		return err
	}
	return write(ctx, &c.Connection, streams, opOf(parsed), one, m)
}

// several reports whether the arguments are about all documents that are selected.
func (c *selectedWrite) several() (bool, error) {
	flag := "--id-prefix"
	if len(c.Where) > 0 {
		flag = "--where"
	}
	single := c.IDPrefix == nil && len(c.Where) == 0
	switch {
	case c.Scan && len(c.Where) == 0:
		return false, output.Usagef("--scan is about the conditions of a query: add --where, or leave it out")
	case single && c.ID == "":
		return false, output.Usagef("name the id of a document, or --id-prefix with the beginning of the ids of several, " +
			"or --where with a condition")
	case single && (c.DryRun || c.Yes || c.Progress || c.Continuation != ""):
		return false, output.Usagef("--dry-run, --yes, --progress and --continuation belong to --id-prefix and --where: " +
			"leave them out for one document")
	case single:
		return false, nil
	case c.ID != "" && len(c.Where) > 0:
		return false, output.Usagef("the id %s and --where do not go together: leave out one of them", output.Name(c.ID))
	case c.ID != "":
		return false, output.Usagef("the id %s and --id-prefix %s do not go together: leave out one of them",
			output.Name(c.ID), output.Name(*c.IDPrefix))
	case c.IDPrefix != nil && len(c.Where) > 0:
		return false, output.Usagef("--where and --id-prefix do not go together: leave out one of them")
	case c.IDPrefix != nil && *c.IDPrefix == "":
		return false, output.Usagef(`--id-prefix "" is the beginning of every id: use at least one character, or lapse ` +
			`drop to remove a whole collection`)
	case len(c.Where) > 0 && c.Continuation != "":
		return false, output.Usagef("--continuation belongs to --id-prefix: a command with --where is repeated as it is")
	case c.IfMatch != nil || c.MsgID != nil:
		return false, output.Usagef("--if-match and --msg-id are about one document: they do not go with %s", flag)
	}
	return true, CheckCollection(c.Collection)
}

// pager returns what reads the documents in pages.
func (c *selectedWrite) pager() (pager, error) {
	if c.IDPrefix != nil {
		return pager{list: wire.ListRequest{Limit: wire.MaxListLimit, Prefix: *c.IDPrefix, Continuation: c.Continuation}}, nil
	}
	query, err := c.request()
	query.Limit = wire.MaxListLimit
	return pager{query: query, queries: true}, err
}

// manyCounts counts documents by what became of them.
type manyCounts struct {
	Documents int  `json:"documents"`        // that were written or, with --dry-run, that would be
	Gone      int  `json:"gone"`             // that were gone before
	Changed   int  `json:"changed"`          // that had changed since a query read them, or were gone, and were left alone
	Failed    int  `json:"failed"`           // that were refused
	DryRun    bool `json:"dryRun,omitempty"` // nothing was written
}

// many is a write of all documents that are selected, under way.
type many struct {
	*selectedWrite
	streams output.Streams
	conn    *client.Client
	prefix  wire.Prefix
	first   pager // of the first page
	op      wire.Op
	done    string         // what is done to a document, such as "deleted"
	message client.Message // but for what depends on the document

	mu       sync.Mutex
	counts   manyCounts
	begun    wire.Time // the least instant of a touch of this command; 0 before the first one
	exits    map[int]bool
	lost     error // why the outcomes of some are not known
	progress *output.Progress
}

// writeMany writes all documents that are selected.
func (c *selectedWrite) writeMany(ctx context.Context, streams output.Streams, op wire.Op) error {
	first, err := c.pager()
	if err != nil {
		return err
	}
	message, err := c.message()
	if err != nil {
		return err
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	done := map[wire.Op]string{wire.Touch: "touched", wire.Delete: "deleted"}[op]
	m := &many{
		selectedWrite: c, streams: streams, conn: conn, prefix: prefix, first: first, op: op, done: done, message: message,
		exits: make(map[int]bool),
	}
	if c.DryRun {
		n, err := m.count(ctx)
		if err != nil {
			return err
		}
		return m.report(manyCounts{Documents: n, DryRun: true})
	}
	err = c.ask(ctx, streams, func() (string, error) {
		n, err := m.count(ctx)
		if n == 0 {
			return "", err
		}
		return fmt.Sprintf("These are %s of %s at %s. Shall each be %s?", output.Documents(int64(n)), c.Collection,
			conn.Conn().ConnectedUrlRedacted(), done), err
	})
	if err != nil {
		return err
	}
	m.progress = output.StartProgress(streams, c.Progress, progressEvery, func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Sprintf("%s %s=%d failed=%d", c.Collection, done, m.counts.Documents, m.counts.Failed)
	})
	at0, err := m.run(ctx)
	m.progress.End()
	if err != nil {
		return m.incomplete(ctx, at0, err)
	}
	return m.report(m.counts)
}

// pages calls do with the documents of each page. at is the continuation of the page that was not done.
func (m *many) pages(ctx context.Context, do func([]wire.Document) error) (at string, err error) {
	next := m.first
	read := next.first
	for at = m.Continuation; ; read = next.next {
		page, err := read(ctx, m.conn, m.Collection)
		if err != nil {
			return at, fmt.Errorf("%s: %w", m.Collection, err)
		}
		if err := do(page.Documents); err != nil {
			return at, err
		}
		if at = page.Continuation; at == "" {
			return "", nil
		}
	}
}

// count counts the documents.
func (m *many) count(ctx context.Context) (n int, err error) {
	if m.first.queries {
		found, err := countQuery(ctx, m.conn, m.Collection, m.first.query)
		if err != nil {
			err = fmt.Errorf("%s: %w", m.Collection, err)
		}
		return int(found.Count), err
	}
	_, err = m.pages(ctx, func(docs []wire.Document) error { n += len(docs); return nil })
	return n, err
}

// run writes a page at a time, and waits for the outcomes of each. An interrupt ends it behind a page.
//
// A touch moves a document to the end of the collection, where a later page has it again. So run passes over what was
// written since its first touch: all that it has touched are among that.
func (m *many) run(ctx context.Context) (at string, err error) {
	return m.pages(ctx, func(docs []wire.Document) error {
		if m.begun != 0 {
			docs = slices.DeleteFunc(docs, func(doc wire.Document) bool { return doc.Ts >= m.begun })
		}
		pipeline, err := m.conn.Pipeline(func(n int, r client.Result, err error) { m.finish(docs[n].ID, r, err) })
		if err != nil {
			return err
		}
		whole := context.WithoutCancel(ctx)
		for n, doc := range docs {
			message := m.message
			message.Subject = m.prefix.Write(m.op, m.Collection, doc.ID)
			if m.first.queries {
				message.IfMatch = doc.Etag.String()
			}
			if err = pipeline.Send(whole, message, n); err != nil {
				break
			}
		}
		return cmp.Or(err, pipeline.Close(whole), m.lost)
	})
}

// finish counts a document by its outcome.
func (m *many) finish(id string, r client.Result, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrUnavailable) ||
		errors.Is(err, client.ErrDenied) {
		m.lost = cmp.Or(m.lost, err) // all that are under way end like this one
		return
	}
	o := r.Outcome
	switch {
	case err == nil && o.Status < wire.StatusBadRequest:
		m.counts.Documents++
		if m.op == wire.Touch && (m.begun == 0 || o.Ts < m.begun) {
			m.begun = o.Ts
		}
		return
	case err == nil && o.Status == wire.StatusPreconditionFailed && m.first.queries:
		m.counts.Changed++
		return
	case err == nil && o.Status == wire.StatusNotFound:
		m.counts.Gone++
		return
	case err == nil:
		err = output.Statusf(o.Status, "%d: %s", o.Status, o.Error)
	}
	m.counts.Failed++
	m.exits[output.ExitCode(err)] = true
	m.progress.Line(fmt.Sprintf("lapse: %s: %s", Target{m.Collection, id}, output.OneLine(err)))
}

// report prints the counts, and returns an error if documents have failed or were left alone.
func (m *many) report(counts manyCounts) (err error) {
	besides := fmt.Sprintf("gone=%d", counts.Gone)
	if m.first.queries {
		besides = fmt.Sprintf("changed=%d", counts.Changed)
	}
	text := fmt.Sprintf("%s %s documents=%d %s failed=%d", m.done, m.Collection, counts.Documents, besides, counts.Failed)
	if counts.DryRun {
		text = fmt.Sprintf("%s of %s would be %s", output.Documents(int64(counts.Documents)), m.Collection, m.done)
	}
	err = m.print(m.streams, counts, "%s", text)
	failed := &output.StatusError{Status: wire.StatusInternal}
	switch {
	case counts.Failed > 0:
		if len(m.exits) == 1 && m.exits[output.ExitCodeOf(wire.StatusConflict)] {
			failed.Status = wire.StatusConflict
		}
		failed.Text = fmt.Sprintf("%s: %s failed", m.Collection, output.Documents(int64(counts.Failed)))
	case counts.Changed > 0:
		failed.Status = wire.StatusPreconditionFailed
		were, they, them := "were", "they", "them"
		if counts.Changed == 1 {
			were, they, them = "was", "it", "it"
		}
		failed.Text = fmt.Sprintf("%s: %s had changed or %s gone when %s %s to be %s, and %s left alone: repeat the "+
			"command to look at %s again",
			m.Collection, output.Documents(int64(counts.Changed)), were, they, were, m.done, were, them)
	default:
		return err
	}
	return output.Printed(failed)
}

// incomplete is the error of a command that ended before the last page. It says how to go on.
func (m *many) incomplete(ctx context.Context, at string, stopped error) error {
	text := fmt.Sprintf("%s: not complete, documents %s: %d", m.Collection, m.done, m.counts.Documents)
	if m.counts.Changed > 0 {
		text += fmt.Sprintf(", left alone because they had changed: %d", m.counts.Changed)
	}
	how := "repeat the command"
	if at != "" && !m.first.queries {
		how += " with --continuation " + at
	}
	text += ". To go on, " + how
	if ctx.Err() != nil {
		return output.Interrupted("%s", text)
	}
	return fmt.Errorf("%s: %w", text, stopped)
}
