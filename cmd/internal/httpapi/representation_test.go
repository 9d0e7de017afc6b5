package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/httpapi"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
)

// TestRepresentation: a client that prefers it gets the document of its write, with the headers of GET.
func TestRepresentation(t *testing.T) {
	r := start(t)
	const path, prefer, whole = "/collections/orders/documents/a%2Cb", "Prefer", "return=representation"
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`, prefer, whole).want(t, 200, `"status":200`).header(t,
		"Preference-Applied", "")
	same := func(a answer, body string) {
		t.Helper()
		a.header(t, "Preference-Applied", whole)
		a.header(t, "Content-Location", "/v1"+path)
		got := r.do("GET", path, "").want(t, 200)
		if a.body != body || got.body != body {
			t.Errorf("the answer is %q, and GET has %q, want %q", a.body, got.body, body)
		}
		for _, name := range []string{"Etag", "Last-Modified", "Lapse-Expires-At", "Sunset", "Content-Type",
			"Cache-Control"} {
			a.header(t, name, got.Header.Get(name))
		}
	}
	made := r.do("PUT", path, `{ "n": 1 }`, prefer, "wait=10, return=representation; x=y", "If-None-Match",
		"*").want(t, 201)
	same(made, `{ "n": 1 }`)
	made.header(t, "Location", "/v1"+path)
	same(r.do("PATCH", path, `{"n":2,"ttl":-1}`, prefer, `Return="representation"`).want(t, 200), `{"n":2,"ttl":-1}`)
	same(r.do("POST", path+"/touch", "", prefer, whole).want(t, 200), `{"n":2,"ttl":-1}`)
	same(r.do("PUT", path, `{"k":1}`, prefer, whole, "Idempotency-Key", "k").want(t, 200), `{"k":1}`)
	same(r.do("PUT", path, `{"k":1}`, prefer, whole, "Idempotency-Key", "k").want(t, 200), `{"k":1}`)
	large := `{"text":"` + strings.Repeat("x", 200<<10) + `"}`
	same(r.do("PUT", path, large, prefer, whole).want(t, 200), large)

	r.do("PUT", path, `{}`, prefer, "return=minimal, return=representation").want(t, 200, `"status":200`).header(t,
		"Preference-Applied", "return=minimal")
	for _, other := range []string{"", "return", "return=all", "returns=representation"} {
		r.do("PUT", path, `{}`, prefer, other).want(t, 200, `"status":200`).header(t, "Preference-Applied", "")
	}
	r.do("PUT", path, `{}`, prefer, "respond-async, "+whole).want(t, 202, `"seq"`).header(t, "Preference-Applied",
		"respond-async")
	r.do("PUT", path, `{`, prefer, whole).want(t, 400).header(t, "Preference-Applied", "")
	r.do("PUT", "/collections/fresh/documents/1", `{"ttl":60}`, prefer, whole).want(t, 201, `{"ttl":60}`).header(t,
		"Lapse-Warning", "TTL is off in collection fresh, so this document will not expire: set its defaultTtl to -1 or "+
			"to a number of seconds (lapse config fresh --default-ttl -1).")
	r.do("DELETE", path, "", prefer, whole).want(t, 204).header(t, "Preference-Applied", "")
}

// TestNoRepresentation: a document that has gone or changed since the write is not the answer to it. The
// write took effect, and the answer says so, and why it has no document.
func TestNoRepresentation(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	var between func(ctx context.Context) error
	srv := httptest.NewServer(newAPI(t, r, httpapi.Limits{}, 0, func(o *httpapi.Options) {
		read := o.GetMany
		o.GetMany = func(ctx context.Context, collection string, ids []string) ([]sink.Document, error) {
			if err := between(ctx); err != nil {
				return nil, err
			}
			return read(ctx, collection, ids)
		}
	}))
	defer srv.Close()
	here := &rig{t: t, base: srv.URL + "/v1", http: r.http}
	orders, err := client.Open[json.RawMessage](r.client(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`).want(t, 200)
	for why, then := range map[string]func(context.Context) error{
		"it has expired, or was removed": func(ctx context.Context) error { _, err := orders.Delete(ctx, "1"); return err },
		"it was changed since": func(ctx context.Context) error {
			_, err := orders.Upsert(ctx, "1", json.RawMessage(`{"other":true}`))
			return err
		},
		"it could not be read": func(context.Context) error { return errors.New("away") },
	} {
		between = then
		a := here.do("PUT", path, `{"mine":true}`, "Prefer", "return=representation")
		a.want(t, a.StatusCode, `"status":20`, `"etag":`, `"warning":"The answer is not the document: `+why)
		a.header(t, "Preference-Applied", "return=minimal")
		a.header(t, "Content-Location", "")
		if !strings.Contains(a.Header.Get("Lapse-Warning"), why) || strings.Contains(a.body, "mine") || a.StatusCode > 201 {
			t.Errorf("%s: %s, %v\n%s", why, a.Status, a.Header, a.body)
		}
	}
	// A write that has a warning already has both.
	between = func(context.Context) error { return errors.New("away") }
	here.do("PUT", "/collections/fresh/documents/1", `{}`, "Prefer", "return=representation").
		want(t, 201, `"warning":"collection fresh is not configured: `,
			`. The answer is not the document: it could not be read`)
}
