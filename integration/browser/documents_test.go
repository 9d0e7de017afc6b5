package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
)

// pathOf is the path of a document's page.
func pathOf(collection, id string) string {
	return "/console/collections/" + collection + "/documents/" + url.PathEscape(id)
}

// documents: a person creates a document, looks at it, changes it, renews it and deletes it.
func (r *rig) documents(t *testing.T) {
	c := r.collection(t, "documents", time.Hour)
	b := r.tab(t)
	b.expect("status of 40[04]")
	b.open("/")
	b.typeIn("#go-to", "documents")
	b.follow("the name", func() { b.press(kb.Enter) })
	b.glance("collection-empty")

	// Create: what is not JSON comes back with the reason, and nothing typed is lost.
	b.clickTo("#new")
	b.inspect("new")
	b.typeIn("#id", "42")
	b.typeIn("#body", `{"item":`)
	b.clickTo("#save")
	b.untilText("#body-error", "JSON")
	if id, body := b.value("#id"), b.value("#body"); id != "42" || body != `{"item":` {
		t.Errorf("the form comes back with id %q and body %q", id, body)
	}
	b.untilText("#body-error", "Line 1, column 9")
	if at := eval[int](b, `document.getElementById("body").selectionStart`); at != len(`{"item":`) {
		t.Errorf("the cursor is at %d", at)
	}
	b.glance("new-invalid")
	b.typeIn("#body", `{"item":"tea","ttl":600}`)
	b.clickTo("#save")
	b.untilText("#notice", "reated")
	b.untilText("h1", "42")
	b.untilText("#body", "\"item\": \"tea\",\n")
	b.untilText(".countdown", "in 9 min")
	b.inspect("document")
	first := b.text("#etag")

	// Raw, and the bytes.
	b.clickTo(`a[href$="view=raw"]`)
	b.untilText("#body", `{"item":"tea","ttl":600}`)
	b.glance("document-raw")
	b.clickTo("#bytes")
	if text := b.text("body"); !strings.Contains(text, `{"item":"tea","ttl":600}`) {
		t.Errorf("the bytes are %s", text)
	}

	// Edit.
	b.open(pathOf("documents", "42"))
	b.clickTo("#edit")
	b.inspect("edit")
	b.typeIn("#body", `{"item":"tea","ttl":1.5}`)
	b.clickTo("#save")
	b.untilText("#body-error", "1.5")
	b.typeIn("#body", `{"item":"coffee"}`)
	b.clickTo("#save")
	b.untilText("#body", `"item": "coffee"`)
	b.untilText(".countdown", "in 59 min")
	if now := b.text("#etag"); now == first {
		t.Errorf("an edit left the etag %s", now)
	}
	if got := get(t, c, "42"); got != `{"item":"coffee"}` {
		t.Errorf("the document is %s", got)
	}

	// Touch renews the deadline.
	before := b.text("#deadline time")
	harness.Until(t, harness.Limit, "the deadline moves", b.once(func() bool {
		b.clickTo("#touch")
		return b.text("#deadline time") != before
	}))
	b.untilText("#notice", "ouched")

	// In the list; found by its id; not found.
	b.open("/console/collections/documents")
	b.untilText(`tr[data-id="42"]`, "coffee")
	b.typeIn("#find-id", "42")
	b.follow("the id", func() { b.press(kb.Enter) })
	b.untilText("h1", "42")
	b.open("/console/collections/documents")
	b.typeIn("#find-id", "43")
	b.follow("the id", func() { b.press(kb.Enter) })
	b.untilText("h1", "not there")

	// A delete asks once more.
	b.open(pathOf("documents", "42"))
	b.click("#delete-ask summary")
	b.glance("document-delete")
	b.clickTo("#delete")
	b.untilText("#notice", "eleted")
	if n := b.count("#documents tr"); n != 0 {
		t.Errorf("after the delete the list has %d lines", n)
	}
}

// expiry: a document expires while a person looks at it, and is gone.
func (r *rig) expiry(t *testing.T) {
	c := r.collection(t, "expiry", client.Never)
	b := r.tab(t)
	b.expect("status of 404")
	for ttl := 2 * time.Second; b.count("#gone") == 0; ttl *= 2 { // until it lives longer than the page takes
		if ttl > time.Minute {
			t.Fatalf("no page is there within %s", ttl/2)
		}
		put(t, c, "soon", document{"item": "ice"}, client.TTL(ttl))
		b.open(pathOf("expiry", "soon"))
	}
	b.untilText("#gone", "has expired")
	b.untilText(".countdown", "expired")
	b.until("nothing can be done with it",
		`["#touch", "#edit", "#delete-form"].every(s => !document.querySelector(s).checkVisibility())`)
	b.glance("document-expired")
	b.do("reload", chromedp.Reload())
	b.untilText("h1", "not there")
	b.inspect("document-gone")
	b.clickTo(`main a[href*="/console/live"]`)
	b.untilText("#messages", "soon")
	b.clickTo("#messages tbody a") // its event
	b.untilText("h1", "soon")
	b.untilText("#body", "ice")
	b.inspect("event")

	// A newer version is told of, too.
	put(t, c, "changed", document{"n": 1}, client.TTL(time.Hour))
	b.open(pathOf("expiry", "changed"))
	put(t, c, "changed", document{"n": 2}, client.TTL(time.Hour))
	b.untilText("#gone", "newer version")
	b.do("reload", chromedp.Reload())
	b.untilText("#body", `"n": 2`)
}

