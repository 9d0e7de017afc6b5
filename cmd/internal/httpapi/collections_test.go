package httpapi_test

import (
	"crypto/rand"
	"net/http"
	"sync"
	"testing"
)

// TestCollections: configure, change, read and drop.
func TestCollections(t *testing.T) {
	r := start(t)
	const path = "/collections/orders"
	unset := r.do("GET", path, "").want(t, 200, `"defaultTtl":null`, `"indexingMode":"consistent"`)
	unset.header(t, "Etag", "")
	r.do("PATCH", path, `{"defaultTtl":60}`).want(t, 200)
	first := r.do("GET", path, "").want(t, 200, `"defaultTtl":60`).Header.Get("Etag")
	r.do("GET", path, "", "If-None-Match", first).want(t, 304)
	r.do("GET", path, "", "If-None-Match", "x").want(t, 400, "If-None-Match")
	r.do("PATCH", path, `{"indexingMode":"lazy"}`, "If-Match", first).want(t, 200)
	r.do("PATCH", path, `{"defaultTtl":1}`, "If-Match", first).want(t, 412)
	r.do("GET", path, "").want(t, 200, `"defaultTtl":60`, `"indexingMode":"lazy"`)
	r.do("PATCH", path, `{"defaultTtl":null}`).want(t, 200)
	r.do("GET", path, "").want(t, 200, `"defaultTtl":null`, `"indexingMode":"lazy"`)
	r.do("PUT", path, `{"defaultTtl":0}`).want(t, 400, "0")
	r.do("PATCH", path, `{"x":1}`).want(t, 400, `x`)
	r.do("PATCH", path, `[]`).want(t, 400)
	r.do("PUT", path, `{}`, "If-None-Match", "*").want(t, 400)
	second := r.do("PUT", path, `{"defaultTtl":3600}`).want(t, 200).Header.Get("Etag")
	r.do("PUT", path+"/documents/1", `{}`).want(t, 201)
	r.do("GET", "/collections", "").want(t, 200, `"name":"orders"`, `"live":1`)
	r.do("GET", path+"/forecast?within=2h&buckets=2", "").want(t, 200, `"count":1`)
	r.do("GET", path+"/forecast?defaultTtl=1", "").want(t, 200, `"atOnce":`)
	for _, query := range []string{"within=0s", "within=x", "buckets=0", "defaultTtl=0", "x=1"} {
		r.do("GET", path+"/forecast?"+query, "").want(t, 400)
	}
	r.do("DELETE", path, "", "If-Match", first).want(t, 412)
	r.do("DELETE", path, "", "If-Match", second).want(t, 204)
	r.do("GET", path+"/documents/1", "").want(t, 404)
}

// TestDropOfNothing: a collection that does not exist is not found, with or without a key, and
// whether it was dropped before or was never there.
func TestDropOfNothing(t *testing.T) {
	r := start(t)
	const path, text = "/collections/orders", "collection orders does not exist"
	gone := func() {
		t.Helper()
		for _, headers := range [][]string{nil, {"If-Match", "*"}, {"If-Match", `"7"`}, {"Idempotency-Key", rand.Text()},
			{"Idempotency-Key", rand.Text(), "If-Match", `"7"`}} {
			r.do("DELETE", path, "", headers...).want(t, 404, `"code":"no-collection"`, text)
		}
	}
	gone()
	r.do("PUT", path+"/documents/1", `{}`).want(t, 201) // a collection need not be configured
	r.do("DELETE", path, "", "Idempotency-Key", "k").want(t, 204)
	r.do("DELETE", path, "", "Idempotency-Key", "k").want(t, 202, `"duplicate":true`)
	gone()
	r.do("PUT", path, `{}`).want(t, 200)
	r.do("DELETE", path, "").want(t, 204)
	gone()
}

// TestChangesOfAConfiguration: changes of different properties at the same time all count.
func TestChangesOfAConfiguration(t *testing.T) {
	r := start(t)
	const path = "/collections/orders"
	for range 10 {
		r.do("PUT", path, `{"defaultTtl":60}`).want(t, 200)
		var both sync.WaitGroup
		for _, patch := range []string{`{"defaultTtl":120}`, `{"indexingMode":"lazy"}`} {
			both.Go(func() { r.do("PATCH", path, patch).want(t, 200) })
		}
		both.Wait()
		r.do("GET", path, "").want(t, 200, `"defaultTtl":120`, `"indexingMode":"lazy"`)
	}
}

// TestPaths: what is not there, and methods that are not.
func TestPaths(t *testing.T) {
	r := start(t)
	for _, path := range []string{"/", "/x", "/collections/orders/x", "/collections/orders/documents/1/x"} {
		r.do("GET", path, "").want(t, 404, `"code":"no-such-route"`)
	}
	r.do("POST", "/collections", "").want(t, 405, "method-not-allowed").header(t, "Allow", "GET, HEAD")
	r.do("POST", "/collections/orders/documents/1", "{}").want(t, 405).header(t, "Allow", "DELETE, GET, HEAD, PATCH, PUT")
	r.do("PUT", "/collections/orders/documents/1?x=1", "{}").want(t, 400, "parameter")
	r.do("GET", "/collections/orders/documents/1?x=1", "").want(t, 400, "parameter")
}

// TestOrigins: a page of another site changes nothing, and reaches nothing by a name of its own.
func TestOrigins(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	r.do("PUT", path, `{}`, "Origin", "https://evil.example").want(t, 403, `"code":"cross-origin"`)
	r.do("PUT", path, `{}`, "Sec-Fetch-Site", "cross-site").want(t, 403)
	r.do("DELETE", path, "", "Sec-Fetch-Site", "same-site").want(t, 403)
	r.do("PUT", path, `{}`, "Sec-Fetch-Site", "same-origin").want(t, 201)
	r.do("GET", path, "", "Sec-Fetch-Site", "cross-site").want(t, 200)
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for host, status := range map[string]int{"rebound.example:7070": 421, "localhost:7070": 200, "[::1]:7070": 200,
		"127.0.0.1": 200} {
		req.Host = host
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != status {
			t.Errorf("host %s: %s, want %d", host, resp.Status, status)
		}
	}
}
