package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Options say what the console shows.
type Options struct {
	Prefix  wire.Prefix
	Version string
	API     http.Handler   // of package httpapi
	Tokens  *access.Tokens // those of the API; nil if none are needed
	Events  *live.Hub
	Status  func(context.Context) (client.Status, error)
	// Client and Accounts, those for readers, are for the consumers of the events.
	Client   *client.Client
	Accounts []string
	Ready    func() (role string, problems health.Problems) // of this process
	Metrics  prometheus.Gatherer
	// Collections reads the first collections, with the number of their documents.
	Collections func(ctx context.Context, most int) (wire.CollectionsReply, error)
	// MaxBody is the most bytes that a document has.
	MaxBody func() int64
	Bytes   *access.Limit  // that requests hold, as in the API
	Proxies access.Proxies // that may say that a browser came over https
	Logger  *slog.Logger
	First   func() (url, domain string) // of the API: see httpapi.Options; nil if this process takes all writes
}

// Console answers the requests of browsers. Several goroutines may use it.
type Console struct {
	opts      Options
	guard     access.Guard
	pages     *access.Limit
	figures   *recorder
	statuses  cache[client.Status]
	consumers cache[consumers]
}

const (
	mostPages = 64      // that are made at a time
	mostToken = 8 << 10 // bytes of the form for signing in
)

// New makes a console.
func New(opts Options) *Console {
	return &Console{
		opts: opts, guard: access.Guard{Tokens: opts.Tokens}, pages: access.NewLimit("pages", "pages", mostPages),
		figures:   &recorder{metrics: opts.Metrics, collections: opts.Collections},
		statuses:  cache[client.Status]{read: opts.Status},
		consumers: cache[consumers]{read: opts.readConsumers},
	}
}

// Run records the figures until ctx is done. Without it, the console has no rates.
func (c *Console) Run(ctx context.Context) { c.figures.Run(ctx) }

// Register has a server answer / and everything that nothing else answers.
func (c *Console) Register(server *access.Router) {
	for _, r := range routes {
		var h http.Handler = c.serve(r)
		if r.path != streamPath {
			h = access.Compressed(h)
		}
		server.Handle(r.method, r.path, h)
	}
	server.Refuse("", func(w http.ResponseWriter, r *http.Request, p *access.Problem) {
		if p.Code == access.NoSuchRoute {
			p.Detail = fmt.Sprintf("There is no page at %s.", wire.Quote(r.URL.Path))
		}
		c.serve(route{open: true, handle: func(*visit) error { return p }})(w, r)
	})
}

// visit is a request to the console.
type visit struct {
	c          *Console
	w          http.ResponseWriter
	r          *http.Request
	token      string // empty if none is needed
	grant      access.Grant
	hold       *access.Hold
	collection string // empty if the path has none
	id         string
	now        wire.Time
	counted    map[string]int64 // what expires, by range and default, as far as it was asked for
}

// policy allows what the pages need, and nothing from elsewhere.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// serve answers the requests of a route.
func (c *Console) serve(r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store") // a cache could show what has expired
		v := &visit{c: c, w: w, r: req, grant: access.Everything, now: wire.Time(time.Now().UnixMilli())}
		v.hold = access.NewHold(access.Client{}, c.opts.Bytes)
		defer func() { v.hold.Leave() }()
		if err := v.answer(r); err != nil {
			v.fail(err)
		}
	}
}

// answer checks where the request comes from and who sends it, and calls the handler. Nobody but
// a person who is signed in may send a form, except for the one with a token.
func (v *visit) answer(r route) error {
	if err := v.c.guard.Check(v.r); err != nil {
		return err
	}
	signedIn := v.signedIn()
	if v.c.opts.Tokens != nil { // those without a token count as one client
		v.hold = access.NewHold(access.ClientOf(v.token), v.c.opts.Bytes)
	}
	if !r.open {
		if !signedIn {
			return v.askForToken()
		}
		if err := v.admit(r); err != nil {
			return err
		}
	}
	v.collection, v.id = v.r.PathValue("collection"), v.r.PathValue("id")
	if strings.HasPrefix(r.path, documentsPath) {
		v.id = cmp.Or(v.id, v.r.URL.Query().Get("id"))
		if err := checkID(v.id); err != nil {
			return err
		}
	}
	return r.handle(v)
}

// admit reads the form of a person who is signed in, and lets the visit take its place among those
// under way. The stream has a limit in the API.
func (v *visit) admit(r route) error {
	if v.r.Method == http.MethodPost {
		// A form writes a byte as three at most.
		if err := v.parseForm(3*min(v.c.opts.MaxBody(), mostEdited) + 64<<10); err != nil {
			return err
		}
	}
	if r.path == streamPath {
		return nil
	}
	return v.hold.Enter(v.c.pages)
}

// parseForm reads the form of a request.
func (v *visit) parseForm(most int64) error {
	if length := v.r.ContentLength; length > most {
		v.w.Header().Set("Connection", "close") // or the server would read some of it
		return access.NewProblem(http.StatusRequestEntityTooLarge, access.TooLarge,
			"The form has %d bytes, and %d are allowed.", length, most)
	}
	v.r.Body = http.MaxBytesReader(v.w, v.hold.Body(v.r.Body), most)
	err := v.r.ParseForm()
	var p *access.Problem
	switch {
	case errors.As(err, &p):
		return p
	case err != nil:
		return access.NewProblem(http.StatusBadRequest, access.Invalid, "The form could not be read: %s.", err)
	}
	return nil
}

