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

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink"
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
	tooLarge := access.NewProblem(http.StatusRequestEntityTooLarge, access.TooLarge,
		"the body is larger than %d bytes, the most that the NATS server takes with its event", most)
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

// typed is the body of a write that must be of a media type; with none, there must be no body. A body without a type
// is taken to have it.
func (r *request) typed(want string) ([]byte, error) {
	if want == "" && len(r.body) > 0 {
		return nil, access.BadRequest("the request must have no body")
	}
	if want == "" {
		return nil, nil
	}
	if err := checkType(r, want); err != nil {
		return nil, err
	}
	return r.body, nil
}

// mostBytes is the most that a document or a configuration has.
func (a *API) mostBytes() int64 { return a.opts.Client.MaxPayload() - eventRoom }

// checkType refuses a body of another media type, or one with an encoding.
func checkType(r *request, want string) error {
	refused := access.NewProblem(http.StatusUnsupportedMediaType, access.MediaType,
		"the body is %s: send %s, without a Content-Encoding", wire.Quote(r.Header.Get("Content-Type")), want)
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

// unread is the answer to a request whose body did not arrive whole.
func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return access.NewProblem(http.StatusRequestTimeout, access.RequestTimeout, "the body did not come in time")
	}
	return access.BadRequest("the body could not be read: %s", err)
}

// write publishes a message and answers with its outcome.
func (a *API) write(w http.ResponseWriter, r *request, m client.Message) error {
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
		return accepted(w, r, result.Seq, result.Duplicate)
	case result.Duplicate:
		return a.duplicate(w, r, result.Seq)
	}
	o := result.Outcome
	if o.Status >= wire.StatusBadRequest {
		return access.OfOutcome(o)
	}
	return a.outcome(w, r, o, result.Raw)
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

// accepted answers a write that is durable, and whose outcome is not known. A duplicate is one whose Idempotency-Key
// the log already had.
func accepted(w http.ResponseWriter, r *request, seq uint64, duplicate bool) error {
	body, err := json.Marshal(struct {
		Status    int    `json:"status"`
		Seq       string `json:"seq"` // the etag of the version, if the write takes effect
		Duplicate bool   `json:"duplicate,omitempty"`
	}{http.StatusAccepted, strconv.FormatUint(seq, 10), duplicate})
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Location", r.location())
	header.Set("Content-Type", jsonType)
	header.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// duplicate answers a write that the log has already. lapse keeps no outcomes, but the version
// that the write has made is there if nothing came after it.
func (a *API) duplicate(w http.ResponseWriter, r *request, seq uint64) error {
	if r.id != "" {
		if doc, _ := a.version(r, wire.Etag(seq)); doc != nil {
			o := wire.Outcome{Status: http.StatusOK, Etag: doc.Etag, Ts: doc.Ts, ExpiresAt: doc.ExpiresAt}
			return a.outcome(w, r, o, nil)
		}
	}
	return accepted(w, r, seq, true)
}

// The values of the preference return (RFC 7240).
const (
	minimal        = "minimal"
	representation = "representation"
)

// preference is the value of a preference of the client; the first one of a name counts.
func preference(h http.Header, name string) (value string, ok bool) {
	for _, list := range h.Values("Prefer") {
		for one := range strings.SplitSeq(list, ",") {
			one, _, _ = strings.Cut(one, ";")
			key, value, _ := strings.Cut(one, "=")
			if strings.EqualFold(strings.TrimSpace(key), name) {
				return strings.Trim(strings.TrimSpace(value), `"`), true
			}
		}
	}
	return "", false
}

// outcome answers a write that took effect: with its outcome, or with the document as GET has it, if the
// client prefers that and the document is still that of the write. Otherwise a warning says why the answer
// is not the document. raw is the outcome as lapse has sent it; nil if it has sent none.
func (a *API) outcome(w http.ResponseWriter, r *request, o wire.Outcome, raw []byte) error {
	header := w.Header()
	var doc *sink.Document
	prefers, _ := preference(r.Header, "return")
	if r.id != "" && o.Status != wire.StatusNoContent && (prefers == minimal || prefers == representation) {
		why := ""
		if prefers == representation {
			doc, why = a.version(r, o.Etag)
		}
		if doc == nil {
			prefers = minimal
		}
		header.Set("Preference-Applied", "return="+prefers)
		if why != "" {
			o.Warning = strings.TrimSpace(o.Warning + " The answer is not the document: " + why)
			raw = nil
		}
	}
	setVersion(header, o.Etag, o.Ts, o.ExpiresAt)
	if o.Warning != "" {
		header.Set(wire.HeaderWarning, inASCII(o.Warning))
	}
	if o.Status == wire.StatusCreated {
		header.Set("Location", r.location())
	}
	if o.Status == wire.StatusNoContent {
		w.WriteHeader(o.Status)
		return nil
	}
	header.Set("Content-Type", jsonType)
	if doc != nil {
		setTarget(header, doc.Target)
		header.Set("Content-Location", r.location())
		return r.hold.Send(w, o.Status, doc.Body)
	}
	if raw == nil {
		var err error
		if raw, err = json.Marshal(o); err != nil {
			return err
		}
	}
	w.WriteHeader(o.Status)
	_, _ = w.Write(append(raw, '\n'))
	return nil
}

// version is the document of a write, if it is still the version that the write has made, and the process
// has the room to send it. Otherwise why says the reason. It renews no clock.
func (a *API) version(r *request, etag wire.Etag) (doc *sink.Document, why string) {
	ctx, cancel := context.WithTimeout(r.Context(), readWithin)
	defer cancel()
	if err := r.hold.Expect(ctx, a.mostBytes()); err != nil {
		return nil, err.Error() + "."
	}
	found, err := a.opts.GetMany(ctx, r.collection, []string{r.id})
	switch {
	case err != nil:
		return nil, "it could not be read (" + access.OfRead(err).Error() + ")."
	case len(found) == 0:
		return nil, "it has expired, or was removed, since the write."
	case found[0].Etag != etag:
		return nil, "it was changed since the write."
	}
	if err := r.hold.Bytes(int64(len(found[0].Body))); err != nil {
		return nil, err.Error() + "."
	}
	return &found[0], ""
}
