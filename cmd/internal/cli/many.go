package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Targets is the arguments of a command about a document, or about all whose ids begin with a text.
type Targets struct {
	Collection   string  `arg:"" help:"Collection of the document."`
	ID           string  `arg:"" optional:"" name:"id" help:"Id of the document, as it is (not escaped)."`
	IDPrefix     *string `name:"id-prefix" placeholder:"TEXT" help:"In place of an id: all live documents whose ids begin with this. lapse looks at all ids for it."`
	DryRun       bool    `help:"With --id-prefix: only say how many documents that are."`
	Continuation string  `placeholder:"TOKEN" help:"With --id-prefix: go on where a command was interrupted, which has printed the token."`
	Progress     bool    `help:"With --id-prefix: show the progress on standard error, even if that is no terminal."`
	Asking
}

// manyHelp ends the help of a command that takes an --id-prefix.
const manyHelp = `With --id-prefix it takes all live documents whose ids begin with a text, a page at a time. On a terminal
it says how many these are, and asks. A document that is written meanwhile may be among them or not. It reports one that fails, and goes on
with the others: the exit code is then 4 if all of those were conflicts, and 1 otherwise. If it is
interrupted, repeat it as it says.`

// one is the single document of the arguments.
func (t Targets) one() Target { return Target{Collection: t.Collection, ID: t.ID} }

// several reports whether the arguments are about all documents with a prefix.
func (t Targets) several(w Writing) (bool, error) {
	switch {
	case t.IDPrefix == nil && t.ID == "":
		return false, output.Usagef("name the id of a document, or --id-prefix with the beginning of the ids of several")
	case t.IDPrefix == nil && (t.DryRun || t.Yes || t.Progress || t.Continuation != ""):
		return false, output.Usagef("--dry-run, --yes, --progress and --continuation belong to --id-prefix: leave them out for one document")
	case t.IDPrefix == nil:
		return false, nil
	case t.ID != "":
		return false, output.Usagef("the id %s and --id-prefix %s do not go together: leave out one of them", output.Name(t.ID), output.Name(*t.IDPrefix))
	case *t.IDPrefix == "":
		return false, output.Usagef(`--id-prefix "" is the beginning of every id: use at least one character, or lapse drop to remove a whole collection`)
	case w.IfMatch != nil || w.MsgID != nil:
		return false, output.Usagef("--if-match and --msg-id are about one document: they do not go with --id-prefix")
	}
	return true, CheckCollection(t.Collection)
}

// manyCounts counts documents by what became of them.
type manyCounts struct {
	Documents int  `json:"documents"`        // that were written or, with --dry-run, that would be
	Gone      int  `json:"gone"`             // that were gone before
	Failed    int  `json:"failed"`           // that were refused
	DryRun    bool `json:"dryRun,omitempty"` // nothing was written
}

// many is a write of all documents with a prefix, under way.
type many struct {
	Targets
	c       *Connection
	streams output.Streams
	conn    *client.Client
	done    string // what is done to a document, such as "deleted"
	message func(id string) client.Message

	mu       sync.Mutex
	counts   manyCounts
	exits    map[int]bool
	lost     error // why the outcomes of some are not known
	progress *output.Progress
}

// writeMany writes all documents with a prefix.
func writeMany(ctx context.Context, c *Connection, streams output.Streams, op wire.Op, t Targets, done string, w Writing, at Begun) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	m := &many{Targets: t, c: c, streams: streams, conn: conn, done: done, exits: make(map[int]bool), message: func(id string) client.Message {
		return client.Message{Subject: prefix.Write(op, t.Collection, id), ExpiresAt: at.ExpiresAt.text(), Clock: at.begin(), Traceparent: Text(w.Traceparent)}
	}}
	if t.DryRun {
		n, err := m.count(ctx)
		if err != nil {
			return err
		}
		return m.report(manyCounts{Documents: n, DryRun: true})
	}
	err = t.ask(ctx, streams, func() (string, error) {
		n, err := m.count(ctx)
		if n == 0 {
			return "", err
		}
		return fmt.Sprintf("These are %s of %s at %s. Shall each be %s?", output.Documents(int64(n)), t.Collection, conn.Conn().ConnectedUrlRedacted(), done), err
	})
	if err != nil {
		return err
	}
	m.progress = output.StartProgress(streams, t.Progress, progressEvery, func() string {
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Sprintf("%s %s=%d failed=%d", t.Collection, done, m.counts.Documents, m.counts.Failed)
	})
	at0, err := m.run(ctx)
	m.progress.End()
	if err != nil {
		return m.incomplete(ctx, at0, err)
	}
	return m.report(m.counts)
}

