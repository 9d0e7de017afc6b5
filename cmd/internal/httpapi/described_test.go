package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/seed18712806/lapse/sink/wire"
)

// answers are what the description has of one operation: by status, headers and content.
type answers map[string]struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct {
		Ref string `json:"$ref"`
	}
	Content map[string]struct {
		Item json.RawMessage `json:"x-item-schema"`
	}
}

// openAPI is the description, as lapse has it. Its schemas are compiled when they are needed.
type openAPI struct {
	Paths map[string]map[string]struct {
		Responses answers
	}
	Components struct{ Responses answers }

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

var readOpenAPI = sync.OnceValues(func() (*openAPI, error) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		return nil, err
	}
	// The parameters of a path stand beside its methods.
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	for _, path := range doc["paths"].(map[string]any) {
		delete(path.(map[string]any), "parameters")
	}
	if text, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	d := &openAPI{compiler: jsonschema.NewCompiler()}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, err
	}
	schemas, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource("lapse:openapi", schemas)
})

// schema is the one at the end of a path of names.
func (d *openAPI) schema(names ...string) (*jsonschema.Schema, error) {
	at := "lapse:openapi#"
	for _, name := range names {
		at += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile(at)
}

// path is the path of the description that a path of a URL has; empty if there is none.
func (d *openAPI) path(escaped string) string {
	have := strings.Split(escaped, "/")
	for path := range d.Paths {
		names := strings.Split(path, "/")
		same := len(names) == len(have)
		for i := range names {
			same = same && (names[i] == have[i] || strings.HasPrefix(names[i], "{"))
		}
		if same {
			return path
		}
	}
	return ""
}

// checked holds every answer against the description.
type checked struct {
	t    testing.TB
	next *http.Transport
}

func (c checked) CloseIdleConnections() { c.next.CloseIdleConnections() }

func (c checked) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		c.t.Errorf("%s %s: a browser may guess what it is: %v", req.Method, req.URL, resp.Header)
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" { // readEvents checks it
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	described(c.t, req, resp, body)
	return resp, nil
}

// described fails the test unless the description has the answer: its status, its headers, its
// media type, and its body, or each line of that, or the data of one event.
func described(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if undescribed := describe(req, resp, body); undescribed != "" {
		t.Errorf("%s %s: %d is not as described: %s\n%.1000s", req.Method, req.URL, resp.StatusCode, undescribed, body)
	}
}

// describe returns why an answer is not as described.
func describe(req *http.Request, resp *http.Response, body []byte) string {
	d, err := readOpenAPI()
	if err != nil {
		return err.Error()
	}
	if bytes.Contains(body, []byte(`"detail":`)) && bytes.Contains(body, []byte(wire.HeaderIfMatch)) {
		return "it names a header of NATS"
	}
	if bytes.Contains(body, []byte(`"code":"no-such-route"`)) || resp.StatusCode == http.StatusMethodNotAllowed {
		return d.invalid(body, "components", "schemas", "Problem")
	}
	if req.Method == http.MethodOptions && len(body) == 0 {
		return "" // a browser asks, see TestAllowedOrigins
	}
	path, method, status := d.path(req.URL.EscapedPath()), strings.ToLower(req.Method), strconv.Itoa(resp.StatusCode)
	if method == "head" {
		method, body = "get", nil
	}
	names := []string{"paths", path, method, "responses", status}
	answer, ok := d.Paths[path][method].Responses[status]
	if !ok {
		return "the status is not in " + strings.Join(names, " ")
	}
	if name, ok := strings.CutPrefix(answer.Ref, "#/components/responses/"); ok {
		answer, names = d.Components.Responses[name], []string{"components", "responses", name}
	}
	for name, h := range answer.Headers {
		values := resp.Header.Values(name)
		at := append(names[:len(names):len(names)], "headers", name)
		if ref, ok := strings.CutPrefix(h.Ref, "#/components/headers/"); ok {
			at = []string{"components", "headers", ref}
		}
		for _, value := range values {
			if why := d.invalidValue(value, append(at, "schema")...); why != "" {
				return "header " + name + " " + strconv.Quote(value) + ": " + why
			}
		}
	}
	if len(answer.Content) == 0 || req.Method == http.MethodHead {
		if len(body) > 0 {
			return "it has a body"
		}
		return ""
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content, ok := answer.Content[media]
	names = append(names[:len(names):len(names)], "content", media)
	switch {
	case !ok:
		return "the media type is not in " + strings.Join(names, " ")
	case content.Item == nil:
		names = append(names, "schema")
		if answer.Headers["Preference-Applied"].Ref != "" { // the outcome, or the document
			names = append(names, "anyOf", map[bool]string{false: "0", true: "1"}[resp.Header.Get(
				"Preference-Applied") == "return=representation"])
		}
		return d.invalid(body, names...)
	case media == "text/event-stream":
		return d.invalid(body, append(names, "x-item-schema")...)
	}
	for line := range bytes.Lines(body) {
		if why := d.invalid(line, append(names, "x-item-schema")...); why != "" {
			return string(line) + ": " + why
		}
	}
	return ""
}

// invalid returns why a text of JSON is not valid.
func (d *openAPI) invalid(text []byte, schema ...string) string {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err.Error()
	}
	return d.invalidValue(value, schema...)
}

