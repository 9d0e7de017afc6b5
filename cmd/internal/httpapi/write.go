package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	jsonType  = "application/json"
	patchType = "application/merge-patch+json"

	eventRoom = 8 << 10 // what a document must leave of the server's maximum payload
)

// receive reads the body of a write.
func (a *API) receive(r *request) error {
	most := a.mostBytes()
	tooLarge := access.NewProblem(http.StatusRequestEntityTooLarge, access.TooLarge, "the body is larger than %d bytes, the most that the NATS server takes with its event", most)
	if r.ContentLength > most {
		return tooLarge
	}
	if r.ContentLength == 0 {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.hold.Body(r.Body), most+1))
	var p *access.Problem
	switch {
	case errors.As(err, &p):
		return p
	case err != nil:
		return unread(err)
	case int64(len(body)) > most:
		return tooLarge
	}
	r.body = body
	return nil
}

// typed is the body of a write that must be of a media type. A body without a type is taken to have it.
func (r *request) typed(want string) ([]byte, error) {
	if err := checkType(r, want); err != nil {
		return nil, err
	}
	return r.body, nil
}

// mostBytes is the most that a document or a configuration has.
func (a *API) mostBytes() int64 { return a.opts.Client.MaxPayload() - eventRoom }

// checkType refuses a body of another media type, or one with an encoding.
func checkType(r *request, want string) error {
	refused := access.NewProblem(http.StatusUnsupportedMediaType, access.MediaType, "the body is %s: send %s, without a Content-Encoding", wire.Quote(r.Header.Get("Content-Type")), want)
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
	if len(r.body) > 0 {
		return access.BadRequest("the request must have no body")
	}
	return nil
}

// unread is the answer to a request whose body did not arrive whole.
func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return access.NewProblem(http.StatusRequestTimeout, access.RequestTimeout, "the body did not come in time")
	}
	return access.BadRequest("the body could not be read: %s", err)
}

// write publishes a message and answers with its outcome. location is the path of what the
// message is about.
func (a *API) write(w http.ResponseWriter, r *request, m client.Message, location string) error {
	write := a.opts.Client.Write
	_, async := preference(r.Header, "respond-async")
	if async {
		write = a.opts.Client.Publish
	}
	result, err := write(r.Context(), m)
	if err != nil {
		return access.OfWrite(result, err)
	}
	if result.Duplicate {
		if err := a.isRepeated(r.Context(), m.Digest, result); err != nil {
			return err
		}
	}
	switch {
	case async:
		w.Header().Set("Preference-Applied", "respond-async")
		return accepted{http.StatusAccepted, strconv.FormatUint(result.Seq, 10), result.Duplicate}.write(w, location)
	case result.Duplicate:
		return a.duplicate(w, r, result.Seq, location)
	}
	o := result.Outcome
	if o.Status >= wire.StatusBadRequest {
		return access.OfOutcome(o)
	}
	return a.outcome(w, r, o, result.Raw, location)
}

// inASCII replaces what many clients cannot read in a header. The body has the text as it is.
func inASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, text)
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
		if doc, _ := a.version(r, wire.Etag(seq)); doc != nil {
			return a.outcome(w, r, wire.Outcome{Status: http.StatusOK, Etag: doc.Etag, Ts: doc.Ts, ExpiresAt: doc.ExpiresAt}, nil, location)
		}
	}
	return accepted{http.StatusAccepted, strconv.FormatUint(seq, 10), true}.write(w, location)
}
