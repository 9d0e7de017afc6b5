package httpapi

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the descriptions
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// description is that of the API: OpenAPI 3.1.
//
//go:embed openapi.json
var description []byte

// messages is the description of the messages over NATS: AsyncAPI 3.0, with {prefix} in place of the prefix.
//
//go:embed asyncapi.json
var messages []byte

// describeMessages describes the messages for a prefix. A body that HTTP has too has its schema in openapi.json
// alone: the schema of that name takes the place of the reference.
func describeMessages(prefix wire.Prefix) ([]byte, error) {
	var api struct {
		Components struct{ Schemas map[string]any }
	}
	var doc map[string]any
	text := bytes.ReplaceAll(messages, []byte("{prefix}"), []byte(prefix))
	if err := errors.Join(json.Unmarshal(description, &api), json.Unmarshal(text, &doc)); err != nil {
		return nil, err
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for name, schema := range schemas {
		if schema.(map[string]any)["$ref"] == "/openapi.json#/components/schemas/"+name {
			schemas[name] = api.Components.Schemas[name]
		}
	}
	return json.Marshal(doc)
}

// readWithin limits one read.
const readWithin = 2 * time.Second

// Limits are the most requests of each kind at a time. Of 0, the default counts.
type Limits struct {
	Reads   int64 // 1,024
	Writes  int64 // 1,024
	Imports int64 // 16; each has at most 32 MiB in flight
	Streams int64 // 10,000
	Bytes   int64 // 256 MiB, of what clients hold: bodies, what is read for them, answers, streams, imports
}

// Options say what the API serves.
type Options struct {
	Prefix wire.Prefix
	Client *client.Client // for writes
	Reader service.Reader // a *sink.Reader
	// GetMany is that of the *sink.Reader.
	GetMany func(ctx context.Context, collection string, ids []string) ([]sink.Document, error)
	Events  *live.Hub
	// Tokens are those that a client needs one of. Without them, only requests to a loopback
	// host are answered, and need none.
	Tokens  *access.Tokens
	Origins access.Origins        // of other sites, whose pages may use the API
	Metrics prometheus.Registerer // none if nil
	Logger  *slog.Logger
	Limits  Limits
	// Trace begins the span of a request to a route; nil if nobody records spans. The span of a write
	// goes into the log in place of its traceparent.
	Trace func(r *http.Request, route string, writes bool) (end func(status int))
	// First returns the URL of the API of the region that this one follows, and its JetStream domain: writes are
	// answered with 421 and this address. Both are empty while this process takes writes. It may be nil.
	First func() (url, domain string)
}

// API is the HTTP API. Several goroutines may use it.
type API struct {
	opts   Options
	guard  access.Guard
	meters *meters
	limits map[kind]*access.Limit
	bytes  *access.Limit

	messages []byte // their description
}

// New makes the API.
func New(opts Options) (*API, error) {
	if _, err := wire.ParsePrefix(string(opts.Prefix)); err != nil {
		return nil, err
	}
	a := &API{
		opts: opts, guard: access.Guard{Tokens: opts.Tokens, Origins: opts.Origins}, meters: newMeters(opts.Metrics),
	}
	var err error
	if a.messages, err = describeMessages(opts.Prefix); err != nil {
		return nil, err
	}
	l := opts.Limits
	a.limits = map[kind]*access.Limit{
		reads:   access.NewLimit("reads", "reads", cmp.Or(l.Reads, 1024)),
		writes:  access.NewLimit("writes", "writes", cmp.Or(l.Writes, 1024)),
		imports: access.NewLimit("imports", "imports", cmp.Or(l.Imports, 16)),
		follows: access.NewLimit("streams", "streams", cmp.Or(l.Streams, 10_000)),
	}
	a.bytes = access.NewLimit("bytes", "bytes of bodies, answers and streams", cmp.Or(l.Bytes, 256<<20))
	if opts.Metrics != nil {
		opts.Metrics.MustRegister(a.meters.reads, access.Limits{
			a.limits[reads], a.limits[writes], a.limits[imports], a.limits[follows], a.bytes,
		})
	}
	return a, nil
}

// Bytes is the limit of the bytes that requests hold, for whatever else answers requests.
func (a *API) Bytes() *access.Limit { return a.bytes }

// Register has a server answer everything under /v1/, /openapi.json and /asyncapi.json.
func (a *API) Register(server *access.Router) {
	for _, r := range routes {
		var h http.Handler = a.serve(r)
		if r.kind == imports || r.kind == reads && !r.hasEtag() {
			h = access.Compressed(h)
		}
		server.Handle(r.method, r.path, h)
	}
	server.Refuse("/v1", a.refuse)
	for path, text := range map[string][]byte{"/openapi.json": description, "/asyncapi.json": a.messages} {
		server.Refuse(path, a.refuse)
		server.Handle(http.MethodGet, path, access.Compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.opts.Origins.Share(w, r)
			w.Header().Set("Content-Type", jsonType)
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = w.Write(text)
		})))
	}
}

