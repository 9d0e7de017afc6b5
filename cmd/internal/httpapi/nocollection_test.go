package httpapi_test

import (
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
)

// TestNoCollection: a collection that was never configured is 404 on every route, with a code of its own and the
// command to run; a PATCH of its configuration makes it, and it is listed while it is empty.
//
// Goes red if a read of such a collection is empty, or a write makes it.
func TestNoCollection(t *testing.T) {
	r := start(t, func(o *serve.Options) { o.Processor.OpenCollections = false })
	const code, command = `"code":"no-collection"`, "lapse config orders"
	for _, path := range []string{"", "/count", "/forecast", "/documents", "/documents/1", "/documents?ids=1",
		"/documents?where=a%3D1"} {
		r.do("GET", "/collections/orders"+path, "").want(t, 404, code, command)
	}
	r.do("POST", "/collections/orders/query", `{"where":{"/a":1}}`).want(t, 404, code, command)
	r.do("PUT", "/collections/orders/documents/1", `{}`).want(t, 404, code, command)
	r.do("DELETE", "/collections/orders/documents/1", "").want(t, 404, code)
	r.do("DELETE", "/collections/orders", "").want(t, 404, code)
	r.do("PUT", "/collections/orders", `{}`).want(t, 200)
	r.do("PUT", "/collections/orders/documents/1", `{}`).want(t, 201)
	r.do("PUT", "/collections/orders/documents/2", `{}`, "Lapse-Target", "mail.send").want(t, 409,
		`"code":"undeliverable"`)
	r.do("DELETE", "/collections/orders", "").want(t, 204)
	r.do("PUT", "/collections/orders/documents/1", `{}`).want(t, 404, code)
}
