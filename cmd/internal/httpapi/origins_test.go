package httpapi_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
)

const (
	app  = "https://app.example.com"
	evil = "https://evil.example"
)

// preflight is what a browser asks before a page of an origin sends a request.
func (r *rig) preflight(path, origin string) answer {
	return r.do("OPTIONS", path, "", "Origin", origin, "Sec-Fetch-Site", "cross-site",
		"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "authorization,if-match")
}

// shared fails the test unless a browser shows the answer to the pages of an origin; "" is none. It
// never shows one to a request with cookies.
func (a answer) shared(t *testing.T, origin string) {
	t.Helper()
	a.header(t, "Access-Control-Allow-Origin", origin)
	a.header(t, "Access-Control-Allow-Credentials", "")
	if !slices.Contains(a.Header.Values("Vary"), "Origin") && origin != "*" {
		t.Errorf("%s %s: a cache may show it to another origin: %v", a.Request.Method, a.Request.URL, a.Header)
	}
}

// TestAllowedOrigins: a page of an allowed origin reads and writes; for all other pages nothing has
// changed.
func TestAllowedOrigins(t *testing.T) {
	r := start(t, func(o *serve.Options) { o.HTTP.Origins = []string{app, "http://localhost:3000"} })
	const path = "/collections/orders/documents/1"
	r.do("PUT", path, `{}`).want(t, 201).shared(t, "")
	for _, origin := range []string{app, "http://localhost:3000"} {
		from := []string{"Origin", origin, "Sec-Fetch-Site", "cross-site"}
		flight := r.preflight(path, origin).want(t, 204)
		flight.shared(t, origin)
		flight.header(t, "Access-Control-Allow-Methods", "DELETE, GET, HEAD, PATCH, PUT")
		flight.header(t, "Access-Control-Max-Age", "600")
		r.preflight("/collections", origin).want(t, 204).header(t, "Access-Control-Allow-Methods", "GET, HEAD")
		r.preflight("/nothing", origin).want(t, 404).shared(t, origin)
		r.do("OPTIONS", path, "", from...).want(t, 405).shared(t, origin)
		r.do("PUT", path, `{}`, from...).want(t, 200).shared(t, origin)
		r.do("GET", path, "", from...).want(t, 200).shared(t, origin)
		r.do("GET", path+"x", "", from...).want(t, 404).shared(t, origin)
		r.do("PUT", path, `{}`, append(from, "If-Match", `"9"`)...).want(t, 412).shared(t, origin)
		stream := r.follow("/events", from...)
		answer{stream.resp, ""}.shared(t, origin)
		stream.cancel()
	}
	for _, origin := range []string{evil, "null", "http://app.example.com", app + ":8443", app + ".evil.example",
		"https://App.example.com", "https://x." + app[8:], "*"} {
		r.preflight(path, origin).want(t, 405).shared(t, "")
		r.do("GET", path, "", "Origin", origin).want(t, 200).shared(t, "")
		for _, method := range []string{"PUT", "DELETE"} {
			body := map[string]string{"PUT": "{}"}[method]
			r.do(method, path, body, "Origin", origin).want(t, 403, `"code":"cross-origin"`).shared(t, "")
		}
	}
	r.do("PUT", path, `{}`, "Sec-Fetch-Site", "cross-site").want(t, 403)
	// The console is for its own origin alone, whatever the API allows.
	r.base = strings.TrimSuffix(r.base, "/v1")
	r.raw("POST", "/console/collections/orders/documents/1", "Origin", app).want(t, 403).header(t,
		"Access-Control-Allow-Origin", "")
	r.raw("OPTIONS", "/console/collections/orders/documents/1", "Origin", app, "Access-Control-Request-Method",
		"POST").want(t, 405).header(t, "Access-Control-Allow-Origin", "")
	r.raw("GET", "/console/live/stream?collection=a.b", "Origin", app).header(t, "Access-Control-Allow-Origin", "")
	r.raw("GET", "/metrics", "Origin", app).want(t, 200).header(t, "Access-Control-Allow-Origin", "")
	r.raw("GET", "/openapi.json", "Origin", app).want(t, 200).shared(t, app)
}

// raw sends a request to what the description does not have.
func (r *rig) raw(method, path string, headers ...string) answer {
	r.t.Helper()
	plain := *r
	plain.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	return plain.do(method, path, "", headers...)
}

// TestEveryOrigin: with tokens, the pages of every origin may use the API, and need one.
func TestEveryOrigin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, all+" read-write\n")
	r := start(t, func(o *serve.Options) { o.HTTP.TokenFile, o.HTTP.Origins = file, []string{"*"} })
	const path = "/collections/orders/documents/1"
	r.preflight(path, evil).want(t, 204).shared(t, "*")
	r.do("PUT", path, `{}`, "Origin", evil).want(t, 401).shared(t, "*")
	r.do("PUT", path, `{}`, "Origin", evil, "Authorization", "Bearer "+all).want(t, 201).shared(t, "*")
	cookie := "lapse-token" + r.base[strings.LastIndexByte(r.base, ':')+1:len(r.base)-3] + "=YWxsLTAxMjM0NTY3ODlhYmNkZWY"
	r.do("GET", path, "", "Origin", evil, "Cookie", cookie).want(t, 401)
	r.base = strings.TrimSuffix(r.base, "/v1")
	r.raw("GET", "/", "Origin", evil, "Cookie", cookie).want(t, 200, "orders").header(t, "Access-Control-Allow-Origin", "")
	r.raw("POST", "/console/collections/orders/drop", "Origin", evil, "Sec-Fetch-Site", "same-site", "Cookie",
		cookie).want(t, 403)
}

// TestSharedHeaders: a page may send each header of the description, and read each one.
func TestSharedHeaders(t *testing.T) {
	r := start(t, func(o *serve.Options) { o.HTTP.Origins = []string{app} })
	flight := r.preflight("/collections", app).want(t, 204)
	list := func(name string) []string { return strings.Split(strings.ToLower(flight.Header.Get(name)), ", ") }
	may, exposed := list("Access-Control-Allow-Headers"), append(list("Access-Control-Expose-Headers"),
		"cache-control", "last-modified", "content-type", "content-length")
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	sent, answered := 0, 0
	var walk func(at any)
	walk = func(at any) {
		switch at := at.(type) {
		case []any:
			for _, value := range at {
				walk(value)
			}
		case map[string]any:
			if name, ok := at["name"].(string); ok && at["in"] == "header" {
				if sent++; !slices.Contains(may, strings.ToLower(name)) {
					t.Errorf("a page may not send %s", name)
				}
			}
			headers, _ := at["headers"].(map[string]any)
			if _, ok := at["description"]; !ok {
				headers = nil // of the components, whose names are not those of headers
			}
			for name := range headers {
				if answered++; !slices.Contains(exposed, strings.ToLower(name)) {
					t.Errorf("a page may not read %s", name)
				}
			}
			for _, value := range at {
				walk(value)
			}
		}
	}
	if walk(doc); sent == 0 || answered == 0 {
		t.Errorf("the description has %d headers of requests and %d of answers", sent, answered)
	}
}
