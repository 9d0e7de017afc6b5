package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/access"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/client"
)

// fake is a console before an API that answers as a test says, and counts.
type fake struct {
	t     testing.TB
	site  *access.Router
	asked []string // of the API
	read  int      // statuses
}

func newFake(t testing.TB, tokens *access.Tokens, ready health.Problems, api http.HandlerFunc) *fake {
	f := &fake{t: t, site: access.NewRouter()}
	New(Options{
		Prefix: "lapse", Version: "1", Tokens: tokens, Metrics: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler),
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.asked = append(f.asked, r.Method+" "+r.URL.Path)
			api(w, r)
		}),
		Ready:   func() (string, health.Problems) { return "ready", ready },
		MaxBody: func() int64 { return 1 << 20 },
		Bytes:   access.NewLimit("bytes", "bytes", 64<<20),
		Status: func(context.Context) (client.Status, error) {
			f.read++
			return client.Status{}, errors.New("NATS is away")
		},
	}).Register(f.site)
	return f
}

func (f *fake) do(method, path string, form url.Values) *httptest.ResponseRecorder {
	f.t.Helper()
	f.asked = nil
	req := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(form.Encode()))
	req.Host = "127.0.0.1"
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	f.site.ServeHTTP(w, req)
	return w
}

func (f *fake) want(w *httptest.ResponseRecorder, status int, parts ...string) {
	f.t.Helper()
	if w.Code != status || w.Header().Get("Content-Security-Policy") != policy {
		f.t.Errorf("%d, want %d, %v", w.Code, status, w.Header())
	}
	for _, part := range parts {
		if !strings.Contains(w.Body.String(), part) {
			f.t.Errorf("want %q in\n%s", part, w.Body)
		}
	}
}

// runbook is where the runbook is, up to a heading.
const runbook = "https://github.com/seed18712806/lapse/blob/main/deploy/docs/runbook.md#"

// TestFailures: whatever fails is a page that says what, and what to do.
func TestFailures(t *testing.T) {
	var answer http.HandlerFunc
	f := newFake(t, nil, health.Problems{
		{Name: "Redis", Advice: "Make Redis reachable.", Reason: errors.New("it does <not> answer"), Shards: []int{1, 3}},
		{Advice: "Wait.", Reason: errors.New("the log has not been applied yet")},
	}, func(w http.ResponseWriter, r *http.Request) { answer(w, r) })
	const collection, document = "/console/collections/orders", "/console/collections/orders/documents/1"
	change := url.Values{"action": {"touch"}, "etag": {"1"}}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		access.NewProblem(503, access.Unavailable, "Redis is <away>").Write(w)
	}
	for _, path := range []string{collection, document, collection + "/configure", document + "?view=edit"} {
		w := f.do("GET", path, nil)
		f.want(w, 503, "Redis is &lt;away&gt;", "The overview says what is unhealthy", "Not ready", `id="again"`)
		if w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	f.want(f.do("POST", document, change), 503, "Redis is &lt;away&gt;")
	f.want(f.do("GET", "/", nil), 200, "The collections cannot be listed: Redis is &lt;away&gt;",
		"<p>shards 1, 3: Redis: it does &lt;not&gt; answer</p>"+
			"<p class=\"advice\">Make Redis reachable. <a href=\""+runbook+"problem-redis\">The runbook</a></p>",
		"<p>the log has not been applied yet</p>"+
			"<p class=\"advice\">Wait. <a href=\""+runbook+"lapsenotready\">The runbook</a></p>")
	for range 3 {
		f.want(f.do("GET", "/console/system", nil), 200, "NATS is away")
	}
	if f.read != 1 {
		t.Errorf("three pages within a second have read %d statuses", f.read)
	}

	answer = func(w http.ResponseWriter, _ *http.Request) {
		access.NewProblem(504, access.OutcomeUnknown, "nobody knows").Write(w)
	}
	f.want(f.do("POST", document, change), 504, "nobody knows", "it counts once", "Back to orders")
	answer = func(w http.ResponseWriter, _ *http.Request) {
		access.NewProblem(503, access.TooMany+"reads", "it is full").Write(w)
	}
	f.want(f.do("GET", document, nil), 503, "it is full", "in a few seconds")
	answer = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not JSON", 500) }
	f.want(f.do("GET", document, nil), 500, "not JSON", "The log of lapse has more about it")
	answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("no JSON")) }
	f.want(f.do("GET", collection, nil), 500, "invalid character")
	answer = func(http.ResponseWriter, *http.Request) {}
	f.want(f.do("GET", collection, nil), 500, "unexpected end")

	// The counts and the forecast may be missing while the documents are there.
	answer = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/count"), strings.HasSuffix(r.URL.Path, "/forecast"):
			access.NewProblem(503, access.Unavailable, "Redis is busy").Write(w)
		case strings.HasSuffix(r.URL.Path, "/documents"):
			_, _ = w.Write([]byte(`{"documents":[{"id":"1","etag":"7","ts":"2026-01-01T00:00:00Z","document":{}}]}`))
		default:
			_, _ = w.Write([]byte(`{"defaultTtl":60,"indexingMode":"consistent","etag":"5"}`))
		}
	}
	f.want(f.do("GET", collection, nil), 200, "The documents cannot be counted: Redis is busy",
		"There is no forecast: Redis is busy", `data-id="1"`)
	// Nobody can tell what it expires, so it asks for the name.
	choice := url.Values{"mode": {"after"}, "after": {"1"}, "etag": {"5"}, "indexing": {"consistent"}}
	f.want(f.do("POST", collection+"/configure", choice), 400, "That is not the name")
	choice.Set("confirm", "orders")
	f.want(f.do("POST", collection+"/configure", choice), 303)
}

