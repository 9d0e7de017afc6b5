package console_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/serve/servetest"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// rig is a lapse of its own.
type rig struct {
	t    testing.TB
	base string
	*client.Client
	stop func() // ends lapse and waits
}

// start runs `lapse serve` in this process until the test ends.
func start(t testing.TB, set ...func(*serve.Options)) *rig {
	t.Helper()
	l := servetest.Start(t, set...)
	c, err := client.Connect(client.Options{Server: l.NATS, Timeout: harness.Limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &rig{t: t, base: l.HTTP, Client: c, stop: l.Stop}
}

// put writes a document.
func (r *rig) put(collection, id, body string) wire.Outcome {
	r.t.Helper()
	return r.write(wire.DefaultPrefix.Write(wire.Upsert, collection, id), body)
}

// configure configures a collection.
func (r *rig) configure(collection, body string) wire.Outcome {
	r.t.Helper()
	return r.write(wire.DefaultPrefix.Config(collection), body)
}

func (r *rig) write(subject, body string) wire.Outcome {
	r.t.Helper()
	result, err := r.Write(r.t.Context(), client.Message{Subject: subject, Body: []byte(body)})
	if err != nil {
		r.t.Fatal(err)
	}
	return result.Outcome
}

// body is a document as it is stored; "" if there is none.
func (r *rig) body(collection, id string) string {
	r.t.Helper()
	doc, err := r.Get(r.t.Context(), collection, id)
	if err != nil {
		return ""
	}
	return string(doc.Document)
}

// browser is a browser without JavaScript, whose every answer is checked.
type browser struct {
	t    testing.TB
	base string
	http *http.Client
}

// browse opens a browser.
func (r *rig) browse(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, r.base, &http.Client{Transport: transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// do sends a request, and follows no redirect. Headers are pairs of a name and a value.
func (b *browser) do(method, path string, form url.Values, headers ...string) *page {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.base)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.http.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	p := &page{t: b.t, b: b, Response: resp, text: string(text), path: path}
	p.check()
	return p
}

// get opens a page. It follows redirects as a person sees them.
func (b *browser) get(path string) *page {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil).follow()
}

// follow follows redirects.
func (p *page) follow() *page {
	p.t.Helper()
	for range 3 {
		if p.StatusCode != http.StatusSeeOther {
			return p
		}
		p = p.b.do(http.MethodGet, p.Header.Get("Location"), nil)
	}
	p.t.Fatalf("%s: too many redirects", p.path)
	return nil
}

// send sends the form of an id, with other values in place of those that it has, and follows where
// it leads. Values are pairs of a name and a value.
func (p *page) send(id string, values ...string) *page {
	p.t.Helper()
	return p.sendOnce(id, values...).follow()
}

func (p *page) sendOnce(id string, values ...string) *page {
	p.t.Helper()
	f := p.form(id)
	for i := 0; i < len(values); i += 2 {
		f.values.Set(values[i], values[i+1])
	}
	if f.method == "post" {
		return p.b.do(http.MethodPost, f.action, f.values)
	}
	return p.b.do(http.MethodGet, f.action+"?"+f.values.Encode(), nil)
}

// want fails the test unless the page has this status, and each part in its text.
func (p *page) want(status int, parts ...string) *page {
	p.t.Helper()
	if p.StatusCode != status {
		p.t.Fatalf("%s: %s, want %d\n%s", p.path, p.Status, status, p.text)
	}
	for _, part := range parts {
		if !strings.Contains(p.words, part) {
			p.t.Errorf("%s: want %q in\n%s", p.path, part, p.words)
		}
	}
	return p
}

// without fails the test if the page has one of the parts in its source.
func (p *page) without(parts ...string) *page {
	p.t.Helper()
	for _, part := range parts {
		if strings.Contains(p.text, part) {
			p.t.Errorf("%s: it must not have %q:\n%s", p.path, part, p.text)
		}
	}
	return p
}
