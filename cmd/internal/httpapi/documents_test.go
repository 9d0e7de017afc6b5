package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestADocument: the life of a document, with every header.
func TestADocument(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/42"
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`).want(t, 200, `"status":200`)
	const body = "{ \"item\":\"<tea> & \u00fc\",\t\"n\":1.0 }"
	made := r.do("PUT", path, body).want(t, 201, `"status":201`)
	made.header(t, "Location", "/v1/collections/orders/documents/42")
	made.header(t, "Cache-Control", "no-cache")

	got := r.do("GET", path, "").want(t, 200)
	if got.body != body {
		t.Errorf("got %q, want the bytes as they were written: %q", got.body, body)
	}
	got.header(t, "Content-Type", "application/json")
	got.header(t, "Cache-Control", "no-cache")
	for _, name := range []string{"Etag", "Lapse-Expires-At", "Sunset", "Last-Modified"} {
		if got.Header.Get(name) == "" || got.Header.Get(name) != made.Header.Get(name) {
			t.Errorf("%s: %q, and when it was written %q", name, got.Header.Get(name), made.Header.Get(name))
		}
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", got.Header.Get("Lapse-Expires-At"))
	if err != nil {
		t.Error(err)
	}
	got.header(t, "Sunset", at.Format(http.TimeFormat))
	got.header(t, "Last-Modified", at.Add(-time.Hour).Format(http.TimeFormat))

	head := r.do("HEAD", path, "").want(t, 200)
	head.header(t, "Etag", got.Header.Get("Etag"))
	head.header(t, "Content-Length", fmt.Sprint(len(body)))

	r.do("PATCH", path, `{"n":2,"ttl":-1}`).want(t, 200)
	never := r.do("GET", path, "").want(t, 200, `"n":2`)
	never.header(t, "Lapse-Expires-At", "")
	never.header(t, "Sunset", "")
	r.do("POST", path+"/touch", "").want(t, 200)
	r.do("PUT", path, `{}`).want(t, 200).header(t, "Location", "")
	r.do("DELETE", path, "").want(t, 204)
	r.do("GET", path, "").want(t, 404, `"code":"not-found"`).header(t, "Content-Type", "application/problem+json")
	for _, method := range []string{"DELETE", "PATCH"} {
		body := map[string]string{"PATCH": "{}"}[method]
		r.do(method, path, body).want(t, 404, `"code":"not-found"`)
	}
	r.do("POST", path+"/touch", "").want(t, 404)
}

// TestWarning: the header and the body of the answer warn of a ttl that will not count, and of a collection that was
// never configured.
func TestWarning(t *testing.T) {
	r := start(t)
	const path = "/collections/fresh/documents/1"
	const warning = "TTL is off in collection fresh, so this document will not expire: set its defaultTtl to -1 or to " +
		"a number of seconds (lapse config fresh --default-ttl -1)."
	const open = "collection fresh is not configured: its TTL is off, so no document in it expires: set its defaultTtl " +
		"to -1 or to a number of seconds (lapse config fresh --default-ttl -1)."
	for _, method := range []string{"PUT", "PATCH"} {
		a := r.do(method, path, `{"ttl":60}`)
		a.want(t, a.StatusCode, `"warning":"`+warning+`"`).header(t, "Lapse-Warning", warning)
	}
	a := r.do("PUT", path, `{"ttl":"é"}`).want(t, 200, `"warning":"ttl \"é\" is not valid: `)
	if got := a.Header.Get("Lapse-Warning"); !strings.HasPrefix(got, `ttl "?" is not valid: `) {
		t.Errorf("Lapse-Warning: %s", got)
	}
	for _, b := range outcomes(t, r.do("POST", "/collections/fresh/documents",
		"{\"id\":\"1\",\"ttl\":60}\n{\"id\":\"2\"}", "Content-Type", linesType).want(t, 200).body) {
		if b.Warning != map[string]string{"1": warning, "2": open}[b.ID] {
			t.Errorf("a line of an import: %+v", b)
		}
	}
	r.do("PUT", path, `{"ttl":-1}`).want(t, 200, `"warning":"`+open+`"`).header(t, "Lapse-Warning", open)
	r.do("PUT", "/collections/fresh", `{}`).want(t, 200).header(t, "Lapse-Warning", "")
	r.do("PUT", path, `{"ttl":-1}`).want(t, 200).header(t, "Lapse-Warning", "")
	r.do("PUT", path, `{"ttl":60}`).want(t, 200).header(t, "Lapse-Warning", warning)
	r.do("PUT", "/collections/fresh", `{"defaultTtl":-1}`).want(t, 200).header(t, "Lapse-Warning", "")
	r.do("PUT", path, `{"ttl":60}`).want(t, 200).header(t, "Lapse-Warning", "")
}

