package access

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// route answers with its name, and with the names in the path.
func route(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %q %q", name, r.PathValue("collection"), r.PathValue("id"))
	})
}

// site has routes of every form that lapse has.
func site() *Router {
	r := NewRouter()
	for _, path := range []string{"/", "/v1/collections", "/v1/collections/{collection}",
		"/v1/collections/{collection}/documents",
		"/v1/collections/{collection}/documents/{id}", "/v1/collections/{collection}/documents/{id}/touch",
		"/console/collections/", "/console/documents/", "/console/documents/{id}"} {
		r.Handle("GET", path, route("GET"))
		r.Handle("DELETE", path, route("DELETE"))
	}
	r.Handle("POST", "/v1/post", route("POST"))
	r.Refuse("/v1", func(w http.ResponseWriter, _ *http.Request, p *Problem) {
		w.WriteHeader(p.Status)
		_, _ = fmt.Fprint(w, "api")
	})
	r.Refuse("", func(w http.ResponseWriter, _ *http.Request, p *Problem) {
		w.WriteHeader(p.Status)
		_, _ = fmt.Fprint(w, "console")
	})
	return r
}

// ask sends a request as it comes from a connection; nil if net/http refuses it.
func ask(method, path string) *httptest.ResponseRecorder {
	text := method + " " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil || req.RequestURI != path {
		return nil
	}
	w := httptest.NewRecorder()
	site().ServeHTTP(w, req)
	return w
}

// TestPaths: a path is taken as it was sent, and each of its segments is decoded once.
func TestPaths(t *testing.T) {
	const document = "/v1/collections/c/documents"
	for _, c := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"DELETE", document + "/1", 200, `DELETE "c" "1"`},
		{"HEAD", document + "/1", 200, ""},
		{"DELETE", document + "/%2E%2E", 200, `DELETE "c" ".."`},
		{"DELETE", document + "/%2e", 200, `DELETE "c" "."`},
		{"DELETE", document + "/%2F", 200, `DELETE "c" "/"`},
		{"DELETE", document + "/%2F%2F", 200, `DELETE "c" "//"`},
		{"DELETE", document + "/a%2Fb/touch", 200, `DELETE "c" "a/b"`},
		{"DELETE", document + `/a%2Fb"`, 200, `DELETE "c" "a/b\""`},
		{"DELETE", document + "/%252E%252E", 200, `DELETE "c" "%2E%2E"`},
		{"DELETE", document + "/a+b%20c", 200, `DELETE "c" "a+b c"`},
		{"DELETE", document + "/..?x=/", 400, "api"},
		{"DELETE", document + "/.", 400, "api"},
		{"DELETE", document + "/", 400, "api"},
		{"DELETE", document + "/../touch", 400, "api"},
		{"DELETE", document + "//touch", 400, "api"},
		{"DELETE", "/v1/collections/../documents/1", 400, "api"},
		{"DELETE", "/v1/collections//documents/1", 400, "api"},
		{"DELETE", document + "/1/..", 404, "api"},
		{"DELETE", document + "/../..", 404, "api"},
		{"DELETE", "/v1/collections/c/./documents/1", 404, "api"},
		{"DELETE", "/v1/./collections/c", 404, "api"},
		{"DELETE", "//v1/collections/c", 404, "console"},
		{"DELETE", "/./v1/collections/c", 404, "console"},
		{"DELETE", "/x/../v1/collections/c", 404, "console"},
		{"DELETE", "http://127.0.0.1/v1/collections/c", 200, `DELETE "c" ""`},
		{"DELETE", "http://127.0.0.1", 200, `DELETE "" ""`},
		{"GET", "/", 200, `GET "" ""`},
		{"GET", "//", 404, "console"},
		{"GET", "/console/documents/", 200, `GET "" ""`},
		{"GET", "/console/documents/%2F", 200, `GET "" "/"`},
		{"GET", "/console/documents/..", 400, "console"},
		{"GET", "/console/collections", 404, "console"},
		{"GET", "/v1", 404, "api"},
		{"GET", "/v1/", 404, "api"},
		{"GET", "/v1/post", 405, "api"},
		{"POST", "/v1/collections", 405, "api"},
		{"OPTIONS", "*", 404, "console"},
	} {
		w := ask(c.method, c.path)
		if w == nil {
			t.Fatalf("%s %s: net/http refuses it", c.method, c.path)
		}
		if body := w.Body.String(); w.Code != c.status || body != c.body && c.method != "HEAD" {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, body, c.status, c.body)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", c.method, c.path, w.Header())
		}
		if allow := w.Header().Get("Allow"); (allow != "") != (c.status == 405) {
			t.Errorf("%s %s: Allow: %q", c.method, c.path, allow)
		}
	}
	if got := ask("PUT", document+"/1").Header().Get("Allow"); got != "DELETE, GET, HEAD" {
		t.Errorf("Allow: %q", got)
	}
	w := httptest.NewRecorder()
	NewRouter().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if w.Code != 404 || !strings.Contains(w.Body.String(), NoSuchRoute) {
		t.Errorf("without routes: %d %s", w.Code, w.Body)
	}
}

