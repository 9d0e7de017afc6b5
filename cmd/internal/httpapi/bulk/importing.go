package bulk

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

	"github.com/seed18712806/lapse/cmd/internal/httpapi/problem"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	mostLines  = 4096        // that wait for their outcome or for the client to take it
	idle       = time.Minute // without a line, or without an outcome taken, before an import ends
	bufferSize = 64 << 10    // bytes that are read, and sent, at a time
)

// MediaType is the media type of lines.
const MediaType = "application/x-ndjson"

// Options say what an import does with each line.
type Options struct {
	Client      *client.Client
	Prefix      wire.Prefix
	Collection  string
	Op          wire.Op
	Key         string           // begins the message id of each line, before its number; none if empty
	Traceparent string           // of each line
	MaxDocument int              // the most bytes of a line
	Outcome     func(status int) // counts a line
}

// importing is an import under way.
type importing struct {
	opts     Options
	body     io.Reader
	rc       *http.ResponseController
	w        http.ResponseWriter
	order    *order
	pipeline *client.Pipeline
	began    bool // the answer has begun
}

// Import writes one document for each line of the body, and answers with one line for each. It
// sends outcomes while lines still come. It returns an error only if nothing was sent.
func Import(w http.ResponseWriter, r *http.Request, opts Options) error {
	i := &importing{opts: opts, body: r.Body, w: w, rc: http.NewResponseController(w), order: newOrder(mostLines)}
	if err := i.rc.EnableFullDuplex(); err != nil {
		return err
	}
	var err error
	if i.pipeline, err = opts.Client.Pipeline(i.done); err != nil {
		return problemOf(err)
	}
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("Cache-Control", "no-store")
	return i.run(r.Context())
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
	i.order.end()
	<-sent
	switch {
	case err == nil || ctx.Err() != nil: // the client has left
		return nil
	case !i.began:
		return problemOf(err)
	}
	// The last line, without a number, says why the import ends before its input.
	_ = i.send(outcomeLine(0, "", problemOf(err)))
	return nil
}

// read sends each line to the log. It returns why it ended before the input.
func (i *importing) read(ctx context.Context) error {
	most := i.opts.MaxDocument
	in := bufio.NewReaderSize(reader{i, ctx}, bufferSize)
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
			if lineErr := i.line(ctx, number, text, size); lineErr != nil {
				return lineErr
			}
		}
		if err != nil {
			return nil // the end of the input
		}
	}
}

// line sends one line to the log. It returns an error only if the import cannot go on.
func (i *importing) line(ctx context.Context, number int, text []byte, size int) error {
	var id string
	var refused *problem.Problem
	if most := i.opts.MaxDocument; size > most {
		refused = problem.New(http.StatusRequestEntityTooLarge, problem.TooLarge, "the line has %d bytes, and %d are allowed", size, most)
	} else {
		var err error
		if id, err = documentID(text); err != nil {
			refused = problem.BadRequest("%s", err)
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
	m := client.Message{Subject: i.opts.Prefix.Write(i.opts.Op, i.opts.Collection, id), Traceparent: i.opts.Traceparent}
	if i.opts.Op.HasBody() {
		m.Body = text
	}
	if i.opts.Key != "" {
		m.ID = i.opts.Key + "-" + strconv.Itoa(number)
	}
	err := i.pipeline.Send(ctx, m, tag)
	if err != nil {
		// The pipeline may have reported this line already.
		i.order.settle(tag, func(line int, id string) []byte { return outcomeLine(line, id, problemOf(err)) })
	}
	return err
}

// done is the outcome of a line.
func (i *importing) done(tag int, result client.Result, err error) {
	o := result.Outcome
	switch {
	case err != nil:
		p := problemOf(err)
		if result.Seq != 0 {
			p.Status, p.Code, p.Seq = http.StatusGatewayTimeout, problem.OutcomeUnknown, strconv.FormatUint(result.Seq, 10)
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
	i.opts.Outcome(status)
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
	n, err := r.body.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = problem.New(http.StatusRequestTimeout, problem.RequestTimeout, "no line has come for %s", idle)
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

// problemOf is the problem that an error is.
func problemOf(err error) *problem.Problem {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p
	}
	return problem.New(http.StatusServiceUnavailable, problem.Unavailable, "%s", err)
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
func outcomeLine(line int, id string, p *problem.Problem) []byte {
	b := strconv.AppendInt(append(appendLine(nil, line, id), `"status":`...), int64(p.Status), 10)
	text, _ := json.Marshal(p.Detail) // a string cannot fail
	b = append(append(b, `,"error":`...), text...)
	if p.Seq != "" {
		b = append(append(append(b, `,"seq":"`...), p.Seq...), '"')
	}
	return append(b, "}\n"...)
}