// page is the frame of a page.
func (v *visit) page(title, active string, data any, crumbs ...Crumb) Page {
	_, problems := v.c.opts.Ready()
	first, domain := v.first()
	return Page{
		Title: title, Active: active, Crumbs: crumbs, Data: data,
		Notice: notices[v.r.URL.Query().Get("done")], Warned: v.r.URL.Query().Get("warned"), Now: v.now,
		Version: v.c.opts.Version, Prefix: v.c.opts.Prefix,
		SignedIn: v.token != "", All: v.grant.All(), ReadOnly: !v.grant.Write, Write: v.grant.Write && first == "",
		First: first, Domain: domain, Healthy: problems == nil, Sent: v.r.Method == http.MethodPost,
	}
}

// first is the address of the region that takes the writes, and its JetStream domain; both are empty if this one does.
func (v *visit) first() (url, domain string) {
	if v.c.opts.First == nil {
		return "", ""
	}
	return v.c.opts.First()
}

// show answers with a page.
func (v *visit) show(status int, name string, p Page) error {
	body, err := render(name, p)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	return v.hold.Send(v.w, status, body)
}

// redirect leads to the next page.
func (v *visit) redirect(href string) error {
	v.w.Header().Set("Location", href)
	v.w.WriteHeader(http.StatusSeeOther)
	return nil
}

// done leads to the next page, which says what was done.
func (v *visit) done(a *answer, href, notice string) error {
	if a.Repeated() {
		notice = "repeated"
	}
	return v.redirect(with(href, "done", notice, "warned", a.Warned(v.collection)))
}

// notices are what a page says about the action that led to it.
var notices = map[string]string{
	"created":    "The document was created.",
	"saved":      "The new version was saved.",
	"touched":    "The document was touched: its time to live began anew.",
	"deleted":    "The document was deleted. A delete makes no expiry event.",
	"configured": "The configuration was saved. It counts from now on, for existing documents too.",
	"same":       "The collection has this configuration.",
	"examples":   "The examples were made. Look at them expire, here and under Live.",
	"resent":     "The forwarder posts its dead letters again now. Those that the receiver takes go from this page.",
	"dropped":    "The collection was dropped. What had expired before still gets its event.",
	"repeated":   "This was sent before, and counts once. Here is how it is now.",
	"signed-out": "You are signed out.",
}

func asset(v *visit) error {
	if !serveAsset(v.w, v.r, v.r.PathValue("name")) {
		return access.NewProblem(http.StatusNotFound, access.NoSuchRoute, "There is no such file.")
	}
	return nil
}

// local is a path of this server that a form asked to be led to; the overview if it is none.
func local(href string) string {
	u, err := url.Parse(href)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(href, "/") ||
		strings.HasPrefix(href, "//") || strings.ContainsAny(href, "\\\t\r\n") {
		return "/"
	}
	return href
}

// route is one page or action. Without a token only open routes answer.
type route struct {
	method, path string
	handle       func(*visit) error
	open         bool
}

const (
	root           = "/console/"
	collectionPath = root + "collections/{collection}"
	documentsPath  = collectionPath + "/documents/"
	signInPath     = root + "sign-in"
	streamPath     = root + "live/stream"
)

var routes = []route{
	{method: "GET", path: "/", handle: overview},
	{method: "GET", path: root + "collections/", handle: goToCollection},
	{method: "POST", path: root + "examples", handle: makeExamples},
	{method: "GET", path: collectionPath, handle: collection},
	{method: "GET", path: collectionPath + "/configure", handle: configure},
	{method: "POST", path: collectionPath + "/configure", handle: saveConfiguration},
	{method: "POST", path: collectionPath + "/drop", handle: drop},
	{method: "GET", path: collectionPath + "/new", handle: newDocument},
	{method: "POST", path: collectionPath + "/new", handle: createDocument},
	{method: "GET", path: documentsPath, handle: document},
	{method: "POST", path: documentsPath, handle: changeDocument},
	{method: "GET", path: documentsPath + "{id}", handle: document},
	{method: "POST", path: documentsPath + "{id}", handle: changeDocument},
	{method: "GET", path: root + "live", handle: livePage},
	{method: "GET", path: streamPath, handle: liveStream},
	{method: "GET", path: root + "live/messages/{seq}", handle: messagePage},
	{method: "GET", path: root + "consumers", handle: consumersPage},
	{method: "POST", path: root + "consumers/resend", handle: resendLetters},
	{method: "GET", path: root + "system", handle: systemPage},
	{method: "GET", path: signInPath, handle: signInPage, open: true},
	{method: "POST", path: signInPath, handle: signIn, open: true},
	{method: "POST", path: root + "sign-out", handle: signOut, open: true},
	{method: "GET", path: root + "assets/{name}", handle: asset, open: true},
}

// collectionHref is the path of a collection's page, or of one below it.
func collectionHref(collection string, below ...string) string {
	href := root + "collections/" + url.PathEscape(collection)
	for _, b := range below {
		href += "/" + b
	}
	return href
}

// documentHref is the path of a document. A browser takes the ids . and .. for folders, also if
// they are escaped, so they are in the query.
func documentHref(collection, id string) string {
	if id == "." || id == ".." {
		return collectionHref(collection, "documents", "?id="+url.QueryEscape(id))
	}
	return collectionHref(collection, "documents", url.PathEscape(id))
}
