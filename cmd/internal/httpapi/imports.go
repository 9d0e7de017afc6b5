package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/ndjson"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// importHeld is what an import holds: a quarter of what package client may have in flight, which only large
// documents fill.
const importHeld = 8 << 20

// importDocuments writes one document for each line.
func importDocuments(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("op")
	if err != nil {
		return err
	}
	op := wire.Upsert
	if query.Has("op") {
		op = wire.Op(query.Get("op"))
	}
	if !slices.Contains(wire.Ops, op) {
		return access.BadRequest("op %s is not valid: use one of %v", wire.Quote(string(op)), wire.Ops)
	}
	if err := checkType(r, linesType); err != nil {
		return err
	}
	m, err := r.message("", "", nil)
	if err != nil {
		return err
	}
	if m.ExpiresAt != "" || m.NotAfter != "" || m.Clock != "" || m.Target != "" {
		return access.BadRequest("%s, %s, %s and %s have no meaning for many documents at once: use them with a single "+
			"one", wire.HeaderExpiresAt, wire.HeaderNotAfter, wire.HeaderClock, wire.HeaderTarget)
	}
	if err := r.hold.Expect(r.Context(), importHeld); err != nil {
		return err
	}
	under := a.meters.under.WithLabelValues("imports")
	under.Inc()
	defer under.Dec()
	i := &importing{
		api: a, r: r, w: w, rc: http.NewResponseController(w), op: op, each: m,
		order: newOrder(mostLines), compares: make(chan struct{}, mostCompares),
	}
	return i.lines()
}

const (
	mostLines    = 4096        // that wait for their outcome or for the client to take it
	mostCompares = 64          // duplicates that are compared with the log at a time
	idle         = time.Minute // without a line, or without an outcome taken, before an import ends
	bufferSize   = 64 << 10    // bytes that are sent at a time
)

// linesType is the media type of lines.
const linesType = "application/x-ndjson"

// importing is an import under way.
type importing struct {
	api      *API
	r        *request
	w        http.ResponseWriter
	rc       *http.ResponseController
	op       wire.Op        // of each line
	each     client.Message // what each line has of the request; its id begins that of each line, before the number
	order    *order
	pipeline *client.Pipeline
	began    bool // the answer has begun

	digests   sync.Map       // of the lines with a message id, by tag
	comparing sync.WaitGroup // duplicates with what the log has
	compares  chan struct{}  // at most so many at a time
}

// lines writes one document for each line of the body (NDJSON), and answers with one line for each, in the order of
// the lines. It sends outcomes while lines still come. It returns an error only if nothing was sent.
//
// It holds at most 4,096 lines without an outcome that the client has taken, and those that
// package client has in flight. So a client that sends without reading outcomes stops making
// progress once the buffers between are full, and after a minute the import ends.
func (i *importing) lines() error {
	if err := i.rc.EnableFullDuplex(); err != nil {
		return err
	}
	ctx := i.r.Context()
	var err error
	i.pipeline, err = i.api.opts.Client.Pipeline(func(tag int, result client.Result, err error) {
		i.done(ctx, tag, result, err)
	})
	if err != nil {
		return access.OfWrite(client.Result{}, err)
	}
	i.w.Header().Set("Content-Type", linesType)
	i.w.Header().Set("Cache-Control", "no-store")
	return i.run(ctx)
}

// run reads lines and sends outcomes until both end.
func (i *importing) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, i.order.giveUp)
	defer stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		i.answer(cancel)
	}()
	err := i.read(ctx)
	if closeErr := i.pipeline.Close(ctx); err == nil {
		err = closeErr
	}
	i.comparing.Wait()
	i.order.end()
	<-sent
	switch {
	case err == nil || ctx.Err() != nil: // the client has left
		return nil
	case !i.began:
		return access.OfWrite(client.Result{}, err)
	}
	// The last line, without a number, says why the import ends before its input.
	_ = i.send(outcomeLine(0, "", access.OfWrite(client.Result{}, err)))
	return nil
}