// refuse answers what no route does.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, p *access.Problem) {
	if a.opts.Origins.Share(w, r) && p.Code == access.MethodNotAllowed && access.Preflight(w, r) {
		return
	}
	if p.Code == access.NoSuchRoute {
		p.Detail += ": /openapi.json describes what there is"
	}
	a.meters.requests.WithLabelValues(otherRoute, "other", statusText(p.Status)).Inc()
	p.Write(w)
}

// request is a request whose names were checked.
type request struct {
	*http.Request
	grant      access.Grant
	hold       *access.Hold
	body       []byte // of a write
	token      string // empty if none is needed
	route      string
	collection string // empty if the path has none
	id         string
}

// serve answers the requests of a route.
func (a *API) serve(r route) http.HandlerFunc {
	observe := a.meters.of(r)
	return func(w http.ResponseWriter, req *http.Request) {
		start := time.Now()
		recorder := &recorder{ResponseWriter: w}
		a.opts.Origins.Share(w, req)
		err := a.guard.Check(req)
		if err == nil {
			err = a.handle(r, recorder, req)
		}
		if p, ok := errors.AsType[*access.Problem](err); ok && recorder.status == 0 {
			p.Write(recorder)
		}
		observe(cmp.Or(recorder.status, http.StatusOK), time.Since(start))
	}
}

// handle checks the token and the names, receives the body of a write, and calls the handler of the
// route. A request without a token that lapse knows has no span: anybody could make as many as they like.
func (a *API) handle(r route, w *recorder, req *http.Request) (err error) {
	call := &request{Request: req, grant: access.Everything, route: r.path, collection: req.PathValue("collection"),
		id: req.PathValue("id")}
	client, err := a.authorize(call)
	if err != nil {
		return err
	}
	if a.opts.Trace != nil && r.kind != follows { // which may last for days
		end := a.opts.Trace(req, r.path, r.kind == writes)
		defer func() {
			status := w.status
			if p, ok := errors.AsType[*access.Problem](err); ok && status == 0 {
				status = p.Status
			}
			end(cmp.Or(status, http.StatusOK))
		}()
	}
	if (r.kind == writes || r.kind == imports) && !call.grant.Write {
		return access.NewProblem(http.StatusForbidden, access.NotAllowed, "this token can only read")
	}
	if strings.Contains(r.path, "{collection}") {
		if err := wire.CheckCollection(call.collection); err != nil {
			return access.BadRequest("%s", err)
		}
		if err := call.mayUse(call.collection); err != nil {
			return err
		}
	}
	if strings.Contains(r.path, "{id}") {
		if err := wire.CheckID(call.id); err != nil {
			return access.BadRequest("%s", err)
		}
	}
	defer func() {
		p, ok := errors.AsType[*access.Problem](err)
		if ok && p.Code == access.NoCollection && !call.grant.All() {
			p.Detail = wire.WithoutNearest(p.Detail) // the token may not know the other collections
		}
	}()
	if r.kind == writes || r.kind == imports {
		if err := a.misdirected(call); err != nil {
			return err
		}
	}
	call.hold = access.NewHold(client, a.bytes)
	defer call.hold.Leave()
	// before the slot: the body may be slow to come
	if r.kind == writes || r.method == http.MethodPost && r.kind == reads {
		if err := a.receive(call); err != nil {
			return err
		}
	}
	if err := call.hold.Enter(a.limits[r.kind]); err != nil {
		return err
	}
	switch r.kind {
	case reads:
		ctx, cancel := context.WithTimeout(whole(req), readWithin)
		defer cancel()
		call.Request = req.WithContext(ctx)
	case writes:
		call.Request = req.WithContext(whole(req))
	}
	err = r.handle(a, w, call)
	if _, ok := errors.AsType[*access.Problem](err); err == nil || ok {
		return err
	}
	if req.Context().Err() == nil { // otherwise the client has left
		a.opts.Logger.Error("HTTP request failed", slog.String("path", req.URL.Path), slog.Any("error", err))
	}
	return access.NewProblem(http.StatusInternalServerError, access.Internal, "%s", err)
}

