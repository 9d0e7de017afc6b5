package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
)

// empty: what a person sees first.
func (r *rig) empty(t *testing.T) {
	b := r.tab(t)
	b.open("/")
	b.untilText("main", "There are no collections yet")
	if got := b.text("#command"); !strings.Contains(got, "curl ") || !strings.Contains(got,
		"/v1/collections/examples/documents/tea") {
		t.Errorf("the command is %q", got)
	}
	eval[string](b, `document.getElementById("copy").className = "before"`)
	b.until("the page has refreshed itself, and still offers to copy",
		`(e => e.className !== "before" && !e.hidden && e.onclick !== null)(document.getElementById("copy"))`)
	b.inspect("overview-empty")
	b.clickTo(`a[href="/console/live"]`)
	b.untilText("#connection", "Live")
	b.glance("live-empty")
}

// overview: the collections, and the figures of the process, as they change.
func (r *rig) overview(t *testing.T) {
	c := r.collection(t, "overview", time.Hour)
	for i := range 20 {
		put(t, c, fmt.Sprint(i), document{"n": i})
	}
	b := r.tab(t)
	b.open("/")
	b.untilText("#health", "Ready")
	b.untilText(`tr[data-collection="overview"]`, "20")
	// They expire, and the page shows it without a reload.
	r.collection(t, "overview", time.Second)
	b.until("nothing is left", `document.querySelector('tr[data-collection="overview"] td').innerText === "0"`)
	b.untilText("#figures", " ms")
	b.inspect("overview")
	b.clickTo(`tr[data-collection="overview"] a`)
	b.untilText("h1", "overview")

	b.clickTo(`a[href="/console/system"]`)
	b.untilText("#streams", "LAPSE_EVENTS")
	b.untilText("#processes", "this one")
	b.inspect("system")

	b.expect("status of 404")
	b.open("/console/nowhere")
	b.untilText("main", "404")
	b.glance("not-found")
	b.clickTo(`main a[href="/"]`)
	b.untilText("h1", "Overview")
}

// history: what has happened is drawn.
func (r *rig) history(t *testing.T) {
	b := r.tab(t)
	b.open("/")
	b.until("four charts are drawn", `document.querySelectorAll("#history figure path").length >= 4`)
	b.inspect("overview-history")
	b.clickTo(`tr[data-collection="many"] a`)
	b.untilText("#history", "5,000 now")
	b.inspect("collection-history")
}

