package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/ndjson"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const progressEvery = time.Second

// Import writes the documents of a file.
type Import struct {
	Collection
	File        string  `arg:"" optional:"" default:"-" help:"File to read. - or no argument is standard input."`
	Op          wire.Op `enum:"upsert,create,replace" default:"upsert" placeholder:"OP" help:"What to do with each document: upsert, create or replace (${default})."`
	From        int     `default:"1" placeholder:"LINE" help:"Begin with this line of the input, to go on with an import that was interrupted (${default})."`
	ExpiresAt   string  `name:"expires-at-field" placeholder:"NAME" help:"Give each document the absolute deadline that its member NAME has, as in RFC 3339. Without that member it has none."`
	MsgIDPrefix *Header `name:"msg-id-prefix" placeholder:"TEXT" help:"Give each message an id that begins with this. If you run the import again with the same prefix and file, it repeats no line that the log took within its duplicate window."`
	Progress    bool    `help:"Show the progress on standard error, even if that is no terminal."`
	Connection
}

// Help implements [kong.HelpProvider].
func (Import) Help() string {
	return `Each line of the input is a JSON object with its id, a string; or, as an export writes a message, one that
begins with "$lapse":{"id":…,"target":…,"expiresAt":…}. The import sends many lines
at a time and waits for each outcome. It reports a line that fails with its number, and
goes on with the others. The exit code is then 3 if all the failed lines were not found, 4
if all were conflicts, and 1 otherwise. If lapse acknowledges and applies nothing for as
long as --timeout, the import ends with exit code 5.

An interrupt (ctrl-C) ends the reading. The import then waits for the lines that it has sent, and
says how to go on. A second one ends it at once.

With -o json it prints an object for each line that failed, and one with the counts.`
}

// importing is an import under way.
type importing struct {
	*Import
	streams  output.Streams
	prefix   wire.Prefix
	pipeline *client.Pipeline
	progress *output.Progress
	read     meter // of the input

	mu     sync.Mutex
	counts importCounts
	exits  map[int]bool // the exit codes that the failed lines would have
	open   map[int]bool // the lines that were sent and are not known to be done
	began  time.Time    // when the sending began,
	before int64        // and how much of the input had been read by then
	next   int          // the line after the last one that was sent or has failed
	// What became of lines that are open, although they are not under way any more.
	unknown int
	lost    error // of the first of them
}

