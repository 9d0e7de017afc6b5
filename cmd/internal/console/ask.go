package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/httpapi/problem"
	"github.com/seed18712806/lapse/sink/wire"
)

// answer is what the API answered. It is a http.ResponseWriter until then.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// apiPath is the path of a collection in the API, or of what is below it.
func apiPath(collection string, below ...string) string {
	path := "/v1/collections/" + url.PathEscape(collection)
	for _, b := range below {
		path += "/" + b
	}
	return path
}

// apiDocument is the path of a document in the API.
func apiDocument(collection, id string) string {
	escaped := url.PathEscape(id)
	if id == "." || id == ".." {
		escaped = strings.ReplaceAll(id, ".", "%2E")
	}
	return apiPath(collection, "documents", escaped)
}

// ask sends a request to the API, as the person who is signed in. Headers are pairs of a name and
// a value; one with an empty value is left out. The error is a [problem.Problem].
func (v *visit) ask(ctx context.Context, method, path string, body []byte, headers ...string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Host, req.RemoteAddr = v.r.Host, v.r.RemoteAddr
	if v.token != "" {
		req.Header.Set("Authorization", "Bearer "+v.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	a := &answer{header: make(http.Header)}
	v.c.opts.API.ServeHTTP(a, req)
	if a.status < http.StatusBadRequest {
		return a, nil
	}
	p := &problem.Problem{}
	if err := json.Unmarshal(a.body.Bytes(), p); err != nil {
		return nil, problem.New(a.status, problem.Internal, "%s", a.body.String())
	}
	return nil, p
}

// read reads a resource of the API.
func (v *visit) read(path string, into any, query ...string) error {
	a, err := v.ask(v.r.Context(), http.MethodGet, with(path, query...), nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(a.body.Bytes(), into)
}

// write sends a form that changes something. A form that is sent twice, as by a double click, has
// the same key, and counts once; one that was changed in between has another.
func (v *visit) write(method, path string, body []byte, headers ...string) (*answer, error) {
	key := ""
	if once := v.r.PostForm.Get("once"); once != "" {
		sum := sha256.New()
		for _, part := range append([]string{once, method, path, string(body)}, headers...) {
			_, _ = io.WriteString(sum, part+"\x00") // a hash cannot fail
		}
		key = base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
	}
	// A browser that leaves ends the request; the write goes on, or its outcome is unknown.
	return v.ask(context.WithoutCancel(v.r.Context()), method, path, body, append(headers, "Idempotency-Key", key)...)
}

// done is the notice after a write: the one given, or that it was sent twice.
func (a *answer) done(notice string) string {
	if a.status == http.StatusAccepted {
		return "repeated"
	}
	return notice
}

// statusOf is the status of a problem; 0 of another error.
func statusOf(err error) int {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// quoted is an etag as If-Match has it; empty if there is none.
func quoted(etag string) string {
	if etag == "" || etag == "0" {
		return ""
	}
	return `"` + etag + `"`
}

// stored is a document as the API answers with it.
type stored struct {
	Etag      string
	Written   wire.Time // to the second
	ExpiresAt *wire.Time
	Body      []byte
}

// get reads the document of the visit.
func (v *visit) get() (*stored, error) {
	a, err := v.ask(v.r.Context(), http.MethodGet, apiDocument(v.collection, v.id), nil)
	if err != nil {
		return nil, err
	}
	d := &stored{Etag: strings.Trim(a.header.Get("ETag"), `"`), Body: a.body.Bytes()}
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
