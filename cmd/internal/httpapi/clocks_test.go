package httpapi_test

import (
	"testing"
	"time"
)

// TestClocks: the headers of the clock of a document, and what a gateway itself has to refuse.
func TestClocks(t *testing.T) {
	r := start(t)
	const collection, path, many = "/collections/orders", "/collections/orders/documents/1",
		"/collections/orders/documents"
	r.do("PUT", collection, `{"defaultTtl":3600,"minTtl":60,"warnBefore":[300,60]}`).want(t, 200)
	r.do("PATCH", collection, `{"slideOnRead":true,"minTtl":null}`).want(t, 200)
	r.do("GET", collection, "").want(t, 200,
		`"defaultTtl":3600,"indexingMode":"consistent","warnBefore":[300,60],"slideOnRead":true,`)
	r.do("PATCH", collection, `{"maxTtl":60}`).want(t, 400, "defaultTtl 3600 is greater than maxTtl 60")

	at := time.Now().Add(2 * time.Hour).UTC().Format("2006-01-02T15:04:05.000Z")
	r.do("PUT", path, `{}`, "If-None-Match", "*", "Lapse-Expires-At", at).want(t, 201, `"expiresAt":"`+at+`"`)
	r.do("POST", path+"/touch", "").want(t, 200, `"expiresAt":"`+at+`"`)
	r.do("PATCH", path, `{"a":1}`).want(t, 200).header(t, "Lapse-Expires-At", at)
	r.do("GET", path, "").want(t, 200, `"a":1`).header(t, "Lapse-Expires-At", at)
	later := time.Now().Add(3 * time.Hour).UTC().Format("2006-01-02T15:04:05.000Z")
	r.do("POST", path+"/touch", "", "Lapse-Expires-At", later).want(t, 200, `"expiresAt":"`+later+`"`)
	r.do("PATCH", path, `{"ttl":5}`, "Lapse-Expires-At", at).want(t, 400, "the body has ttl 5")

	first := r.do("PUT", path, `{}`).want(t, 200).Header.Get("Lapse-Expires-At")
	r.do("PUT", path, `{"b":1}`, "Lapse-Clock", "keep").want(t, 200).header(t, "Lapse-Expires-At", first)
	r.do("PATCH", path, `{"b":2}`, "lapse-clock", "keep").want(t, 200).header(t, "Lapse-Expires-At", first)
	r.do("PUT", path, `{}`, "Lapse-Clock", "kept").want(t, 400, "use keep")

	// A clock that begins earlier.
	ago := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	begin, ends := ago.Format("2006-01-02T15:04:05.000Z"), ago.Add(10*time.Hour).Format("2006-01-02T15:04:05.000Z")
	begun := path[:len(path)-1] + "begun"
	r.do("PUT", begun, `{"ttl":36000}`, "If-None-Match", "*", "Lapse-Clock", begin).want(t, 201).header(t,
		"Lapse-Expires-At", ends)
	r.do("PATCH", begun, `{"a":1}`, "Lapse-Clock", begin).want(t, 200).header(t, "Lapse-Expires-At", ends)
	r.do("POST", begun+"/touch", "", "Lapse-Clock", begin).want(t, 200).header(t, "Lapse-Expires-At", ends)
	r.do("GET", many+"?ids=begun", "").want(t, 200, `"clock":"`+begin+`"`)
	r.do("PUT", begun, `{"ttl":60}`, "Lapse-Clock", begin).want(t, 200)
	r.do("GET", begun, "").want(t, 404)
	r.do("PUT", begun, `{}`, "Lapse-Clock", at).want(t, 400, "use an instant that is not after the stamp")
	line := `{"lapse":1,"id":"line","clock":"` + begin + `","document":{ "ttl":36000 }}`
	r.do("POST", many, line, "Content-Type", "application/x-ndjson").want(t, 200, `"status":201`, `"expiresAt":"`+ends+`"`)
	r.do("GET", path[:len(path)-1]+"line", "").want(t, 200, `{ "ttl":36000 }`)

	r.do("PUT", path, `{"ttl":36000}`, "Lapse-Not-After", at).want(t, 200, `"expiresAt":"`+at+`"`)
	r.do("POST", path+"/touch", "").want(t, 200, `"expiresAt":"`+at+`"`)
	r.do("PATCH", path, `{"ttl":null}`).want(t, 200).header(t, "Lapse-Expires-At", at)
	r.do("PUT", path, `{}`, "Lapse-Not-After", at).want(t, 400, "header Lapse-Not-After limits a ttl")
	r.do("PATCH", path, `{"ttl":5}`, "Lapse-Not-After", at).want(t, 400, "only allowed on upsert, create and replace")
	r.do("PUT", path, `{"ttl":5}`, "Lapse-Not-After", at, "Lapse-Expires-At", at).want(t, 400, "exclude each other")
	r.do("PUT", path, `{"ttl":5}`, "Lapse-Not-After", "").want(t, 400, "Lapse-Not-After is empty")
	r.do("POST", many, `{"id":"x"}`, "Content-Type", "application/x-ndjson", "Lapse-Not-After", at).want(t, 400,
		"no meaning for many documents at once")

	for _, c := range [][3]string{
		{"PUT", collection, `{}`}, {"DELETE", collection, ``}, {"DELETE", path, ``},
	} {
		r.do(c[0], c[1], c[2], "Lapse-Expires-At", at).want(t, 400, "Lapse-Expires-At")
		r.do(c[0], c[1], c[2], "Lapse-Clock", "keep").want(t, 400, "Lapse-Clock")
	}
	r.do("POST", many, `{"id":"x"}`, "Content-Type", "application/x-ndjson", "Lapse-Clock", "keep").want(t, 400,
		"no meaning for many documents at once")
	r.do("POST", path+"/touch", "", "Lapse-Clock", "keep").want(t, 400, "only allowed on upsert, replace and patch")
	r.do("PUT", path, `{}`, "If-None-Match", "*", "Lapse-Clock", "keep").want(t, 400, "no meaning on a create")
	r.do("PUT", path, `{}`, "Lapse-Expires-At", "").want(t, 400, "Lapse-Expires-At is empty")
	r.do("PUT", path, `{}`, "Lapse-Clock", "").want(t, 400, "Lapse-Clock is empty")

	// A request with the same key and another deadline is another one.
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", "Lapse-Expires-At", at).want(t, 200)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", "Lapse-Expires-At", at).want(t, 200, at)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", "Lapse-Expires-At", later).want(t, 422)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k").want(t, 422)
	r.do("PUT", path, `{"ttl":60}`, "Idempotency-Key", "l", "Lapse-Not-After", at).want(t, 200)
	r.do("PUT", path, `{"ttl":60}`, "Idempotency-Key", "l", "Lapse-Not-After", later).want(t, 422)
	r.do("PUT", path, `{"ttl":60}`, "Idempotency-Key", "l").want(t, 422)
}