// pages calls do with the ids of each page. at is the continuation of the page that was not done.
func (m *many) pages(ctx context.Context, do func(ids []string) error) (at string, err error) {
	at = m.Continuation
	for first := true; ; first = false {
		page, err := m.conn.List(ctx, m.Collection, wire.ListRequest{Limit: wire.MaxListLimit, Prefix: *m.IDPrefix, Continuation: at})
		if err == nil && first && len(page.Documents) == 0 && page.Continuation == "" {
			err = checkExists(ctx, m.conn, m.Collection)
		}
		if err != nil {
			return at, fmt.Errorf("%s: %w", m.Collection, err)
		}
		var ids []string
		for _, doc := range page.Documents {
			ids = append(ids, doc.ID)
		}
		if err := do(ids); err != nil {
			return at, err
		}
		if at = page.Continuation; at == "" {
			return "", nil
		}
	}
}

// count counts the documents.
func (m *many) count(ctx context.Context) (n int, err error) {
	_, err = m.pages(ctx, func(ids []string) error { n += len(ids); return nil })
	return n, err
}

// run writes a page at a time, and waits for the outcomes of each. An interrupt ends it behind a page.
func (m *many) run(ctx context.Context) (at string, err error) {
	return m.pages(ctx, func(ids []string) error {
		pipeline, err := m.conn.Pipeline(func(n int, r client.Result, err error) { m.finish(ids[n], r, err) })
		if err != nil {
			return err
		}
		whole := context.WithoutCancel(ctx)
		for n, id := range ids {
			if err = pipeline.Send(whole, m.message(id), n); err != nil {
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
	if errors.Is(err, client.ErrUnknownOutcome) || errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrDenied) {
		m.lost = cmp.Or(m.lost, err) // all that are under way end like this one
		return
	}
	o := r.Outcome
	switch {
	case err == nil && o.Status < wire.StatusBadRequest:
		m.counts.Documents++
		return
	case err == nil && o.Status == wire.StatusNotFound:
		m.counts.Gone++
		return
	case err == nil:
		err = &output.StatusError{Status: o.Status, Text: fmt.Sprintf("%d: %s", o.Status, o.Error)}
	}
	m.counts.Failed++
	m.exits[output.ExitCode(err)] = true
	m.progress.Line(fmt.Sprintf("lapse: %s: %s", Target{m.Collection, id}, output.OneLine(err)))
}

// report prints the counts, and returns an error if documents have failed.
func (m *many) report(counts manyCounts) (err error) {
	switch {
	case m.c.JSON():
		err = output.PrintJSON(m.streams.Out, counts)
	case counts.DryRun:
		_, err = fmt.Fprintf(m.streams.Out, "%s of %s would be %s\n", output.Documents(int64(counts.Documents)), m.Collection, m.done)
	default:
		_, err = fmt.Fprintf(m.streams.Out, "%s %s documents=%d gone=%d failed=%d\n", m.done, m.Collection, counts.Documents, counts.Gone, counts.Failed)
	}
	if counts.Failed > 0 {
		status := wire.StatusInternal
		if len(m.exits) == 1 && m.exits[output.ExitCodeOf(wire.StatusConflict)] {
			status = wire.StatusConflict
		}
		return output.Printed(&output.StatusError{Status: status, Text: fmt.Sprintf("%s: %s failed", m.Collection, output.Documents(int64(counts.Failed)))})
	}
	return err
}

// incomplete is the error of a command that ended before the last page. It says how to go on.
func (m *many) incomplete(ctx context.Context, at string, stopped error) error {
	text := fmt.Sprintf("%s: not complete, documents %s: %d", m.Collection, m.done, m.counts.Documents)
	how := "repeat the command"
	if at != "" {
		how += " with --continuation " + at
	}
	text += ". To go on, " + how
	if ctx.Err() != nil {
		return output.Interrupted("%s", text)
	}
	return fmt.Errorf("%s: %w", text, stopped)
}