// TestG2_ExpiredIsNotFound: from its deadline on, a document is not found.
func TestG2_ExpiredIsNotFound(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	r.do("PUT", "/collections/orders", `{"defaultTtl":-1}`).want(t, 200)
	made := r.do("PUT", path, `{"ttl":1}`).want(t, 201)
	deadline, err := time.Parse(time.RFC3339Nano, made.Header.Get("Lapse-Expires-At"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the document expires", func() bool {
		got := r.do("GET", path, "")
		if came := time.Now(); got.StatusCode == 200 && got.Header.Get("Lapse-Expires-At") == "" {
			t.Fatalf("at %s: no deadline", came)
		}
		return got.StatusCode == 404
	})
	if early := time.Until(deadline); early > 0 {
		t.Errorf("not found %s before its deadline", early)
	}
	r.do("PUT", path, `{}`, "If-Match", "*").want(t, 412)
	r.do("PUT", path, `{}`, "If-None-Match", "*").want(t, 201)
}

// TestConditions: each condition on each method, met and not met.
func TestConditions(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	r.do("PUT", path, `{}`, "If-Match", "*").want(t, 412, `"code":"precondition-failed"`)
	r.do("PUT", path, `{}`, "If-Match", `"7"`).want(t, 412)
	r.do("DELETE", path, "", "If-Match", "*").want(t, 404)
	first := r.do("PUT", path, `{"n":1}`, "If-None-Match", "*").want(t, 201).Header.Get("Etag")
	r.do("PUT", path, `{"n":2}`, "If-None-Match", "*").want(t, 412, "precondition-failed")
	second := r.do("PUT", path, `{"n":2}`, "If-Match", first).want(t, 200).Header.Get("Etag")
	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		body := map[string]string{"DELETE": ""}[method]
		if method != "DELETE" {
			body = `{"n":3}`
		}
		r.do(method, path, body, "If-Match", first).want(t, 412)
		r.do(method, path, body, "If-Match", "W/"+second).want(t, 412)
		r.do(method, path, body, "If-Match", `"abc"`).want(t, 412)
		r.do(method, path, body, "If-Match", "17").want(t, 400, "in quotes")
		r.do(method, path, body, "If-Match", `"17", "18"`).want(t, 400, "2 etags")
		r.do(method, path, body, "If-None-Match", `"17"`).want(t, 400)
		r.do(method, path, body, "If-Unmodified-Since", "Sun, 22 Nov 2026 08:00:00 GMT").want(t, 400, "If-Match")
	}
	r.do("PATCH", path, `{}`, "If-None-Match", "*").want(t, 400)
	r.do("POST", path+"/touch", "", "If-Match", first).want(t, 412)
	r.do("GET", path, "", "If-Match", first).want(t, 412)
	r.do("GET", path, "", "If-Match", second).want(t, 200, `"n":2`)
	for _, none := range []string{second, "W/" + second, `"1", ` + second, "*"} {
		not := r.do("GET", path, "", "If-None-Match", none).want(t, 304)
		not.header(t, "Etag", second)
		not.header(t, "Cache-Control", "no-cache")
	}
	r.do("GET", path, "", "If-None-Match", first).want(t, 200)
	r.do("GET", path, "", "If-None-Match", "nonsense").want(t, 400)
	r.do("POST", path+"/touch", "", "If-Match", second).want(t, 200)
	r.do("DELETE", path, "", "If-Match", "*").want(t, 204)
}

// TestIDs: an id is any UTF-8 text, percent-encoded.
func TestIDs(t *testing.T) {
	r := start(t)
	for _, id := range []string{".", "..", "/", "//", "../..", "a/b", "a b", "a.b", "ü", "日本語", "%", "a%2Fb", "?x=1#y",
		"~:@+=,", "*", ">", "$", "\"", "\\", "\n", "..a", strings.Repeat("x", 255)} {
		escaped := url.PathEscape(id)
		if id == "." || id == ".." {
			escaped = strings.ReplaceAll(id, ".", "%2E")
		}
		path := "/collections/orders/documents/" + escaped
		made := r.do("PUT", path, `{"n":1}`).want(t, 201)
		if location, err := url.Parse(made.Header.Get("Location")); err != nil ||
			location.Path != "/v1/collections/orders/documents/"+id {
			t.Errorf("id %q: location %q: %v", id, made.Header.Get("Location"), err)
		}
		r.do("GET", path, "").want(t, 200, `{"n":1}`)
		r.do("POST", path+"/touch", "").want(t, 200)
		r.do("DELETE", path, "").want(t, 204)
	}
	for path, part := range map[string]string{
		"/collections/orders/documents/" + strings.Repeat("x", 256): "256 bytes",
		"/collections/orders/documents/%FF":                         "not UTF-8",
		"/collections/a.b/documents/1":                              "a.b",
		"/collections/a%2Fb/documents/1":                            "a/b",
		"/collections/" + strings.Repeat("x", 129):                  "129 bytes",
	} {
		r.do("GET", path, "").want(t, 400, `"code":"invalid"`, part)
	}
}