// TestCost: a page asks only for what it shows. A forecast takes one more read, of how many documents expire at all;
// the range takes up to four if some do.
func TestCost(t *testing.T) {
	f := newFake(t, nil, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"7"`)
		_, _ = w.Write([]byte(`{"etag":"7"}`))
	})
	for _, c := range []struct {
		path string
		want int
	}{{"/", 1}, {"/console/collections/a", 5}, {"/console/collections/a/configure", 1},
		{"/console/collections/a/configure?mode=none", 5}, {"/console/collections/a/new", 0},
		{"/console/collections/a/documents/1", 1}, {"/console/system", 0}, {"/nothing", 0}} {
		if f.do("GET", c.path, nil); len(f.asked) != c.want {
			t.Errorf("%s: %q, want %d", c.path, f.asked, c.want)
		}
	}
	expires := newFake(t, nil, nil, func(w http.ResponseWriter, _ *http.Request) {
		_,
			_ = w.Write([]byte(`{"buckets":[{"count":3}]}`))
	})
	if expires.do("GET", "/console/collections/a", nil); len(expires.asked) > 5+4 {
		t.Errorf("the range costs %q", expires.asked)
	}
	if expires.do("GET", "/console/collections/a?within=1h", nil); len(expires.asked) != 5 {
		t.Errorf("a range that is named costs %q", expires.asked)
	}
	for _, c := range []struct {
		path string
		form url.Values
		want string
	}{
		{"documents/1", url.Values{"action": {"touch"}, "etag": {"7"}}, "[POST /v1/collections/a/documents/1/touch]"},
		{"documents/1", url.Values{"action": {"replace"}, "etag": {"7"}, "body": {"{}"}},
			"[PUT /v1/collections/a/documents/1]"},
		{"documents/?id=..", url.Values{"action": {"delete"}, "etag": {"7"}, "confirm": {".."}},
			"[DELETE /v1/collections/a/documents/..]"},
		{"new", url.Values{"id": {"x/y"}, "body": {"{}"}}, "[PUT /v1/collections/a/documents/x/y]"},
		{"drop", url.Values{"confirm": {"a"}}, "[DELETE /v1/collections/a]"},
	} {
		if f.do("POST", "/console/collections/a/"+c.path, c.form); fmt.Sprint(f.asked) != c.want {
			t.Errorf("%s %v: %v, want %s", c.path, c.form, f.asked, c.want)
		}
	}
}

// TestManyCollections: a token that names many collections has pages of them.
func TestManyCollections(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	var names []string
	for i := range 120 {
		names = append(names, fmt.Sprintf("c%03d", i))
	}
	if err := os.WriteFile(file, []byte("0123456789abcdef read-only "+strings.Join(names, ",")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.LoadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t, tokens, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			t.Errorf("%s: without the token", r.URL)
		}
		_, _ = w.Write([]byte(`{"live":1}`))
	})
	seen := 0
	next := "/"
	for ; next != ""; seen += len(f.asked) / 2 {
		req := httptest.NewRequestWithContext(t.Context(), "GET", next, nil)
		req.AddCookie(sessionCookie(req, "0123456789abcdef", false))
		w := httptest.NewRecorder()
		f.asked = nil
		f.site.ServeHTTP(w, req)
		f.want(w, 200, "this token can only read")
		_, rest, ok := strings.Cut(w.Body.String(), `<a href="/?after=`)
		if next = ""; ok {
			after, _, _ := strings.Cut(rest, `"`)
			next = "/?after=" + after
		}
	}
	if seen != len(names) {
		t.Errorf("it shows %d of %d", seen, len(names))
	}
}
