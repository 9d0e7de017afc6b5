package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/httpapi/problem"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	jsonType  = "application/json"
	patchType = "application/merge-patch+json"

	eventRoom  = 8 << 10 // what a document must leave of the server's maximum payload
	longestKey = 256     // bytes of an Idempotency-Key
)

// body reads the body of a request that must be of a media type. A request without a type is
// taken to have it.
func (a *API) body(r *request, want string) ([]byte, error) {
	if err := checkType(r, want); err != nil {
		return nil, err
	}
	most := a.mostBytes()
	tooLarge := problem.New(http.StatusRequestEntityTooLarge, problem.TooLarge, "the body is larger than %d bytes, the most that the NATS server takes with its event", most)
	if r.ContentLength > most {
		return nil, tooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(http.StatusRequestTimeout, problem.RequestTimeout, "the body did not come in time")
	case err != nil:
		return nil, problem.BadRequest("the body could not be read: %s", err)
	case int64(len(body)) > most:
		return nil, tooLarge
	}
	return body, nil
}

// mostBytes is the most that a document or a configuration has.
func (a *API) mostBytes() int64 { return a.opts.Client.MaxPayload() - eventRoom }

// checkType refuses a body of another media type, or one with an encoding.
func checkType(r *request, want string) error {
	refused := problem.New(http.StatusUnsupportedMediaType, problem.MediaType, "the body is %s: send %s, without a Content-Encoding", wire.Quote(r.Header.Get("Content-Type")), want)
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return refused
	}
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	if charset, ok := params["charset"]; err != nil || media != want || ok && !strings.EqualFold(charset, "utf-8") {
		return refused
	}
	return nil
}

// noBody refuses a body where there must be none.
func noBody(r *request) error {
	if n, _ := io.ReadFull(r.Body, make([]byte, 1)); n > 0 {
		return problem.BadRequest("the request must have no body")
	}
	return nil
}

// message is the message for the log, without its body and its condition.
func (r *request) message(subject string) (m client.Message, err error) {
	m = client.Message{Subject: subject}
	if m.ID, err = idempotencyKey(r.Header); err != nil {
		return m, err
	}
	if trace := r.Header.Get(wire.HeaderTrace); wire.ValidTraceparent(trace) {
		m.Traceparent = trace
	}
	return m, nil
}

// idempotencyKey is the id of the message. Quotes around it, as in a structured header, do not
// belong to it.
func idempotencyKey(h http.Header) (string, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(key) > 1 && key[0] == '"' && key[len(key)-1] == '"' {
		key = key[1 : len(key)-1]
	}
	visible := func(c rune) bool { return ' ' < c && c <= '~' }
	if len(values) > 1 || key == "" || len(key) > longestKey || strings.TrimFunc(key, visible) != "" {
		return "", problem.BadRequest("Idempotency-Key is not valid: use one, of 1 to %d visible ASCII characters, such as a UUID", longestKey)
	}
	return key, nil
}

// write publishes a message and answers with its outcome. location is the path of what the
// message is about.
func (a *API) write(w http.ResponseWriter, r *request, m client.Message, location string) error {
	write, async := a.opts.Client.Write, prefersAsync(r.Header)
	if async {
		write = a.opts.Client.Publish
	}
	result, err := write(r.Context(), m)
	switch {
	case err != nil:
		return problem.OfWrite(result, err)
	case async:
		w.Header().Set("Preference-Applied", "respond-async")
		return accepted{http.StatusAccepted, strconv.FormatUint(result.Seq, 10), result.Duplicate}.write(w, location)
	case result.Duplicate:
		return a.duplicate(w, r, result.Seq, location)
	}
	o := result.Outcome
	if o.Status >= wire.StatusBadRequest {
		return problem.New(o.Status, problem.CodeOf(o.Status), "%s", o.Error)
	}
	header := w.Header()
	setVersion(header, o.Etag, o.Ts, o.ExpiresAt)
	if o.Status == wire.StatusCreated {
		header.Set("Location", location)
	}
	if o.Status == wire.StatusNoContent {
		w.WriteHeader(o.Status)
		return nil
	}
	header.Set("Content-Type", jsonType)
	w.WriteHeader(o.Status)
	_, _ = w.Write(append(result.Raw, '\n'))
	return nil
}

// accepted is the answer to a write that is durable, and whose outcome is not known.
type accepted struct {
	Status    int    `json:"status"`
	Seq       string `json:"seq"`                 // the etag of the version, if the write takes effect
	Duplicate bool   `json:"duplicate,omitempty"` // the log already had a message with this Idempotency-Key
}

func (a accepted) write(w http.ResponseWriter, location string) error {
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Location", location)
	header.Set("Content-Type", jsonType)
	header.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// duplicate answers a write that the log has already. lapse keeps no outcomes, but the version
// that the write has made is there if nothing came after it.
func (a *API) duplicate(w http.ResponseWriter, r *request, seq uint64, location string) error {
	if r.id != "" {
		ctx, cancel := context.WithTimeout(r.Context(), readWithin)
		defer cancel()
		doc, err := a.opts.Reader.Get(ctx, r.collection, r.id)
		if err == nil && uint64(doc.Etag) == seq {
			setVersion(w.Header(), doc.Etag, doc.Ts, doc.ExpiresAt)
			body, err := json.Marshal(wire.Outcome{Status: http.StatusOK, Etag: doc.Etag, Ts: doc.Ts, ExpiresAt: doc.ExpiresAt})
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", jsonType)
			_, _ = w.Write(append(body, '\n'))
			return nil
		}
	}
	return accepted{http.StatusAccepted, strconv.FormatUint(seq, 10), true}.write(w, location)
}

// prefersAsync reports whether the client does not want to wait for the outcome (RFC 7240).
func prefersAsync(h http.Header) bool {
	for _, value := range h.Values("Prefer") {
		for preference := range strings.SplitSeq(value, ",") {
			name, _, _ := strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}