func (d *openAPI) invalidValue(value any, names ...string) string {
	s, err := d.schema(names...)
	if err == nil {
		err = s.Validate(value)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestDescribe: an answer that is not as described is found.
func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		media, body  string
		described    bool
	}{
		{"GET", "/v1/collections/a/count", 200, "application/json", `{"live":1,"expired":0}`, true},
		{"GET", "/v1/collections/a/count", 200, "application/json", `{"live":"1","expired":0}`, false},
		{"GET", "/v1/collections/a/count", 200, "application/json", `{"live":1,"expired":0,"x":1}`, false},
		{"GET", "/v1/collections/a/count", 200, "application/json", `{"live":1,"expired":0`, false},
		{"GET", "/v1/collections/a/count", 200, "text/plain", `{"live":1,"expired":0}`, false},
		{"GET", "/v1/collections/a/count", 404, "application/json", `{}`, false},
		{"GET", "/v1/else", 200, "application/json", `{}`, false},
		{"DELETE", "/v1/collections/a", 204, "", "", true},
		{"DELETE", "/v1/collections/a", 204, "", "x", false},
		{"POST", "/v1/collections/a/documents", 200, linesType,
			"{\"line\":1,\"status\":204}\n{\"status\":503,\"error\":\"x\"}\n", true},
		{"POST", "/v1/collections/a/documents", 200, linesType,
			"{\"line\":1,\"status\":204}\n{\"line\":0,\"status\":204}\n", false},
		{"GET", "/v1/events", 200, "text/event-stream", `{"reason":"x"}`, true},
		{"GET", "/v1/events", 200, "text/event-stream",
			`{"id":"1","collection":"a","etag":"1","ts":"2026-11-22T08:00:00Z","ttl":1,"expiredAt":"2026-11-22T08:00:01Z"}`,
			true},
		{"GET", "/v1/events", 200, "text/event-stream",
			`{"id":"1","collection":"a","etag":"1","ts":"yesterday","ttl":1,"expiredAt":"2026-11-22T08:00:01Z"}`, false},
		{"PUT", "/v1/collections/a/documents/a%2Fb", 503, "application/problem+json",
			`{"type":"about:blank","title":"x","status":503,"detail":"x","code":"unavailable"}`, true},
		{"PUT", "/v1/collections/a/documents/a%2Fb", 503, "application/problem+json", `{"status":503}`, false},
	} {
		req, err := http.NewRequest(c.method, "http://127.0.0.1"+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.media}}}
		if why := describe(req, resp, []byte(c.body)); (why == "") != c.described {
			t.Errorf("%s %s: %d %s %s: %q", c.method, c.path, c.status, c.media, c.body, why)
		}
	}
}
