package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

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
func (a *API) outcome(w http.ResponseWriter, r *request, o wire.Outcome, raw []byte, location string) error {
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
		header.Set("Location", location)
	}
	if o.Status == wire.StatusNoContent {
		w.WriteHeader(o.Status)
		return nil
	}
	header.Set("Content-Type", jsonType)
	if doc != nil {
		setTarget(header, doc.Target)
		header.Set("Content-Location", location)
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