// authorize finds the grant of the token of a request, and the client that has the token.
func (a *API) authorize(r *request) (client access.Client, err error) {
	if a.opts.Tokens == nil {
		return client, nil
	}
	var ok bool
	if r.token, ok = bearer(r.Header); ok {
		r.grant, ok = a.opts.Tokens.Find(r.token)
	}
	if !ok {
		return client, access.NewProblem(http.StatusUnauthorized, access.TokenRequired,
			"the request has no token that lapse knows: send it as Authorization: Bearer TOKEN")
	}
	return access.ClientOf(r.token), nil
}

// whole is the context of a request whose client may close its half of the connection once it has sent the request:
// net/http then ends the context, though the client waits for the answer. Reads and writes have limits of their own.
func whole(r *http.Request) context.Context { return context.WithoutCancel(r.Context()) }

// misdirected refuses a write while another region takes the writes. It is no redirect: a client would follow that
// without a word, with its token, on each write.
func (a *API) misdirected(r *request) error {
	if a.opts.First == nil {
		return nil
	}
	url, domain := a.opts.First()
	if url == "" {
		return nil
	}
	p := access.NewProblem(http.StatusMisdirectedRequest, access.OtherRegion,
		"this region follows the region %q, which takes all writes: send this one to %s", domain, url)
	p.Location = url + r.URL.RequestURI()
	return p
}

// mayUse refuses a collection that the token does not cover.
func (r *request) mayUse(collection string) error {
	if r.grant.Covers(collection) {
		return nil
	}
	return access.NewProblem(http.StatusForbidden, access.NotAllowed, "this token is not for collection %s", collection)
}

// location is the path of the document or the collection that a request is about.
func (r *request) location() string {
	path := "/v1/collections/" + r.collection
	if r.id != "" {
		path += "/documents/" + url.PathEscape(r.id)
	}
	return path
}

// bearer is the token of a request.
func bearer(h http.Header) (token string, ok bool) {
	scheme, token, ok := strings.Cut(h.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// query returns the parameters of the URL, if each is allowed and there once.
func (r *request) query(allowed ...string) (url.Values, error) {
	return r.parameters("", allowed...)
}

// parameters is query, but for one that may be there several times.
func (r *request) parameters(several string, allowed ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, access.BadRequest("the query is not valid: %s", err)
	}
	for name, all := range values {
		if !slices.Contains(allowed, name) {
			return nil, access.BadRequest("parameter %s is not known here: use %s", wire.Quote(name),
				cmp.Or(strings.Join(allowed, ", "), "none"))
		}
		if len(all) > 1 && name != several {
			return nil, access.BadRequest("parameter %s is there %d times: use it once", name, len(all))
		}
	}
	return values, nil
}

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.status = cmp.Or(r.status, http.StatusOK)
	return r.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// kind is what a route does, for the limits and the tokens.
type kind int

const (
	reads kind = iota
	writes
	imports // many writes in one request
	follows // a stream of events
)

// route is one operation of the API.
type route struct {
	method, path string
	kind         kind
	handle       func(*API, http.ResponseWriter, *request) error
}

// hasEtag reports whether the answers have an ETag: those with one document, or one configuration.
func (r route) hasEtag() bool { return r.path == documentPath || r.path == collectionPath }

const (
	collectionPath = "/v1/collections/{collection}"
	queryPath      = collectionPath + "/query"
	documentsPath  = collectionPath + "/documents"
	documentPath   = documentsPath + "/{id}"
)

// routes lists every route; openapi.json describes each of them.
var routes = []route{
	{"GET", "/v1/collections", reads, listCollections},
	{"GET", collectionPath, reads, getConfig},
	{"PUT", collectionPath, writes, putConfig},
	{"PATCH", collectionPath, writes, patchConfig},
	{"DELETE", collectionPath, writes, dropCollection},
	{"GET", collectionPath + "/count", reads, countDocuments},
	{"GET", collectionPath + "/forecast", reads, forecastDocuments},
	{"POST", queryPath, reads, queryDocuments},
	{"GET", documentsPath, reads, listDocuments},
	{"POST", documentsPath, imports, importDocuments},
	{"GET", documentPath, reads, getDocument},
	{"PUT", documentPath, writes, putDocument},
	{"PATCH", documentPath, writes, changeDocument(wire.Patch, patchType)},
	{"DELETE", documentPath, writes, changeDocument(wire.Delete, "")},
	{"POST", documentPath + "/touch", writes, changeDocument(wire.Touch, "")},
	{"GET", "/v1/events", follows, followEvents},
	{"GET", "/v1/changes", follows, followChanges},
	{"GET", "/v1/rejections", follows, followRejections},
}

// otherRoute is what the metrics call a path that no route has.
const otherRoute = "other"
