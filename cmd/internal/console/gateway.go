package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/sink/wire"
)

// answer is what the API answered. It is a [http.ResponseWriter] until then.
type answer struct {
	Status int
	Body   bytes.Buffer
	header http.Header
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.Status == 0 {
		a.Status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.Body.Write(b)
}

// Repeated reports whether the log had the write already, because it was sent twice.
func (a *answer) Repeated() bool { return a.Status == http.StatusAccepted }

// Warned names the warning with which the write was done; "" if there was none.
func (a *answer) Warned(collection string) string {
	warning := a.header.Get(wire.HeaderWarning)
	switch {
	case warning == "":
		return ""
	case strings.HasPrefix(warning, "collection "+collection+" is not configured"):
		return notConfigured
	}
	return ttlIsOff
}

// authorize sets the header with which the API knows the person.
func (v *visit) authorize(h http.Header) {
	if v.token != "" {
		h.Set("Authorization", "Bearer "+v.token)
	}
}

// do sends a request to the API for the person. Headers are pairs of a name and a value; one with an empty value is
// left out.
func (v *visit) do(ctx context.Context, method, path string, body []byte, headers ...string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host, req.RemoteAddr = v.r.Host, v.r.RemoteAddr
	v.authorize(req.Header)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	a := &answer{header: make(http.Header)}
	v.c.opts.API.ServeHTTP(a, req)
	if a.Status < http.StatusBadRequest {
		return a, nil
	}
	p := &access.Problem{}
	if err := json.Unmarshal(a.Body.Bytes(), p); err != nil {
		return nil, access.NewProblem(a.Status, access.Internal, "%s", a.Body.String())
	}
	return nil, p
}

// read reads a resource.
func (v *visit) read(path string, into any, query ...string) error {
	a, err := v.do(v.r.Context(), http.MethodGet, with(path, query...), nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(a.Body.Bytes(), into)
}

// once begins the keys of a form.
func once() string { return rand.Text() }

// write sends what changes something. A form that is sent twice, as by a double click, has the same key, and counts
// once. One that was changed in between has another.
//
// The write goes on if the browser leaves.
func (v *visit) write(method, path string, body []byte, headers ...string) (*answer, error) {
	key := ""
	if once := v.r.PostForm.Get("once"); once != "" {
		sum := sha256.New()
		for _, part := range append([]string{once, method, path, string(body)}, headers...) {
			_, _ = io.WriteString(sum, part+"\x00") // a hash cannot fail
		}
		key = base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
	}
	return v.do(context.WithoutCancel(v.r.Context()), method, path, body, append(headers, "Idempotency-Key", key)...)
}

// Document is a document as the API answers with it.
type Document struct {
	Etag      string
	Written   wire.Time // to the second
	ExpiresAt *wire.Time
	Target    string // "" unless it is a message
	Body      []byte
}

// get reads the document of the visit.
func (v *visit) get() (*Document, error) {
	a, err := v.do(access.Look(v.r.Context()), http.MethodGet, apiDocumentPath(v.collection, v.id), nil)
	if err != nil {
		return nil, err
	}
	d := &Document{
		Etag: strings.Trim(a.header.Get("ETag"), `"`), Target: a.header.Get(wire.HeaderTarget), Body: a.Body.Bytes(),
	}
	if at, err := http.ParseTime(a.header.Get("Last-Modified")); err == nil {
		d.Written = wire.Time(at.UnixMilli())
	}
	if text := a.header.Get(wire.HeaderExpiresAt); text != "" {
		d.ExpiresAt = new(wire.Time)
		if err := d.ExpiresAt.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// quoted is an etag as If-Match has it; empty if there is none.
func quoted(etag string) string {
	if etag == "" || etag == "0" {
		return ""
	}
	return `"` + etag + `"`
}

// problemOf is the problem that an error is; that of another error has no status and no code.
func problemOf(err error) access.Problem {
	if p, ok := errors.AsType[*access.Problem](err); ok {
		return *p
	}
	return access.Problem{}
}

// config reads the configuration of a collection. One that does not exist has that with which it would begin.
func (v *visit) config(collection string) (config wire.Config, exists bool, err error) {
	err = v.read(apiCollectionPath(collection), &config)
	if problemOf(err).Code == access.NoCollection {
		return wire.Config{IndexingMode: wire.Consistent}, false, nil
	}
	return config, true, err
}

// readAny reads what is below a collection. One that does not exist has nothing, and into stays as it is.
func (v *visit) readAny(path string, into any, query ...string) error {
	if err := v.read(path, into, query...); problemOf(err).Code != access.NoCollection {
		return err
	}
	return nil
}

// query reads a page of the documents for which conditions hold.
func (v *visit) query(req wire.QueryRequest) (page wire.QueryReply, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return page, err
	}
	path := apiCollectionPath(v.collection, "query")
	a, err := v.do(v.r.Context(), http.MethodPost, path, body, "Content-Type", "application/json")
	if err != nil {
		return page, err
	}
	return page, json.Unmarshal(a.Body.Bytes(), &page)
}

// apiCollectionPath is the path of a collection, or of what is below it.
func apiCollectionPath(collection string, below ...string) string {
	return strings.Join(append([]string{"/v1/collections", url.PathEscape(collection)}, below...), "/")
}

// apiDocumentPath is the path of a document.
func apiDocumentPath(collection, id string) string {
	escaped := url.PathEscape(id)
	if id == "." || id == ".." {
		escaped = strings.ReplaceAll(id, ".", "%2E") // or it would be a folder
	}
	return apiCollectionPath(collection, "documents", escaped)
}

// with adds parameters, pairs of a name and a value, to a path. It leaves out empty values.
func with(href string, pairs ...string) string {
	u, err := url.Parse(href)
	if err != nil {
		return href // none of ours
	}
	query := u.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