// many: a person pages through 5,000 documents, and sees each of them once.
func (r *rig) many(t *testing.T) {
	const n = 5000
	c := r.collection(t, "many", 24*time.Hour)
	batch, err := c.Batch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := batch.Upsert(t.Context(), fmt.Sprintf("document-%04d", i), document{"n": i,
			"ttl": 3600 + 120*(i%600)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := r.tab(t)
	b.open("/console/collections/many")
	b.untilText("#live-count", "5,000")
	b.inspect("collection")
	seen := make(map[string]int)
	look := func(ids []string) {
		for _, id := range ids {
			seen[id]++
		}
	}
	const shown = `[...%s.querySelectorAll("#documents tr[data-id]")].map(e => e.dataset.id)`
	look(eval[[]string](b, fmt.Sprintf(shown, "document")))
	for range 2 {
		b.clickTo(`a[rel="next"]`)
		look(eval[[]string](b, fmt.Sprintf(shown, "document")))
	}
	// The same links, without showing the other pages.
	look(eval[[]string](b, fmt.Sprintf(`(async () => {
		const ids = [];
		for (let next = document.querySelector("a[rel=next]"); next;) {
			const page = new DOMParser().parseFromString(await (await fetch(next.getAttribute("href"))).text(), "text/html");
			ids.push(...%s);
			next = page.querySelector("a[rel=next]");
		}
		return ids;
	})()`, fmt.Sprintf(shown, "page"))))
	for id, times := range seen {
		if times != 1 {
			t.Errorf("%s was shown %d times", id, times)
		}
	}
	if len(seen) != n {
		t.Errorf("the pages have %d documents, want %d", len(seen), n)
	}
	b.typeIn("#find-id", "document-4711")
	b.follow("the id", func() { b.press(kb.Enter) })
	b.untilText("#body", `"n": 4711`)

	// The forecast, further ahead, and as a table.
	b.open("/console/collections/many")
	b.clickTo(`nav[aria-label="How far ahead"] a[href$="within=24h"]`)
	b.untilText("#forecast figcaption", "5,000 documents expire within 24 hours")
	b.click("#forecast summary")
	b.glance("collection-forecast")
	if rows := b.count("#forecast tbody tr"); rows < 24 {
		t.Errorf("the table of the forecast has %d lines", rows)
	}
}

// configure: the effect of another default is shown before it is saved, and what expires
// documents asks for the name.
func (r *rig) configure(t *testing.T) {
	c := r.collection(t, "settings", 0)
	for i := range 30 {
		put(t, c, fmt.Sprint(i), document{"n": i})
	}
	b := r.tab(t)
	b.expect("status of 4(00|12)")
	b.open("/console/collections/settings")
	b.clickTo("#configure")
	b.inspect("configure")
	b.click("#mode-after")
	b.typeIn("#after", "soon")
	b.clickTo("#preview")
	b.untilText("#after-error", "soon")
	b.glance("configure-invalid")

	// A long time expires nothing, and asks for nothing.
	b.typeIn("#after", "7d")
	b.clickTo("#preview")
	b.untilText("#at-once", "0 documents expire at once")
	b.clickTo(`#effect a[href*="within=30d"]`)
	b.untilText("#then figcaption", "30")
	b.untilText("#today", "nothing expires within 30 days")
	b.inspect("configure-preview")
	b.clickTo("#save")
	b.untilText("#notice", "onfigur")
	b.untilText("#default-ttl", "7 d")

	// A short one expires all, once they are older than that.
	b.clickTo("#configure")
	harness.Until(t, harness.Limit, "all documents would expire", b.once(func() bool {
		b.typeIn("#after", "1s")
		b.clickTo("#preview")
		return b.text("#at-once") == "30 documents expire at once, and nothing brings them back."
	}))
	b.glance("configure-preview-expires")
	b.typeIn("#save-confirm", "setting")
	b.clickTo("#save")
	b.untilText("#save-error", "settings")
	b.glance("configure-refused")
	b.typeIn("#save-confirm", "settings")
	b.clickTo("#save")
	b.untilText("#default-ttl", "1 s")
	b.until("they have expired", `document.querySelector("#live-count").innerText === "0"`)

	// Somebody else configures the collection in between.
	b.clickTo("#configure")
	b.click("#mode-off")
	b.clickTo("#preview")
	if _, err := c.Configure(t.Context(), client.Config{DefaultTTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.clickTo("#save")
	b.untilText("#refused", "Somebody else")
	b.glance("configure-conflict")
	b.clickTo("#save")
	b.untilText("#default-ttl", "off")
}

// drop: it asks for the name.
func (r *rig) drop(t *testing.T) {
	c := r.collection(t, "unwanted", time.Hour)
	put(t, c, "1", document{"n": 1})
	b := r.tab(t)
	b.expect("status of 400")
	b.open("/console/collections/unwanted")
	b.typeIn("#drop-confirm", "wanted")
	b.clickTo("#drop-form button")
	b.untilText("#drop-error", "unwanted")
	b.glance("drop-refused")
	b.typeIn("#drop-confirm", "unwanted")
	b.clickTo("#drop-form button")
	b.untilText("#notice", "ropped")
	b.untilText("h1", "Overview")
	if n := b.count(`tr[data-collection="unwanted"]`); n != 0 {
		t.Error("the collection is still there")
	}
}