// TestBodies: media types, sizes and what belongs into no body.
func TestBodies(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	r.do("PUT", path, `{}`, "Content-Type", "application/json; charset=UTF-8").want(t, 201)
	for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "application/merge-patch+json",
		"application/json; charset=latin1", "nonsense/"} {
		r.do("PUT", path, `{}`, "Content-Type", media).want(t, 415, `"code":"media-type"`, "application/json")
	}
	r.do("PATCH", path, `{}`, "Content-Type", "application/json").want(t, 415,
		`the body is \"application/json\": send application/merge-patch+json, without a Content-Encoding`)
	r.do("PUT", path, `{}`, "Content-Encoding", "gzip").want(t, 415)
	r.do("POST", "/collections/orders/documents", `{}`, "Content-Type", "application/json").want(t, 415, "x-ndjson")
	for _, body := range []string{`[]`, `{`, `{"id":"2"}`, "\xff"} {
		r.do("PUT", path, body).want(t, 400, `"code":"invalid"`)
	}
	r.do("PUT", path, "").want(t, 400)
	r.do("DELETE", path, "x").want(t, 400, "no body")
	r.do("POST", path+"/touch", "x").want(t, 400, "no body")
	large := `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	r.do("PUT", path, large).want(t, 413, `"code":"too-large"`, "1040384 bytes")
	most := `{"x":"` + strings.Repeat("x", 1<<20-8<<10-8) + `"}`
	r.do("PUT", path, most).want(t, 200)
	if got := r.do("GET", path, ""); got.body != most {
		t.Errorf("the largest document came back with %d bytes of %d", len(got.body), len(most))
	}
	r.do("PUT", "/collections/orders", `{"defaultTtl":60}`).want(t, 200)
	r.do("PUT", path, `{"ttl":0}`).want(t, 400, "ttl 0 is not valid")
}

// TestRespondAsync: a client that does not wait gets 202 once the write is durable.
func TestRespondAsync(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	made := r.do("PUT", path, `{"n":1}`, "Prefer", "wait=1, Respond-Async; x=y").want(t, 202, `"status":202`, `"seq":"`)
	made.header(t, "Preference-Applied", "respond-async")
	made.header(t, "Location", "/v1"+path)
	eventually(t, "the write is applied", func() bool { return r.do("GET", path, "").StatusCode == 200 })
	got := r.do("GET", path, "")
	if etag := strings.Trim(got.Header.Get("Etag"), `"`); !strings.Contains(made.body, `"seq":"`+etag+`"`) {
		t.Errorf("etag %s, and the answer was %s", etag, made.body)
	}
	r.do("PUT", path, `{"n":1}`, "Prefer", "respond-async", "If-None-Match", "*").want(t, 202)
	if e := r.follow("/rejections?since=1h").next(); !strings.Contains(e.data, `"code":409`) {
		t.Errorf("the rejection is %s", e.data)
	}
}

// TestLists: pages of documents.
func TestLists(t *testing.T) {
	r := start(t)
	var lines strings.Builder
	for i := range 250 {
		fmt.Fprintf(&lines, "{\"id\":\"%d\"}\n", i)
	}
	r.do("POST", "/collections/orders/documents", lines.String(), "Content-Type", "application/x-ndjson").want(t, 200)
	found := 0
	for path := "?limit=100"; path != ""; {
		page := r.do("GET", "/collections/orders/documents"+path, "").want(t, 200)
		found += strings.Count(page.body, `"document":`)
		_, rest, more := strings.Cut(page.body, `"continuation":"`)
		path = ""
		if more {
			continuation, _, _ := strings.Cut(rest, `"`)
			path = "?limit=100&continuation=" + url.QueryEscape(continuation)
		}
	}
	if found != 250 {
		t.Errorf("%d documents, want 250", found)
	}
	r.do("GET", "/collections/orders/count", "").want(t, 200, `"live":250`)
	for query, part := range map[string]string{
		"?limit=0": "from 1 to 1000", "?limit=1001": "from 1 to 1000", "?limit=x": "from 1 to 1000",
		"?continuation=x": "continuation", "?x=1": "not known", "?limit=1&limit=2": "2 times",
	} {
		r.do("GET", "/collections/orders/documents"+query, "").want(t, 400, part)
	}
}
