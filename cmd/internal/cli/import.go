package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/ndjson"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

const progressEvery = time.Second

// Import writes the documents of a file.
type Import struct {
	Collection
	File        string  `arg:"" optional:"" default:"-"`
	Op          wire.Op `enum:"upsert,create,replace" default:"upsert" placeholder:"OP"`
	From        int     `default:"1" placeholder:"LINE"`
	MsgIDPrefix *Header `name:"msg-id-prefix" placeholder:"TEXT"`
	Progress    bool
	Shaped
	Connection
}

// importing is an import under way.
type importing struct {
	*Import
	streams  output.Streams
	prefix   wire.Prefix
	shape    ndjson.Shape
	pipeline *client.Pipeline
	progress *output.Progress
	read     meter // of the input
	largest  int   // document that NATS takes

	defaultTTL ttlrules.Default // of the collection, if lines that are over are left out

	mu     sync.Mutex
	counts importCounts
	exits  map[int]bool   // the exit codes that the failed lines would have
	open   map[int]string // the lines that were sent and are not known to be done, with the deadlines that they name
	began  time.Time      // when the sending began,
	before int64          // and how much of the input had been read by then
	next   int            // the line after the last one that was sent or has failed
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
	Expired   int `json:"expired,omitempty"` // over already: left out, or expired with their write
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
	text := fmt.Sprintf("created=%d replaced=%d duplicate=%d failed=%d", n.Created, n.Replaced, n.Duplicate, n.Failed)
	if n.Expired > 0 {
		text += fmt.Sprintf(" expired=%d", n.Expired)
	}
	return text
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
	shape, err := c.shape()
	if err != nil {
		return err
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

	i := &importing{Import: c, streams: streams, prefix: prefix, shape: shape, exits: make(map[int]bool),
		open: make(map[int]string), next: c.From, began: time.Now()}
	if c.SkipExpired {
		config, err := conn.Config(ctx, c.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if config.DefaultTTL != nil {
			i.defaultTTL = ttlrules.Default(*config.DefaultTTL)
		}
	}
	i.read.Reader = in
	shown := i.shown(in) // by what there is to read
	i.largest = int(conn.MaxPayload())
	input := lines(ctx, &i.read, 2*i.largest) // an export doubles some bytes of a document
	first, err := c.judge(ctx, input, c.From)
	if err != nil {
		return err
	}
	if i.pipeline, err = conn.Pipeline(i.done); err != nil {
		return err
	}
	i.progress = output.StartProgress(streams, c.Progress, progressEvery, shown)
	err = i.send(ctx, first, input)
	// After an interrupt it waits for what is under way. The timeout of the pipeline bounds that.
	if closeErr := i.pipeline.Close(context.WithoutCancel(ctx)); closeErr != nil && (err == nil || ctx.Err() != nil) {
		err = closeErr
	}
	i.progress.End()
	return i.summary(cmp.Or(err, i.lost))
}

// send sends every line, until ctx is done: those that were read, and then those of the input.
func (i *importing) send(ctx context.Context, read []line, in <-chan line) error {
	sending := context.WithoutCancel(ctx) // a line is sent, or it is not
	for {
		var l line
		ok := len(read) > 0
		if ok {
			l, read = read[0], read[1:]
		} else {
			select {
			case l, ok = <-in:
			case <-ctx.Done():
			}
		}
		switch {
		case ctx.Err() != nil || !ok:
			return ctx.Err()
		case l.number == 0:
			return fmt.Errorf("read the input: %w", l.err)
		case l.number < i.From:
			continue
		case l.err != nil:
			i.failed(l.number, output.Statusf(wire.StatusTooLarge, "%s", l.err))
			continue
		}
		doc, err := i.shape.Record(l.text)
		if err != nil {
			i.failed(l.number, output.Statusf(wire.StatusBadRequest, "%s", err))
			continue
		}
		if len(doc.Document) > i.largest {
			i.failed(l.number, output.Statusf(wire.StatusTooLarge, "the document has %d bytes: use at most %d, the largest "+
				"message that the server takes", len(doc.Document), i.largest))
			continue
		}
		now := time.Now()
		if i.isOver(doc, now) {
			i.expired(l.number)
			continue
		}
		m := i.message(doc, now)
		if i.MsgIDPrefix != nil {
			m.ID = messageID(string(*i.MsgIDPrefix), l, m.Subject)
		}
		i.begin(l.number, m.ExpiresAt)
		if err := i.pipeline.Send(sending, m, l.number); err != nil {
			return fmt.Errorf("line %d was not sent: %w", l.number, err)
		}
	}
}

// messageID is the id of a line's message. A line with another text has another id.
func messageID(prefix string, l line, subject string) string {
	h := sha256.New()
	h.Write([]byte(subject))
	h.Write([]byte{0})
	h.Write(l.text)
	return prefix + "-" + strconv.Itoa(l.number) + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// expired counts a line that is over.
func (i *importing) expired(number int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.open, number)
	i.next = max(i.next, number+1)
	i.counts.Expired++
}

// begin notes that a line is sent.
func (i *importing) begin(number int, deadline string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.open[number], i.next = deadline, number+1
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
	if err == nil && i.wasOver(number, o) {
		i.expired(number)
		return
	}
	if err == nil && o.Status >= wire.StatusBadRequest {
		err = output.Statusf(o.Status, "%d: %s", o.Status, o.Error)
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

// wasOver reports whether a document was over when lapse had the line: it has expired with its write, or its deadline
// was refused because it was over.
func (i *importing) wasOver(number int, o wire.Outcome) bool {
	if o.Status < wire.StatusBadRequest {
		return o.ExpiresAt != nil && *o.ExpiresAt <= o.Ts
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at := wire.Time(millis(i.open[number]))
	return o.Status == wire.StatusBadRequest && at != 0 && at <= o.Ts
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
		return output.Printed(output.Statusf(i.failedStatus(), "%s", text))
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
		left.Created+left.Replaced+left.Duplicate+left.Expired, left.Failed, left.Unknown, left.From)
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

// meter counts the bytes that are read of an input.
type meter struct {
	io.Reader
	read atomic.Int64
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.read.Add(int64(n))
	return n, err
}

// left is how many bytes an input has; 0 if that is not known, as of a pipe.
func left(in io.Reader) int64 {
	file, ok := in.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return info.Size() - at
}

// shown is the progress of an import: the counts, or on a terminal, if it is known how much there is
// to read, a bar.
func (i *importing) shown(in io.Reader) func() string {
	what, whole := "importing "+i.Name, left(in)
	if whole == 0 || !i.streams.ErrIsTerminal() {
		return func() string { return what + " " + i.count().String() }
	}
	return func() string {
		i.mu.Lock()
		n, began, before := i.counts, i.began, i.before
		i.mu.Unlock()
		line := output.Bar(what, before, i.read.read.Load(), whole, int64(n.Created+n.Replaced+n.Duplicate),
			time.Since(began))
		if n.Failed > 0 {
			line += fmt.Sprintf("  %s failed", output.Grouped(int64(n.Failed)))
		}
		return line
	}
}