// importCounts counts the lines by their outcome.
type importCounts struct {
	Created   int `json:"created"`
	Replaced  int `json:"replaced"`
	Duplicate int `json:"duplicate"` // the log already had the message
	Failed    int `json:"failed"`
	// Warned counts the documents that were written with a warning; Warning is one of those.
	Warned  int    `json:"warned,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// rest is what an import that is not complete leaves.
type rest struct {
	importCounts
	Unknown int `json:"unknown"` // lines without an outcome: they may have taken effect
	From    int `json:"from"`    // the first line that is not known to be done
}

func (n importCounts) String() string {
	return fmt.Sprintf("created=%d replaced=%d duplicate=%d failed=%d", n.Created, n.Replaced, n.Duplicate, n.Failed)
}

// importFailure is a line that failed, as JSON.
type importFailure struct {
	Line int `json:"line"`
	output.FailureObject
}

// Run runs the command.
func (c *Import) Run(ctx context.Context, streams output.Streams) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.From < 1 {
		return output.Usagef("--from %d is not valid: use the number of a line, 1 or more", c.From)
	}
	in := streams.In
	if c.File == "-" {
		streams.NoticeTerminal("the documents, one on each line,")
	}
	if c.File != "-" {
		file, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()

	i := &importing{Import: c, streams: streams, prefix: prefix, exits: make(map[int]bool), open: make(map[int]bool), next: c.From, began: time.Now()}
	if i.pipeline, err = conn.Pipeline(i.done); err != nil {
		return err
	}
	i.read.Reader = in
	i.progress = output.StartProgress(streams, c.Progress, progressEvery, i.shown(in))
	err = i.send(ctx, lines(ctx, &i.read, int(conn.MaxPayload())))
	// After an interrupt it waits for what is under way. The timeout of the pipeline bounds that.
	if closeErr := i.pipeline.Close(context.WithoutCancel(ctx)); closeErr != nil && (err == nil || ctx.Err() != nil) {
		err = closeErr
	}
	i.progress.End()
	return i.summary(cmp.Or(err, i.lost))
}

// send sends every line, until ctx is done.
func (i *importing) send(ctx context.Context, in <-chan line) error {
	sending := context.WithoutCancel(ctx) // a line is sent, or it is not
	for {
		var l line
		var ok bool
		select {
		case l, ok = <-in:
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil || !ok:
			return ctx.Err()
		case l.number == 0:
			return fmt.Errorf("read the input: %w", l.err)
		case l.number < i.From:
			continue
		case l.err != nil:
			i.failed(l.number, &output.StatusError{Status: wire.StatusTooLarge, Text: l.err.Error()})
			continue
		}
		doc, err := ndjson.Parse(l.text)
		if err != nil {
			i.failed(l.number, &output.StatusError{Status: wire.StatusBadRequest, Text: err.Error()})
			continue
		}
		m := client.Message{Subject: i.prefix.Write(i.Op, i.Name, doc.ID), Body: doc.Document, Target: doc.Target}
		if m.ExpiresAt, err = i.deadline(doc.Document); err != nil {
			i.failed(l.number, &output.StatusError{Status: wire.StatusBadRequest, Text: err.Error()})
			continue
		}
		m.ExpiresAt = cmp.Or(m.ExpiresAt, doc.ExpiresAt)
		if i.MsgIDPrefix != nil {
			m.ID = messageID(string(*i.MsgIDPrefix), l, m.Subject)
		}
		i.begin(l.number)
		if err := i.pipeline.Send(sending, m, l.number); err != nil {
			return fmt.Errorf("line %d was not sent: %w", l.number, err)
		}
	}
}

// deadline is the absolute deadline that a line names; "" if it names none.
func (c *Import) deadline(text []byte) (at string, err error) {
	if c.ExpiresAt == "" {
		return "", nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return "", err
	}
	switch raw := members[c.ExpiresAt]; {
	case raw == nil || string(raw) == "null":
		return "", nil
	case json.Unmarshal(raw, &at) != nil || at == "":
		return "", fmt.Errorf("member %s is %s: use an instant as in RFC 3339, in quotes", c.ExpiresAt, raw)
	}
	return at, nil
}

// messageID is the id of a line's message. A line with another text has another id.
func messageID(prefix string, l line, subject string) string {
	h := sha256.New()
	h.Write([]byte(subject))
	h.Write([]byte{0})
	h.Write(l.text)
	return prefix + "-" + strconv.Itoa(l.number) + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// begin notes that a line is sent.
func (i *importing) begin(number int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open[number], i.next = true, number+1
	if i.From > 1 && i.before == 0 { // passing over the lines before took no time
		i.began, i.before = time.Now(), i.read.read.Load()
	}
}

// done counts a line by its outcome.
func (i *importing) done(number int, result client.Result, err error) {
	unknown := errors.Is(err, client.ErrUnknownOutcome)
	if unknown || errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrDenied) {
		// All lines under way end like this one, because the import cannot go on: it says so once.
		i.mu.Lock()
		defer i.mu.Unlock()
		if unknown {
			i.unknown++
		}
		i.lost = cmp.Or(i.lost, err)
		return
	}
	o := result.Outcome
	if err == nil && o.Status >= wire.StatusBadRequest {
		err = &output.StatusError{Status: o.Status, Text: fmt.Sprintf("%d: %s", o.Status, o.Error)}
	}
	if err != nil {
		i.failed(number, err)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.open, number)
	switch {
	case result.Duplicate:
		i.counts.Duplicate++
	case o.Status == wire.StatusCreated:
		i.counts.Created++
	default:
		i.counts.Replaced++
	}
	if o.Warning != "" {
		i.counts.Warned++
		i.counts.Warning = cmp.Or(i.counts.Warning, o.Warning)
	}
}

// failed reports and counts a line that failed.
func (i *importing) failed(number int, err error) {
	i.mu.Lock()
	delete(i.open, number)
	i.next = max(i.next, number+1)
	i.counts.Failed++
	i.exits[output.ExitCode(err)] = true
	i.mu.Unlock()
	if !i.JSON() {
		i.progress.Line(fmt.Sprintf("lapse: line %d: %s", number, output.OneLine(err)))
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = output.PrintJSON(i.streams.Out, importFailure{number, output.Failure(err)})
}

func (i *importing) count() importCounts {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.counts
}

// summary prints the counts, and returns the error of the import. stopped is the reason if
// the import ended before its input.
func (i *importing) summary(stopped error) error {
	if stopped != nil {
		return output.Printed(i.incomplete(stopped))
	}
	var err error
	if i.JSON() {
		err = output.PrintJSON(i.streams.Out, i.counts)
	} else {
		_, err = fmt.Fprintf(i.streams.Out, "imported %s %s\n", i.Name, i.counts)
		if i.counts.Warned > 0 {
			i.streams.Warn(fmt.Sprintf("%d of the documents: %s", i.counts.Warned, i.counts.Warning))
		}
	}
	if i.counts.Failed > 0 {
		text := fmt.Sprintf("%s: %d lines failed", i.Name, i.counts.Failed)
		if i.counts.Failed == 1 {
			text = i.Name + ": 1 line failed"
		}
		return output.Printed(&output.StatusError{Status: i.failedStatus(), Text: text})
	}
	return err
}

// incomplete is the error of an import that ended before its input. It says how to go on.
func (i *importing) incomplete(stopped error) error {
	left := rest{i.counts, i.unknown, i.next}
	for number := range i.open {
		left.From = min(left.From, number)
	}
	if i.JSON() {
		if err := output.PrintJSON(i.streams.Out, left); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("lines written: %d, rejected: %d, unknown: %d. To go on, repeat the command with --from %d",
		left.Created+left.Replaced+left.Duplicate, left.Failed, left.Unknown, left.From)
	switch {
	case len(i.open) == 0:
	case i.Op == wire.Create:
		text += " (a line that is written already is then rejected with 409)"
	default:
		text += " (it may write some lines again, which is safe unless others change these documents)"
	}
	if errors.Is(stopped, context.Canceled) {
		return output.Interrupted("%s: %s", i.Name, text)
	}
	return fmt.Errorf("%s: the import is not complete: %w; %s", i.Name, stopped, text)
}

// failedStatus is the status of all failed lines, if they would have the same exit code.
func (i *importing) failedStatus() int {
	if len(i.exits) == 1 {
		for _, status := range []int{wire.StatusNotFound, wire.StatusConflict, wire.StatusUnavailable} {
			if i.exits[output.ExitCodeOf(status)] {
				return status
			}
		}
	}
	return wire.StatusInternal
}
