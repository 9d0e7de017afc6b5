package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// pageBytes is about the most that a page of documents has, beyond its first document.
const pageBytes = 4 << 20

// pageHeld is about what a page takes while it is read: as Redis has sent it, as documents, and as the answer.
const pageHeld = 3 * pageBytes

// setVersion sets the headers that identify a version, and say when it expires.
func setVersion(h http.Header, etag wire.Etag, ts wire.Time, expires *wire.Time) {
	h["Cache-Control"] = []string{"no-cache"}
	if etag != 0 {
		h["Etag"] = []string{`"` + etag.String() + `"`}
	}
	if ts != 0 {
		h["Last-Modified"] = []string{httpDate(ts)}
	}
	if expires != nil {
		h[wire.HeaderExpiresAt] = []string{expires.String()}
		h["Sunset"] = []string{httpDate(*expires)}
	}
}

// setTarget sets the header of the message that the expiry of a document delivers.
func setTarget(h http.Header, target string) {
	if target != "" {
		h[wire.HeaderTarget] = []string{target}
	}
}

func httpDate(t wire.Time) string { return time.UnixMilli(int64(t)).UTC().Format(http.TimeFormat) }

// encode answers with what a read has found, as JSON, or with why it failed.
func encode(w http.ResponseWriter, r *request, found any, err error) error {
	if err != nil {
		return access.OfRead(err)
	}
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return send(w, r, body)
}

// send answers with a body of JSON.
func send(w http.ResponseWriter, r *request, body []byte) error {
	header := w.Header()
	header["Content-Type"] = []string{jsonType}
	header["Cache-Control"] = []string{"no-cache"}
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	return r.hold.Send(w, http.StatusOK, body)
}

func getDocument(a *API, w http.ResponseWriter, r *request) error {
	query, err := r.query("renew")
	if err != nil {
		return err
	}
	renew := query.Get("renew")
	if query.Has("renew") && renew != "true" && renew != "false" {
		return access.BadRequest("renew %s is not valid: use true, to wait until the read has renewed the clock, or "+
			"false", wire.Quote(renew))
	}
	match, err := parseCondition(r.Header, "If-Match")
	none, noneErr := parseCondition(r.Header, "If-None-Match")
	if err := errors.Join(err, noneErr); err != nil {
		return err
	}
	if err := r.hold.Expect(r.Context(), a.mostBytes()); err != nil {
		return err
	}
	doc, err := a.get(r, renew == "true")
	if err != nil {
		return access.OfRead(err)
	}
	if match.set && !match.has(doc.Etag, false) {
		return access.NewProblem(http.StatusPreconditionFailed, access.PreconditionFailed, "the document's etag is %s",
			doc.Etag)
	}
	setVersion(w.Header(), doc.Etag, doc.Ts, doc.ExpiresAt)
	setTarget(w.Header(), doc.Target)
	if none.set && none.has(doc.Etag, true) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return send(w, r, doc.Body)
}

// get reads the document of a request. The read renews the clock of a document that slides, unless the client only
// looks: by HEAD, in the console, or from a page of another site, which could keep a session alive with an image. With
// renew it waits for that.
func (a *API) get(r *request, renew bool) (sink.Document, error) {
	site := r.Header.Get("Sec-Fetch-Site")
	if r.Method != http.MethodHead && !access.OnlyLooks(r.Context()) && site != "cross-site" && site != "same-site" {
		if renew {
			return service.Renewed(r.Context(), a.opts.Reader, r.collection, r.id)
		}
		return a.opts.Reader.Get(r.Context(), r.collection, r.id)
	}
	found, err := a.opts.GetMany(r.Context(), r.collection, []string{r.id})
	switch {
	case err != nil:
		return sink.Document{}, err
	case len(found) == 0:
		return sink.Document{}, fmt.Errorf("get %s/%s: %w", r.collection, r.id, sink.ErrNotFound)
	}
	return found[0], nil
}

func listDocuments(a *API, w http.ResponseWriter, r *request) error {
	switch values := r.URL.Query(); {
	case values.Has("ids"):
		return a.getDocuments(w, r)
	case isQuery(values):
		return a.selectDocuments(w, r)
	}
	opts, err := r.list()
	if err != nil {
		return err
	}
	if err := r.hold.Expect(r.Context(), pageHeld); err != nil {
		return err
	}
	page, err := a.opts.Reader.List(r.Context(), r.collection, opts)
	if err != nil {
		return access.OfRead(err)
	}
	return send(w, r, service.EncodePage(page))
}

// list reads the parameters of a list of documents.
func (r *request) list() (opts sink.ListOptions, err error) {
	query, err := r.query(wire.ListFields...)
	if err != nil {
		return opts, err
	}
	if opts, err = wire.ParseList(wire.TextFields(query)); err != nil {
		return opts, access.OfRead(err)
	}
	opts.MaxBytes = pageBytes
	return opts, nil
}

// putDocument creates or replaces a document: which of them is allowed, the conditions say.
func putDocument(a *API, w http.ResponseWriter, r *request) error {
	ifMatch, create, err := writeConditions(r.Header)
	if err != nil {
		return err
	}
	op := wire.Upsert
	switch {
	case create:
		op = wire.Create
	case ifMatch != "":
		op = wire.Replace
	}
	err = a.writeDocument(w, r, op, ifMatch, jsonType)
	var p *access.Problem
	switch {
	case !errors.As(err, &p):
		return err
	case create && p.Code == access.Conflict, ifMatch != "" && p.Status == http.StatusNotFound:
		// Without its condition the request would have succeeded (RFC 9110, section 13.2.1).
		return access.NewProblem(http.StatusPreconditionFailed, access.PreconditionFailed, "%s", p.Detail)
	}
	return err
}

// changeDocument handles writes to a document that must exist, by an operation whose body is of a media type.
func changeDocument(op wire.Op, media string) func(*API, http.ResponseWriter, *request) error {
	return func(a *API, w http.ResponseWriter, r *request) error {
		ifMatch, create, err := writeConditions(r.Header)
		if err != nil {
			return err
		}
		if create {
			return access.BadRequest("If-None-Match: * creates a document: use it with PUT")
		}
		return a.writeDocument(w, r, op, ifMatch, media)
	}
}

// writeDocument publishes a write. Without a media type it has no body.
func (a *API) writeDocument(w http.ResponseWriter, r *request, op wire.Op, ifMatch, media string) error {
	if _, err := r.query(); err != nil {
		return err
	}
	body, err := r.typed(media)
	if err != nil {
		return err
	}
	m, err := r.message(a.opts.Prefix.Write(op, r.collection, r.id), ifMatch, body)
	if err != nil {
		return err
	}
	return a.write(w, r, m)
}