// read sends each line to the log. It returns why it ended before the input.
func (i *importing) read(ctx context.Context) error {
	in := ndjson.NewReader(reader{i, ctx}, int(i.api.mostBytes()))
	for {
		l, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = i.line(ctx, l)
		}
		if err != nil {
			return err
		}
	}
}

// line sends one line to the log. It returns an error only if the import cannot go on.
func (i *importing) line(ctx context.Context, l ndjson.Line) error {
	var doc ndjson.Record
	var refused *access.Problem
	if l.TooLong {
		refused = access.NewProblem(http.StatusRequestEntityTooLarge, access.TooLarge,
			"the line has %d bytes, and %d are allowed", l.Size, i.api.mostBytes())
	} else {
		var err error
		if doc, err = ndjson.Parse(l.Text); err != nil {
			refused = access.BadRequest("%s", err)
		}
	}
	tag, ok := i.order.add(l.Number, doc.ID)
	if !ok {
		return ctx.Err()
	}
	if refused != nil {
		i.set(tag, refused.Status, func(line int, id string) []byte { return outcomeLine(line, "", refused) })
		return nil
	}
	m := client.Message{
		Subject:     i.api.opts.Prefix.Write(i.op, i.r.collection, doc.ID),
		Traceparent: i.each.Traceparent,
	}
	if i.op.HasBody() {
		m.Body = doc.Document
	}
	if i.op.HasBody() && i.op != wire.Patch {
		m.Target, m.ExpiresAt, m.NotAfter, m.Clock = doc.Target, doc.Deadline, doc.NotAfter, doc.HeaderClock()
		m.Traceparent = cmp.Or(doc.Traceparent, m.Traceparent)
	}
	if i.each.ID != "" {
		m.ID = i.each.ID + "-" + strconv.Itoa(l.Number)
		m.Digest = digest(m)
		i.digests.Store(tag, m.Digest)
	}
	err := i.pipeline.Send(ctx, m, tag)
	if err != nil {
		// The pipeline may have reported this line already.
		p := access.OfWrite(client.Result{}, err)
		i.order.set(tag, func(line int, id string) []byte { return outcomeLine(line, id, p) })
	}
	return err
}

// done is the answer to a line.
func (i *importing) done(ctx context.Context, tag int, result client.Result, err error) {
	digest, _ := i.digests.LoadAndDelete(tag)
	if err != nil || !result.Duplicate {
		i.outcome(tag, result, err)
		return
	}
	i.comparing.Go(func() { // the pipeline must not wait for it
		i.compares <- struct{}{}
		defer func() { <-i.compares }()
		i.outcome(tag, result, i.api.isRepeated(ctx, digest.(string), result))
	})
}

// outcome is the outcome of a line.
func (i *importing) outcome(tag int, result client.Result, err error) {
	o := result.Outcome
	switch {
	case err != nil:
		p := access.OfWrite(result, err)
		i.set(tag, p.Status, func(line int, id string) []byte { return outcomeLine(line, id, p) })
	case result.Duplicate:
		i.set(tag, http.StatusAccepted, func(line int, id string) []byte {
			b := appendLine(nil, line, id)
			b = strconv.AppendUint(append(b, `"status":202,"seq":"`...), result.Seq, 10)
			return append(b, "\",\"duplicate\":true}\n"...)
		})
	default:
		i.set(tag, o.Status, func(line int, id string) []byte {
			b := appendLine(make([]byte, 0, len(result.Raw)+len(id)+32), line, id)
			return append(append(b, bytes.TrimPrefix(result.Raw, []byte("{"))...), '\n')
		})
	}
}

func (i *importing) set(tag, status int, text func(int, string) []byte) {
	i.api.meters.lines.WithLabelValues(statusText(status)).Inc()
	i.order.set(tag, text)
}

// answer sends outcomes until there are no more, or the client takes none.
func (i *importing) answer(cancel context.CancelFunc) {
	var b []byte
	for more := true; more; {
		b, more = i.order.take(b[:0], bufferSize)
		if len(b) > 0 && i.send(b) != nil {
			cancel()
			_ = i.rc.SetReadDeadline(time.Now()) // so that nobody waits for the rest of the body
			return
		}
	}
}

