package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	linesType = "application/x-ndjson"

	importLines  = 4096        // that wait for their outcome or for the client to take it
	importIdle   = time.Minute // without a line, or without an outcome taken, before an import ends
	importBuffer = 64 << 10    // bytes that are read, and sent, at a time
)

// importing is an import under way.
type importing struct {
	api      *API
	request  *request
	op       wire.Op
	key      string // begins the message ids; none if empty
	rc       *http.ResponseController
	w        http.ResponseWriter
	order    *order
	pipeline *client.Pipeline
	began    bool // the answer has begun
}

// importDocuments writes one document for each line, and answers with one line for each. It
// sends outcomes while lines still come. A client that sends without reading outcomes stops
// making progress when the buffers between are full.
func importDocuments(a *API, w http.ResponseWriter, r *request) error {
	op, err := importOp(r)
	if err != nil {
		return err
	}
	if err := checkType(r, linesType); err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	under := a.meters.under.WithLabelValues("imports")
	under.Inc()
	defer under.Dec()
	i := &importing{api: a, request: r, op: op, key: key, w: w, rc: http.NewResponseController(w), order: newOrder(importLines)}
	if err := i.rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err // HTTP/2 needs no permission for it
	}
	if i.pipeline, err = a.opts.Client.Pipeline(i.done); err != nil {
		return writeProblem(client.Result{}, err)
	}
	w.Header().Set("Content-Type", linesType)
	w.Header().Set("Cache-Control", "no-store")
	return i.run()
}

func importOp(r *request) (wire.Op, error) {
	query, err := r.query("op")
	if err != nil {
		return "", err
	}
	op := wire.Op(query.Get("op"))
	if op == "" {
		return wire.Upsert, nil
	}
	if !slices.Contains(wire.Ops, op) {
		return "", badRequest("op %s is not valid: use one of %v", wire.Quote(string(op)), wire.Ops)
	}
	return op, nil
}

// run reads lines and sends outcomes until both end.
func (i *importing) run() error {
	ctx, cancel := context.WithCancel(i.request.Context())
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
	i.order.end()
	<-sent
	switch {
	case err == nil || ctx.Err() != nil: // the client has left
		return nil
	case !i.began:
		return problemIn(err)
	}
	// The last line, without a number, says why the import ends before its input.
	_ = i.send(outcomeLine(0, "", problemIn(err)))
	return nil
}

// read sends each line to the log. It returns why it ended before the input.
func (i *importing) read(ctx context.Context) error {
	most := int(i.api.opts.Client.MaxPayload()) - eventRoom
	in := bufio.NewReaderSize(reader{i}, importBuffer)
	for number := 1; ; number++ {
		text, size, err := readLine(in, most)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // a byte order mark
		}
		text = bytes.TrimSpace(text)
		if len(text) > 0 || size > most {
			if lineErr := i.line(ctx, number, text, size, most); lineErr != nil {
				return lineErr
			}
		}
		if err != nil {
			return nil // the end of the input
		}
	}
}

// line sends one line to the log. It returns an error only if the import cannot go on.
func (i *importing) line(ctx context.Context, number int, text []byte, size, most int) error {
	var id string
	var refused *problem
	if size > most {
		refused = fail(http.StatusRequestEntityTooLarge, codeTooLarge, "the line has %d bytes, and %d are allowed", size, most)
	} else {
		var err error
		if id, err = documentID(text); err != nil {
			refused = badRequest("%s", err)
		}
	}
	tag, ok := i.order.add(number, id)
	if !ok {
		return ctx.Err()
	}
	if refused != nil {
		i.set(tag, refused.Status, func(line int, id string) []byte { return outcomeLine(line, "", refused) })
		return nil
	}
	r := i.request
	m := client.Message{Subject: i.api.opts.Prefix.Write(i.op, r.collection, id)}
	if i.op.HasBody() {
		m.Body = text
	}
	if i.key != "" {
		m.ID = i.key + "-" + strconv.Itoa(number)
	}
	if trace := r.Header.Get(wire.HeaderTrace); wire.ValidTraceparent(trace) {
		m.Traceparent = trace
	}
	err := i.pipeline.Send(ctx, m, tag)
	if err != nil {
		// The pipeline may have reported this line already.
		i.order.settle(tag, func(line int, id string) []byte { return outcomeLine(line, id, problemIn(err)) })
	}
	return err
}

// done is the outcome of a line.
func (i *importing) done(tag int, result client.Result, err error) {
	o := result.Outcome
	switch {
	case err != nil:
		p := problemIn(err)
		if result.Seq != 0 {
			p.Status, p.Code, p.Seq = http.StatusGatewayTimeout, codeUnknown, strconv.FormatUint(result.Seq, 10)
		}
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
		b, more = i.order.take(b[:0], importBuffer)
		if len(b) > 0 && i.send(b) != nil {
			cancel()
			_ = i.rc.SetReadDeadline(time.Now()) // so that nobody waits for the rest of the body
			return
		}
	}
}

func (i *importing) send(b []byte) error {
	i.began = true
	if err := i.rc.SetWriteDeadline(time.Now().Add(importIdle)); err != nil {
		return err
	}
	if _, err := i.w.Write(b); err != nil {
		return err
	}
	return i.rc.Flush()
}

// reader reads the body. Each read has a time limit of its own: an import may take long.
type reader struct{ *importing }

func (r reader) Read(b []byte) (int, error) {
	if err := r.rc.SetReadDeadline(time.Now().Add(importIdle)); err != nil {
		return 0, err
	}
	n, err := r.request.Body.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fail(http.StatusRequestTimeout, codeTimeout, "no line has come for %s", importIdle)
	}
	return n, err
}

// readLine reads a line and counts its bytes. It drops the bytes of a line that is too long.
// The text is valid until the next call.
func readLine(in *bufio.Reader, longest int) (text []byte, size int, err error) {
	text, err = in.ReadSlice('\n')
	if size = len(text); errors.Is(err, bufio.ErrBufferFull) {
		text = slices.Clone(text)
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		var part []byte
		part, err = in.ReadSlice('\n')
		if size += len(part); size <= longest+len("\r\n") {
			text = append(text, part...)
		} else {
			text = nil
		}
	}
	if err == nil {
		size--
	}
	return text, size, err
}

// documentID reads the id from a document.
func documentID(document []byte) (string, error) {
	var members map[string]json.RawMessage // not a struct, which would match names without regard to case
	if err := json.Unmarshal(document, &members); err != nil || members == nil {
		return "", errors.New("the line is not a JSON object")
	}
	value, ok := members["id"]
	if !ok {
		return "", errors.New(`the document has no id: add "id" with a string`)
	}
	var id *string
	if err := json.Unmarshal(value, &id); err != nil || id == nil {
		return "", fmt.Errorf("the id is not a string: use a string of 1 to %d bytes", wire.MaxID)
	}
	return *id, wire.CheckID(*id)
}

// problemIn is the problem that an error is.
func problemIn(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	return fail(http.StatusServiceUnavailable, codeUnavailable, "%s", err)
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
func outcomeLine(line int, id string, p *problem) []byte {
	b := strconv.AppendInt(append(appendLine(nil, line, id), `"status":`...), int64(p.Status), 10)
	text, _ := json.Marshal(p.Detail) // a string cannot fail
	b = append(append(b, `,"error":`...), text...)
	if p.Seq != "" {
		b = append(append(append(b, `,"seq":"`...), p.Seq...), '"')
	}
	return append(b, "}\n"...)
}