// conflict: of two editors of a document, the second sees both versions, and decides.
func (r *rig) conflict(t *testing.T) {
	c := r.collection(t, "conflict", 0)
	put(t, c, "plan", document{"by": "nobody"})
	first, second := r.tab(t), r.tab(t)
	for _, b := range []*tab{first, second} {
		b.expect("status of 4(04|12)")
	}
	edit := func(b *tab, by string) {
		b.open(pathOf("conflict", "plan"))
		b.clickTo("#edit")
		b.typeIn("#body", fmt.Sprintf(`{"by":%q}`, by))
	}
	clash := func() {
		t.Helper()
		edit(first, "first")
		edit(second, "second")
		first.clickTo("#save")
		second.clickTo("#save")
		second.untilText("h1", "Conflict on plan")
		second.untilText("#theirs", `{"by":"first"}`)
		if mine := second.value("#mine"); mine != `{"by":"second"}` {
			t.Errorf("the version of the second editor comes back as %s", mine)
		}
	}
	clash()
	second.inspect("conflict")
	second.clickTo("#keep-theirs")
	second.untilText("#body", `"by": "first"`)

	clash()
	second.clickTo("#save-mine")
	second.untilText("#body", `"by": "second"`)
	if got := get(t, c, "plan"); got != `{"by":"second"}` {
		t.Errorf("the document is %s", got)
	}

	// What was deleted meanwhile can be made again.
	edit(second, "third")
	if _, err := c.Delete(t.Context(), "plan"); err != nil {
		t.Fatal(err)
	}
	second.clickTo("#save")
	second.untilText(".state", "gone")
	second.glance("conflict-gone")
	second.clickTo("#save-mine")
	second.untilText("#body", `"by": "third"`)

	// A touch and a delete of a version that is no longer there.
	put(t, c, "plan", document{"by": "fourth"})
	second.clickTo("#touch")
	second.untilText("h1", "Conflict on plan")
	second.glance("conflict-touch")
	second.clickTo("#touch-theirs")
	second.untilText("#body", `"by": "fourth"`)
	put(t, c, "plan", document{"by": "fifth"})
	second.click("#delete-ask summary")
	second.clickTo("#delete")
	second.untilText("h1", "Conflict on plan")
	second.glance("conflict-delete")
	second.clickTo("#delete-theirs")
	second.untilText("#notice", "eleted")

	// Somebody creates a document that has just been created.
	first.open("/console/collections/conflict/new")
	first.typeIn("#id", "new")
	first.typeIn("#body", `{"by":"first"}`)
	put(t, c, "new", document{"by": "second"})
	first.clickTo("#save")
	first.untilText(".state", "exists already")
	first.clickTo("#keep-theirs")
	first.untilText("#body", `"by": "second"`)
}

// hostile: ids and documents are text, whatever is in them.
func (r *rig) hostile(t *testing.T) {
	c, err := client.Open[json.RawMessage](r.client, "hostile")
	if err != nil {
		t.Fatal(err)
	}
	const script = `</code></pre><script>window.hacked=1</script><img src=x onerror=window.hacked=1>`
	ids := []string{
		script, `"'><b onmouseover=window.hacked=1>`, ".", "..", "a/b", "../../console/system", "%2F%00", "a b+c?d=e&f#g",
		"日本語 ü 😀", "{{.Data}}", strings.Repeat("long-", 51),
	}
	for _, id := range ids {
		if _, err := c.Upsert(t.Context(), id, json.RawMessage(`{"text":`+quote(script)+`}`)); err != nil {
			t.Fatal(err)
		}
	}
	b := r.tab(t)
	b.open("/console/collections/hostile")
	b.glance("collection-hostile")
	for _, id := range ids {
		b.open("/console/collections/hostile")
		n := eval[int](b, fmt.Sprintf(
			`[...document.querySelectorAll("#documents th a")].findIndex(a => a.textContent === %s)`, quote(id)))
		b.clickTo(fmt.Sprintf("#documents tbody tr:nth-child(%d) th a", n+1))
		if got := eval[string](b, `document.querySelector("h1").textContent`); got != id {
			t.Errorf("the page of %q has the heading %q", id, got)
		}
		b.untilText("#body", script)
	}
	b.glance("document-hostile")
	if eval[bool](b, `"hacked" in window`) {
		t.Error("a document has run a script")
	}
}
