package console_test

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// TestConsoleOfAFollower: the pages of a region that follows another one say so, and have no forms while that takes
// the writes. A form that is sent all the same leads there.
func TestConsoleOfAFollower(t *testing.T) {
	a, b, _ := natstest.StartJoined(t)
	first := start(t, func(o *serve.Options) { o.NATS = a })
	follower := start(t, func(o *serve.Options) { o.NATS, o.Follow, o.WritesTo = b, "a", first.base })
	first.put("orders", "a", `{"n":1}`)
	const banner = "This region follows the region “a”, which takes all writes"

	page := first.browse(t).get("/console/collections/orders/new").want(200)
	if strings.Contains(page.words, banner) {
		t.Error("the first region says that it follows another one")
	}
	from := page.form("edit-form")

	browser := follower.browse(t)
	browser.get("/console/system").want(200, banner, first.base)
	collection := browser.get("/console/collections/orders").want(200, banner)
	for _, id := range []string{"new", "drop-form"} {
		if collection.has(id) {
			t.Errorf("the page of a collection has #%s", id)
		}
	}
	from.values.Set("id", "b")
	browser.do("POST", from.action, from.values).want(421, banner, "send this one to "+first.base, "Nothing was changed")
}