func (i *importing) send(b []byte) error {
	i.began = true
	if err := i.rc.SetWriteDeadline(time.Now().Add(idle)); err != nil {
		return err
	}
	if _, err := i.w.Write(b); err != nil {
		return err
	}
	return i.rc.Flush()
}

// reader reads the body. Each read has a time limit of its own: an import may take long.
type reader struct {
	*importing
	ctx context.Context // of the import
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.rc.SetReadDeadline(time.Now().Add(idle)); err != nil || r.ctx.Err() != nil {
		return 0, errors.Join(err, r.ctx.Err())
	}
	n, err := r.r.Body.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = access.NewProblem(http.StatusRequestTimeout, access.RequestTimeout, "no line has come for %s", idle)
	}
	return n, err
}

// appendLine begins an outcome: the line's number and its id, if they are known.
func appendLine(b []byte, line int, id string) []byte {
	b = append(b, '{')
	if line > 0 {
		b = append(strconv.AppendInt(append(b, `"line":`...), int64(line), 10), ',')
	}
	if id != "" {
		text, _ := json.Marshal(id) // a string cannot fail
		b = append(append(append(b, `"id":`...), text...), ',')
	}
	return b
}

// outcomeLine is the outcome of a line that lapse has not answered.
func outcomeLine(line int, id string, p *access.Problem) []byte {
	b := strconv.AppendInt(append(appendLine(nil, line, id), `"status":`...), int64(p.Status), 10)
	text, _ := json.Marshal(p.Detail) // a string cannot fail
	b = append(append(b, `,"error":`...), text...)
	if p.Seq != "" {
		b = append(append(append(b, `,"seq":"`...), p.Seq...), '"')
	}
	return append(b, "}\n"...)
}

// order puts the outcomes of lines into the order of the lines. It holds a limited number of
// lines: a client that takes no outcomes can send no further lines.
type order struct {
	mu      sync.Mutex
	changed sync.Cond
	ring    []slot
	first   int // the tag of the line whose outcome is sent next
	next    int // the tag of the next line
	ended   bool
	given   bool // up: nobody takes outcomes any more
}

// slot is a line that was read.
type slot struct {
	line int
	id   string
	text []byte // the outcome; nil before it is there
}

func newOrder(most int) *order {
	o := &order{ring: make([]slot, most)}
	o.changed.L = &o.mu
	return o
}

// add adds a line, when there is room, and returns its tag. ok = false means that nobody takes
// outcomes any more.
func (o *order) add(line int, id string) (tag int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.next-o.first == len(o.ring) && !o.given {
		o.changed.Wait()
	}
	if o.given {
		return 0, false
	}
	tag = o.next
	o.next++
	o.ring[tag%len(o.ring)] = slot{line: line, id: id}
	return tag, true
}

// set sets the outcome of a line that has none: text returns it.
func (o *order) set(tag int, text func(line int, id string) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.ring[tag%len(o.ring)]
	if tag < o.first || s.text != nil {
		return
	}
	s.text = text(s.line, s.id)
	if tag == o.first {
		o.changed.Broadcast()
	}
}

// take appends to b the outcomes that come next, until it has size bytes, or no further one is
// there; if there is none, it waits. more = false means that there are no further lines.
func (o *order) take(b []byte, size int) (_ []byte, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.given && !(o.first < o.next && o.ring[o.first%len(o.ring)].text != nil) && !(o.ended && o.first == o.next) {
		o.changed.Wait()
	}
	for len(b) < size && o.first < o.next && o.ring[o.first%len(o.ring)].text != nil {
		s := &o.ring[o.first%len(o.ring)]
		b = append(b, s.text...)
		*s = slot{}
		o.first++
	}
	o.changed.Broadcast()
	return b, !o.given && !(o.ended && o.first == o.next)
}

// end says that no further line comes.
func (o *order) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// giveUp says that nobody takes outcomes any more.
func (o *order) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given = true
	o.changed.Broadcast()
}
