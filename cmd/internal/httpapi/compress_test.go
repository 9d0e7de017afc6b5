package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// zipped sends a request as a client that accepts gzip and decodes nothing by itself.
func (r *rig) zipped(method, path string, headers ...string) (a answer, compressed bool) {
	r.t.Helper()
	a = r.raw(method, path, append([]string{"Accept-Encoding", "gzip"}, headers...)...)
	if a.Header.Get("Content-Encoding") != "gzip" {
		return a, false
	}
	in, err := gzip.NewReader(strings.NewReader(a.body))
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		r.t.Fatal(err)
	}
	if len(text) < len(a.body) {
		r.t.Errorf("%s %s: %d bytes, compressed %d", method, path, len(text), len(a.body))
	}
	a.body = string(text)
	return a, true
}

// TestCompressed: lists, descriptions, pages and the outcomes of an import are compressed for clients that
// accept it. Documents and configurations are not, so that their etags go on working.
func TestCompressed(t *testing.T) {
	r := start(t)
	text := strings.Repeat(`{"some":"text"},`, 200)
	for i := range 30 {
		r.do("PUT", fmt.Sprintf("/collections/orders/documents/%d", i), fmt.Sprintf(`{"text":[%s%d]}`, text, i)).want(t, 201)
		r.do("PUT", fmt.Sprintf("/collections/c%d", i), `{"defaultTtl":60}`).want(t, 200)
	}
	root := *r
	root.base = strings.TrimSuffix(r.base, "/v1")
	for _, path := range []string{"/v1/collections", "/v1/collections/orders/documents",
		"/v1/collections/orders/documents?ids=1,2", "/v1/collections/orders/forecast?buckets=100", "/openapi.json", "/",
		"/console/collections/orders"} {
		a, compressed := root.zipped("GET", path)
		plain := root.raw("GET", path).want(t, 200)
		if !compressed || a.StatusCode != 200 || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %s, %v", path, a.Status, a.Header)
		}
		if strings.HasPrefix(path, "/v1") && !strings.Contains(path, "forecast") && a.body != plain.body {
			t.Errorf("%s: compressed it has %d bytes, else %d", path, len(a.body), len(plain.body))
		}
		for _, a := range []answer{a, plain} {
			if !slices.Contains(a.Header.Values("Vary"), "Accept-Encoding") || a.Header.Get("Etag") != "" {
				t.Errorf("%s: %v", path, a.Header)
			}
		}
		root.raw("GET", path, "Accept-Encoding", "gzip;q=0, zstd, br").want(t, 200).header(t, "Content-Encoding", "")
	}
	for _, path := range []string{"/v1/collections/orders/documents/1", "/v1/collections/c1",
		"/v1/collections/orders/count", "/healthz"} {
		a, compressed := root.zipped("GET", path)
		if compressed || a.StatusCode != 200 {
			t.Errorf("%s: %s, %v", path, a.Status, a.Header)
		}
		if tag := a.Header.Get("Etag"); tag != "" {
			root.raw("GET", path, "Accept-Encoding", "gzip", "If-None-Match", tag).want(t, 304)
			root.raw("GET", path, "Accept-Encoding", "gzip", "If-None-Match", "W/"+tag).want(t, 304)
			root.do("PATCH", path, "{}", "If-Match", tag).want(t, 200)
		}
	}
	stream := r.follow("/events?since=1h", "Accept-Encoding", "gzip")
	if stream.resp.Header.Get("Content-Encoding") != "" {
		t.Errorf("a stream of events: %v", stream.resp.Header)
	}
}

// TestCompressedImport: the outcomes of an import come while its lines do, also compressed.
func TestCompressedImport(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	body, lines := io.Pipe()
	context.AfterFunc(ctx, func() { _ = lines.CloseWithError(context.Canceled) })
	req, err := http.NewRequestWithContext(ctx, "POST", r.base+"/collections/orders/documents", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", linesType)
	req.Header.Set("Accept-Encoding", "gzip")
	sent := make(chan error, 1)
	go func() { _, err := io.WriteString(lines, "{\"id\":\"1\"}\n"); sent <- err }()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := <-sent; err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v, %v", err, resp.Header)
	}
	in, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len(`{"line":1,"id":"1",`))
	if _, err := io.ReadFull(in, first); err != nil || string(first) != `{"line":1,"id":"1",` {
		t.Fatalf("while lines come: %q, %v", first, err)
	}
	if _, err := io.WriteString(lines, "{\"id\":\"2\"}\n"); err != nil {
		t.Fatal(err)
	}
	_ = lines.Close()
	rest, err := io.ReadAll(in)
	if err != nil || !bytes.Contains(rest, []byte(`{"line":2,"id":"2",`)) {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestHead: HEAD has the headers of GET on every route, and no body.
func TestHead(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`).want(t, 200)
	r.do("PUT", "/collections/orders/documents/1", `{"text":"`+strings.Repeat("x", 2000)+`"}`).want(t, 201)
	root := *r
	root.base = strings.TrimSuffix(r.base, "/v1")
	for _, path := range []string{
		"/v1/collections", "/v1/collections/orders", "/v1/collections/orders/count", "/v1/collections/orders/documents",
		"/v1/collections/orders/documents?ids=1,2",
		"/v1/collections/orders/documents/1", "/v1/collections/orders/documents/2",
		"/v1/collections/orders/documents?limit=0", "/v1/nothing", "/openapi.json", "/healthz", "/readyz", "/console/system",
	} {
		get, head := root.raw("GET", path), root.raw("HEAD", path)
		if head.StatusCode != get.StatusCode || head.body != "" {
			t.Errorf("HEAD %s: %s, and of GET %s; %q", path, head.Status, get.Status, head.body)
		}
		names := []string{"Etag", "Last-Modified", "Lapse-Expires-At", "Sunset", "Content-Type", "Cache-Control", "Vary"}
		if strings.HasPrefix(path, "/v1") && get.StatusCode == 200 || path == "/openapi.json" {
			names = append(names, "Content-Length")
		}
		for _, name := range names {
			head.header(t, name, get.Header.Get(name))
		}
	}
	began := time.Now()
	if root.raw("HEAD", "/v1/events").want(t, 200); time.Since(began) > limit/2 {
		t.Error("HEAD of a stream follows it")
	}
}
