package console_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
)

// TestNoCollection: where no write makes a collection, the console makes one by its configuration, even by that with
// which it would begin, and says so on the page of one that does not exist. The examples are made too.
//
// Goes red if a page needs that the collection exists.
func TestNoCollection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(all+" read-write\n"+orders+" read-write orders,other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *serve.Options) { o.Processor.OpenCollections, o.HTTP.TokenFile = false, file })
	b := r.signedIn(t, all)
	first := b.get("/").want(200, "There are no collections yet")
	p := first.send("go-to", "name", "orders")
	p.want(200, "There is no such collection yet: its configuration makes it.", "Live 0")
	p.want(200, "nothing expires within", "There are no live documents.")
	p.without("drop-form", `id="new"`, "never configured")
	b.get("/console/live?collection=orders&kind=changes").want(200)
	const missing = "There is no collection orders: configure it first"
	b.get("/console/collections/orders/documents/1").want(404, missing)
	b.get("/console/collections/orders/new").send("edit-form", "id", "1").want(404, missing)
	r.signedIn(t, orders).get("/").want(200, "orders", "other").without("cannot be listed")

	for name, mode := range map[string]string{"orders": "none", "other": "off"} {
		form := b.get(b.get("/console/collections/" + name).hrefs("Change…")[0])
		form.send("configure-form", "mode", mode).want(200, "0 documents expire at once").send("save-form").
			want(200, "The configuration was saved", "Drop this collection").without("no such collection", "never configured")
		form = b.get("/console/collections/" + name + "/new")
		form.send("edit-form", "id", "1").want(200, "was created").without(`id="warning"`)
	}
	first.send("examples-form").want(200, "The examples were made", "Live 5")
	b.get("/").want(200, "examples", "orders", "other")
}