// FuzzPaths: no path leads to another, and a request reaches a collection or a document only by
// its own name. The oracle decodes the text of the request by itself.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{"/", "//", "/v1/collections/c/documents/..", "/v1/collections/c/documents/%2E%2E",
		"/v1/collections/c/documents/%2F?x=1",
		"/v1/collections/c/documents/a%2Fb\"", "/v1//collections/c", "/v1/collections/./c/documents/1/touch",
		"/console/documents/", "*", "http://h/v1/collections/c"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		w := ask("DELETE", path)
		if w == nil || !strings.HasPrefix(path, "/") {
			return
		}
		sent, _, _ := strings.Cut(path, "?")
		segments := strings.Split(sent, "/")[1:]
		for i, s := range segments {
			if i > 1 && (s == "" || s == "." || s == "..") {
				segments[i] = "" // no name
			} else {
				segments[i] = decode(s)
			}
		}
		at := func(i int) string { return segments[i] }
		want, body := 404, ""
		names := func(values ...string) {
			want, body = 200, fmt.Sprintf("DELETE %q %q", values[0], values[1])
			for i := 2; i < len(values); i++ {
				if values[i] == "" {
					want = 400
				}
			}
		}
		switch {
		case len(segments) == 1 && at(0) == "":
			names("", "")
		case len(segments) == 3 && at(0) == "console" && at(1) == "documents" && strings.HasSuffix(sent, "/"):
			names("", "")
		case len(segments) == 3 && at(0) == "console" && at(1) == "documents":
			names("", at(2), at(2))
		case len(segments) == 3 && at(0) == "console" && at(1) == "collections" && strings.HasSuffix(sent, "/"):
			names("", "")
		case len(segments) < 2 || at(0) != "v1" || at(1) != "collections":
			if len(segments) == 2 && at(0) == "v1" && at(1) == "post" {
				want = 405
			}
		case len(segments) == 2:
			names("", "")
		case len(segments) == 3:
			names(at(2), "", at(2))
		case at(3) != "documents":
		case len(segments) == 4:
			names(at(2), "", at(2))
		case len(segments) == 5, len(segments) == 6 && at(5) == "touch":
			names(at(2), at(4), at(2), at(4))
		}
		if w.Code != want || want == 200 && w.Body.String() != body {
			t.Errorf("%q: %d %s, want %d %s", path, w.Code, w.Body, want, body)
		}
	})
}

// decode decodes a segment once.
func decode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		var c byte
		if s[i] == '%' {
			_, _ = fmt.Sscanf(s[i+1:i+3], "%02x", &c)
			i += 2
		} else {
			c = s[i]
		}
		b.WriteByte(c)
	}
	return b.String()
}
