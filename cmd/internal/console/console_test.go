package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// TestConsole goes through the pages of one lapse, without JavaScript.
func TestConsole(t *testing.T) {
	r := start(t)
	for name, test := range map[string]func(*testing.T, *rig){
		"overview": testOverview, "configure": testConfigure, "drop": testDrop, "document": testDocument,
		"edit": testEdit, "clock": testClock, "due": testDue, "changes": testChanges,
		"conflicts": testConflicts, "twice": testTwice, "hostile": testHostile, "pages": testPages, "lists": testLists,
		"queries": testQueries, "live": testLive,
		"system": testSystem, "elsewhere": testElsewhere, "not found": testNotFound, "paths": testPaths,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &rig{t: t, base: r.base, Client: r.Client})
		})
	}
}

func testOverview(t *testing.T, r *rig) {
	r.configure("seen", `{"defaultTtl":3600}`)
	r.put("seen", "1", `{}`)
	r.put("unconfigured", "1", `{}`)
	b := r.browse(t)
	p := b.get("/").want(200, "Ready", "Figures of this process", "Events per second", "Lateness p99", "3,600 s (1 h)",
		"unconfigured")
	if got := p.hrefs("seen"); !slices.Equal(got, []string{"/console/collections/seen"}) {
		t.Errorf("the links to the collection are %v", got)
	}
	p.send("go-to", "name", "seen").want(200, "Configuration", "Live 1")
	p.send("go-to", "name", "new-one").want(200, "There is no such collection yet", "There are no live documents.")
	p.send("go-to", "name", "no good").want(400, "contains", "Nothing was changed")
	b.get("/?after=nonsense").want(400, "continuation")
}

func testConfigure(t *testing.T, r *rig) {
	r.configure("tuned", `{"defaultTtl":3600}`)
	for i := range 12 {
		r.put("tuned", fmt.Sprint(i), `{}`)
	}
	r.put("tuned", "own", `{"ttl":60}`)
	b := r.browse(t)
	form := b.get("/console/collections/tuned").want(200).hrefs("Change…")
	if len(form) != 1 {
		t.Fatalf("%d links to the form", len(form))
	}
	p := b.get(form[0]).want(200, "Default TTL")
	if p.has("save") {
		t.Error("there is something to save before anything was chosen")
	}
	p.send("configure-form").want(200, "This is the present configuration")
	for _, wrong := range []string{"", "0", "-5", "1.5", "1.5s", "soon", "2147483648", "99999d"} {
		again := p.send("configure-form", "mode", "after", "after", wrong).want(400)
		if !strings.Contains(again.element("after-error"), "is not valid: use a whole number of seconds") {
			t.Errorf("%q: %q", wrong, again.element("after-error"))
		}
		if got := again.form("configure-form").values.Get("after"); got != wrong {
			t.Errorf("the field has lost %q: %q", wrong, got)
		}
	}
	longer := p.send("configure-form", "mode", "after", "after", "7d").want(200, "0 documents expire at once",
		"Today: 3,600 s", "Then: 604,800 s (7 d)")
	if got := longer.element("at-once"); got != "0 documents expire at once." {
		t.Errorf("at once: %q", got)
	}
	longer.send("save-form").want(200, "The configuration was saved", "604,800 s (7 d)")
	longer.send("save-form").want(200, "The collection has this configuration") // as after a double click
	// The former page was about a configuration that is no longer there.
	r.configure("tuned", `{"defaultTtl":7200}`)
	longer.send("save-form").want(412, "Somebody else has configured the collection", "Today: 7,200 s (2 h)")

	p = b.get(form[0])
	wait(t, r, "tuned") // a second, so that a default of one expires something
	p = p.send("configure-form", "mode", "after", "after", "1").want(200, "12 documents expire at once, and nothing "+
		"brings them back")
	p.send("save-form").want(400, "That is not the name")
	p = p.send("save-form", "confirm", "Tuned").want(400, "That is not the name")
	if count, err := r.Count(t.Context(), "tuned"); err != nil || count.Live != 13 {
		t.Fatalf("%+v, %v: it was saved without the name", count, err)
	}
	p.send("save-form", "confirm", "tuned").want(200, "The configuration was saved", "1 s")
	if count, err := r.Count(t.Context(), "tuned"); err != nil || count.Live != 1 {
		t.Errorf("%+v, %v", count, err)
	}
	for _, c := range []struct{ mode, want string }{{"none", "-1 (own ttl only)"}, {"off", "off"}} {
		b.get(form[0]).send("configure-form", "mode", c.mode).send("save-form").want(200, "The configuration was saved")
		if got := b.get("/console/collections/tuned").element("default-ttl"); !strings.Contains(got, c.want) {
			t.Errorf("the default TTL is %q, want %q", got, c.want)
		}
	}
	// A change keeps what it does not name.
	r.configure("kept", `{"defaultTtl":60,"indexingMode":"lazy"}`)
	kept := func(want string, values ...string) {
		t.Helper()
		b.get("/console/collections/kept/configure").send("configure-form", values...).send("save-form").want(200,
			"The configuration was saved")
		config, err := r.Config(t.Context(), "kept")
		if got := fmt.Sprintf("%s %d", config.IndexingMode, *config.DefaultTTL); err != nil || got != want {
			t.Errorf("after %v it is %s, %v, want %s", values, got, err, want)
		}
	}
	kept("lazy 604800", "after", "7d")
	kept("consistent 604800", "indexing", "consistent")
	r.configure("kept",
		`{"defaultTtl":60,"minTtl":30,"warnBefore":[20,10],"maxLife":86400,"slideOnRead":0.01,"changes":true}`)
	kept("consistent 120", "after", "2m", "max", "1h")
	if config, err := r.Config(t.Context(), "kept"); err != nil || config.MinTTL != 30 || config.MaxTTL != 3600 ||
		len(config.WarnBefore) != 2 || config.MaxLife != 86400 || config.SlideOnRead != 0.01 || !config.Changes {
		t.Errorf("%+v, %v", config, err)
	}
	kept("consistent 120", "body", "no", "changes", "no", "slide", "no")
	if config, err := r.Config(t.Context(), "kept"); err != nil || config.EventBody == nil || *config.EventBody ||
		config.Changes || config.SlideOnRead != 0 || config.MinTTL != 30 {
		t.Errorf("%+v, %v", config, err)
	}
	b.get("/console/collections/kept").want(200, "Shortest TTL 30 s", "Longest TTL 3,600 s (1 h)",
		"Warnings 20 s, 10 s before", "Events have the document no", "Publishes changes no")
	b.get("/console/collections/kept/configure").send("configure-form", "warn", "soon").want(400,
		"is not valid: use a whole number of seconds")
	// lapse refuses this one, and says why.
	b.get(form[0]).send("configure-form", "mode", "after", "after", "60", "indexing",
		"none").send("save-form").want(400, "indexingMode")
	b.get(form[0]).send("configure-form", "mode", "off", "indexing", "none").send("save-form").want(200, "none")
	b.get(form[0]).send("configure-form", "mode", "after", "after", "60").want(200, "There is no forecast")
}

func testDrop(t *testing.T, r *rig) {
	r.configure("doomed", `{"defaultTtl":3600}`)
	r.put("doomed", "1", `{}`)
	b := r.browse(t)
	p := b.get("/console/collections/doomed").want(200, "Drop this collection")
	wrong := p.send("drop-form", "confirm", "other").want(400)
	if !strings.Contains(wrong.text, "data-sent") {
		t.Error("the script asks for the address of the answer, which is none of a page")
	}
	if got := wrong.element("drop-error"); !strings.Contains(got, "doomed") {
		t.Errorf("the reason is %q", got)
	}
	r.configure("doomed", `{"defaultTtl":3601}`)
	p.send("drop-form", "confirm", "doomed").want(412, "Nothing was changed")
	if r.body("doomed", "1") == "" {
		t.Fatal("the document is gone")
	}
	b.get("/console/collections/doomed").send("drop-form", "confirm", "doomed").want(200, "The collection was dropped",
		"Overview")
	if r.body("doomed", "1") != "" {
		t.Error("the document is still there")
	}
}

func testDocument(t *testing.T, r *rig) {
	const body = "{\"b\" :1,\n\"ttl\":3600, \"a\":\t[true]}"
	etag := r.put("shown", "a b/c?d#e", body).Etag.String()
	r.configure("shown", `{"defaultTtl":-1}`)
	b := r.browse(t)
	b.get("/console/collections/shown").send("find-id", "id", "not there").want(404, "This document is not there",
		"From the instant of its deadline")
	p := b.get("/console/collections/shown").send("find-id", "id", "a b/c?d#e").want(200, "a b/c?d#e", "in 59 min", etag)
	href := b.get("/console/collections/shown").hrefs("a b/c?d#e")
	if len(href) != 1 || href[0] != "/console/collections/shown/documents/a%20b%2Fc%3Fd%23e" {
		t.Fatalf("the links are %v", href)
	}
	if got := p.element("body"); got != `{ "b": 1, "ttl": 3600, "a": [ true ] }` {
		t.Errorf("pretty: %q", got)
	}
	raw := b.get(href[0] + "?view=raw").want(200)
	if !strings.Contains(raw.text, "<code>{&#34;b&#34; :1,\n&#34;ttl&#34;:3600, &#34;a&#34;:\t[true]}</code>") {
		t.Errorf("raw: %s", raw.text)
	}
	whole := b.do("GET", p.hrefs("Bytes as they are")[0], nil)
	if whole.text != body || whole.Header.Get("Content-Type") != "application/json" ||
		whole.Header.Get("ETag") != `"`+etag+`"` {
		t.Errorf("bytes: %q %v", whole.text, whole.Header)
	}
	b.get("/console/collections/shown/new").send("edit-form", "id", "/", "body", "{}").want(200,
		"was created").send("delete-form").want(200, "was deleted")
	b.get("/console/collections/shown/documents/").want(400, "The id is empty")
	head := b.do("HEAD", href[0], nil)
	if head.StatusCode != 200 || head.Header.Get("ETag") != `"`+etag+`"` || head.Header.Get("Lapse-Expires-At") == "" {
		t.Errorf("HEAD: %s %v", head.Status, head.Header)
	}
	b.get(href[0]).send("touch").want(200, "was touched")
	if r.body("shown", "a b/c?d#e") != body {
		t.Error("the touch has changed the document")
	}
	b.get(href[0]).send("delete-form").want(200, "was deleted")
	b.get(href[0]).want(404, "This document is not there")
	for _, id := range []string{".", "..", "/", "...", "%2e", "ä ☃", "\x01\u202e", strings.Repeat("x", 255), "//",
		"documents", "a+b&c=d;e"} {
		r.put("shown", id, `{"x":1}`)
		p := b.get("/console/collections/shown").send("find-id", "id", id).want(200)
		p.send("touch").want(200, "was touched")
		b.get(p.form("touch").action).send("delete-form").want(200, "was deleted")
		if r.body("shown", id) != "" {
			t.Errorf("%q is still there", id)
		}
	}
}

func testEdit(t *testing.T, r *rig) {
	b := r.browse(t)
	p := b.get("/console/collections/written/new").want(200, "New document in written")
	for _, c := range []struct{ id, body, at string }{
		{"", `{}`, "id-error"}, {strings.Repeat("x", 256), `{}`, "id-error"},
		{"1", ``, "body-error"}, {"1", `{`, "body-error"}, {"1", `[1]`, "body-error"}, {"1", `{"id":"2"}`, "body-error"},
	} {
		again := p.send("edit-form", "id", c.id, "body", c.body).want(400)
		if again.element(c.at) == "" {
			t.Errorf("%q %q: there is nothing in %s", c.id, c.body, c.at)
		}
		if f := again.form("edit-form"); f.values.Get("id") != c.id || f.values.Get("body") != c.body {
			t.Errorf("the fields have lost %q %q: %v", c.id, c.body, f.values)
		}
	}
	p.send("edit-form", "id", "1", "body", "{\r\n \"a\": b\r\n}").want(400, "Line 2, column 7:")
	large := p.send("edit-form", "id", "1", "body", `{"x":"`+strings.Repeat("y", 1<<20)+`"}`).want(413)
	if large.element("body-error") == "" {
		t.Error("nothing says that it is too large")
	}
	p.send("edit-form", "id", "1", "body", "\r\n {\"a\":1,\r\n\"b\":\"<\"}").want(200, "was created", `"a": 1`)
	if got := r.body("written", "1"); got != "\n {\"a\":1,\n\"b\":\"<\"}" {
		t.Errorf("stored: %q", got)
	}
	edit := b.get("/console/collections/written/documents/1").hrefs("Edit…")[0]
	p = b.get(edit).want(200)
	if got := p.form("edit-form").values.Get("body"); got != "\r\n {\"a\":1,\r\n\"b\":\"<\"}" {
		t.Errorf("the form has %q", got)
	}
	again := p.send("edit-form", "body", "{").want(400)
	if again.element("body-error") == "" || again.form("edit-form").values.Get("body") != "{" {
		t.Errorf("a wrong body: %s", again.text)
	}
	again.send("edit-form", "body", `{"a":2}`).want(200, "The new version was saved")
	if got := r.body("written", "1"); got != `{"a":2}` {
		t.Errorf("stored: %q", got)
	}
	// After a save, the page warns of a ttl that will not count, or else of a collection that was never configured.
	const warning = "TTL is off in this collection, so the document will not expire"
	save := func(body string) *page {
		return b.get("/console/collections/written/documents/1?view=edit").send("edit-form", "body", body).want(200,
			"The new version was saved")
	}
	if p := save(`{"ttl":60}`); !strings.HasPrefix(p.element("warning"), warning) {
		t.Errorf("after a save it shows no warning:\n%s", p.words)
	}
	if p := save(`{"ttl":-1}`).without(warning); !strings.HasPrefix(p.element("warning"),
		"This collection was never configured") {
		t.Errorf("after a save in a collection that was never configured it shows no warning:\n%s", p.words)
	}
	b.get("/console/collections/written/documents/1?done=saved&warned=other").without(`id="warning"`)
	r.configure("written", `{}`)
	save(`{"ttl":-1}`).without(`id="warning"`)
	if p := save(`{"ttl":60}`); !strings.HasPrefix(p.element("warning"), warning) {
		t.Errorf("after a save in a configured collection it shows no warning:\n%s", p.words)
	}
	r.configure("written", `{"defaultTtl":-1}`)
	save(`{"ttl":60}`).without(`id="warning"`)
}

func testConflicts(t *testing.T, r *rig) {
	b := r.browse(t)
	at := "/console/collections/shared/documents/1"
	r.put("shared", "1", `{"who":"first"}`)
	seen, edit := b.get(at), b.get(at+"?view=edit")
	r.put("shared", "1", `{"who":"other"}`)

	p := edit.send("edit-form", "body", `{"who":"me"}`).want(412, "Somebody else has changed", "What is there", "Yours")
	if p.element("theirs") != `{"who":"other"}` || p.form("mine-form").values.Get("body") != `{"who":"me"}` {
		t.Errorf("it does not show both:\n%s", p.words)
	}
	// While one decides, somebody is faster again.
	r.put("shared", "1", `{"who":"third"}`)
	p = p.send("mine-form").want(412)
	if p.element("theirs") != `{"who":"third"}` {
		t.Errorf("theirs is %q", p.element("theirs"))
	}
	p.send("mine-form").want(200, "The new version was saved", `"me"`)
	if got := r.body("shared", "1"); got != `{"who":"me"}` {
		t.Errorf("stored: %q", got)
	}

	p = seen.send("touch").want(412, "You wanted to touch it")
	p.send("touch-theirs").want(200, "was touched")
	p = seen.send("delete-form").want(412, "You wanted to delete it", `{"who":"me"}`)
	p.send("delete-theirs").want(200, "was deleted")

	p = edit.send("edit-form", "body", `{"who":"me again"}`).want(412, "The document is gone")
	p.send("mine-form").want(200)
	if got := r.body("shared", "1"); got != `{"who":"me again"}` {
		t.Errorf("stored: %q", got)
	}
	p = b.get("/console/collections/shared/new").send("edit-form", "id", "1", "body", `{"who":"new"}`).want(412,
		"exists already")
	p.send("mine-form").want(200)
	if got := r.body("shared", "1"); got != `{"who":"new"}` {
		t.Errorf("stored: %q", got)
	}
	seen = b.get(at)
	r.write("lapse.write.delete.shared.1", "")
	seen.send("touch").want(404, "This document is not there")
	seen.send("delete-form").want(404, "This document is not there")
}

// testTwice: a form that is sent twice, as by a double click, counts once, and the second answer
// is no conflict.
func testTwice(t *testing.T, r *rig) {
	b := r.browse(t)
	create := b.get("/console/collections/twice/new")
	for range 2 {
		create.send("edit-form", "id", "1", "body", `{"n":1}`).want(200, `"n": 1`)
	}
	if got := b.get("/console/collections/twice/documents/1").element("etag"); got == "" {
		t.Error("no etag")
	}
	p := b.get("/console/collections/twice/documents/1")
	edit := b.get("/console/collections/twice/documents/1?view=edit")
	for range 2 {
		edit.send("edit-form", "body", `{"n":2}`).want(200, `"n": 2`)
	}
	// Another text in the same form, as after going back, is another write: a conflict.
	edit.send("edit-form", "body", `{"n":3}`).want(412, "Somebody else")
	p.send("touch").want(412)
	p = b.get("/console/collections/twice/documents/1")
	for range 2 {
		p.send("touch").want(200)
	}
	p = b.get("/console/collections/twice/documents/1")
	for range 2 {
		p.send("delete-form").want(200, "There are no live documents")
	}
}

// testHostile: what others have written is shown as text, wherever it is.
func testHostile(t *testing.T, r *rig) {
	id := `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`{{.}}</textarea></title>"
	body := fmt.Sprintf(`{"%s":"</code></pre></textarea><script>alert(3)</script>","u":"javascript:alert(4)"}`,
		strings.Repeat("z", 5))
	r.put("hostile", id, body)
	r.write("lapse.write.upsert.hostile."+`%3Cscript%3E`, `<script>alert(5)</script>`)
	b := r.browse(t)
	at := "/console/collections/hostile/documents/" + url.PathEscape(id)
	for _, path := range []string{
		"/console/collections/hostile", at, at + "?view=raw", at + "?view=edit", "/console/live?kind=rejections",
		"/console/collections/hostile/new?id=" + url.QueryEscape(id),
		"/" + url.PathEscape(id), "/console/collections/" + url.PathEscape(id),
		"/console/live?collection=" + url.QueryEscape(id), "/?done=" + url.QueryEscape(id),
	} {
		b.get(path).without("<script>", "onerror=alert(2)>'<", "<img", "</textarea><script")
	}
	edit := b.get(at + "?view=edit")
	if got := edit.form("edit-form").values.Get("body"); got != body {
		t.Errorf("the form has %q", got)
	}
	r.put("hostile", id, body+" ")
	p := edit.send("edit-form", "body", body+"\n").want(412).without("<script>")
	p.send("mine-form").want(200)
	b.get(at).send("delete-form").want(200, "was deleted")
	b.get("/console/sign-in?next=https://example.com/").want(200, "Overview")
}

func testPages(t *testing.T, r *rig) {
	const documents = 130
	for i := range documents {
		r.put("many", fmt.Sprintf("m%d", i), `{"ttl":9000}`)
	}
	r.configure("many", `{"defaultTtl":-1}`)
	b := r.browse(t)
	seen := map[string]bool{}
	path := "/console/collections/many?within=24h"
	pages := 0
	for ; path != ""; pages++ {
		p := b.get(path).want(200, "24 hours")
		for _, n := range p.all {
			if id := n.attrs["data-id"]; id != "" {
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
			}
		}
		if next := p.hrefs("Next page"); len(next) == 1 {
			path = next[0]
		} else {
			path = ""
		}
	}
	if len(seen) != documents || pages < 3 {
		t.Errorf("%d documents on %d pages", len(seen), pages)
	}
	for _, within := range []string{"1h", "24h", "30d", "nonsense"} {
		p := b.get("/console/collections/many?within="+within).want(200, "What will expire")
		want := within != "1h"
		if got := strings.Contains(p.words, "130 documents expire within"); got != want {
			t.Errorf("%s: %v: %s", within, got, p.words)
		}
	}
	b.get("/console/collections/many?after=nonsense").want(400, "continuation")

	// The range follows from the data: a few that live much longer do not matter.
	b.get("/console/collections/many").want(200, "130 documents expire within 6 hours", "24 hours", "30 days")
	r.put("many", "long", `{"ttl":8640000}`)
	b.get("/console/collections/many").want(200, "130 documents expire within 6 hours", "; 1 more later.")
	b.get("/console/collections/many?within=1h").want(200, "nothing expires within 1 hour; 131 documents expire later.")
	r.configure("shortly", `{"defaultTtl":604800}`)
	b.get("/console/collections/shortly").want(200, "nothing expires within 1 hour.")
	r.put("shortly", "1", `{}`)
	p := b.get("/console/collections/shortly").want(200, "1 document expires within 7 days")
	if got := p.hrefs("7 days"); len(got) != 1 {
		t.Errorf("the range is offered %d times", len(got))
	}
	form := b.get("/console/collections/shortly/configure")
	form.send("configure-form", "mode", "after", "after", "300d").want(200, "Then: 1 document expires within 1 year",
		"Today: 1 document expires within 1 year")
	form.send("configure-form", "mode", "after", "after", "68y").want(400)
}

func testSystem(t *testing.T, r *rig) {
	r.browse(t).get("/console/system").want(200, "Shards", "Processes", "LAPSE_LOG", "LAPSE_EVENTS",
		"LAPSE_CHECKPOINTS", "owner", "(this one)", "Clock of NATS leads by")
}

// testElsewhere: a page of another site changes nothing, and a name that leads here shows nothing.
func testElsewhere(t *testing.T, r *rig) {
	r.put("safe", "1", `{"safe":true}`)
	b := r.browse(t)
	form := url.Values{"action": {"delete"}, "confirm": {"1"}, "id": {"2"}, "body": {"{}"}, "mode": {"off"}}
	for _, path := range []string{"/console/collections/safe/documents/1", "/console/collections/safe/new",
		"/console/collections/safe/configure", "/console/collections/safe/drop", "/console/sign-in", "/console/sign-out"} {
		for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://example.com"}, {"Origin", "null"}} {
			b.do("POST", path, form, from...).want(403, "A page of another site may not change anything here",
				"Nothing was changed")
		}
	}
	if r.body("safe", "1") == "" || r.body("safe", "2") != "" {
		t.Error("a page of another site has changed something")
	}
	for _, path := range []string{"/", "/console/collections/safe/documents/1", "/console/live", "/console/system",
		"/console/live/stream"} {
		b.do("GET", path, nil, "Host", "example.com").want(421, "127.0.0.1 or localhost").without(`"safe"`)
	}
}

func testNotFound(t *testing.T, r *rig) {
	b := r.browse(t)
	for _, path := range []string{"/nothing", "/console", "/console/", "/console/nothing", "/favicon.ico",
		"/console/assets/no.css", "/console/collections/a/b"} {
		b.get(path).want(404, "There is no")
	}
	b.get("/v2").want(404)
	p := b.do("PUT", "/console/live", nil)
	p.want(405, "cannot be used here")
	if got := p.Header.Get("Allow"); got != "GET, HEAD" {
		t.Errorf("Allow: %q", got)
	}
	b.do("POST", "/", url.Values{}).want(405)
	b.do("POST", "/console/collections/x/documents/1", url.Values{"action": {"destroy"}}).want(400,
		"use touch, replace or delete")
	b.do("POST", "/console/collections/x%20y/documents/1", url.Values{"action": {"touch"}}).want(400, "contains")
	b.do("POST", "/console/collections/x/documents/"+strings.Repeat("y", 256),
		url.Values{"action": {"touch"}}).want(400, "bytes long")
	for name, media := range map[string]string{"console.css": "text/css; charset=utf-8",
		"console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		if got := b.do("GET", "/console/assets/"+name, nil); got.StatusCode != http.StatusOK ||
			got.Header.Get("Content-Type") != media || got.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %s %v", name, got.Status, got.Header)
		}
	}
	for _, n := range b.get("/").all {
		if src := n.attrs["src"]; src != "" {
			if got := b.do("GET", src, nil); !strings.Contains(got.Header.Get("Cache-Control"), "immutable") {
				t.Errorf("%s: %v", src, got.Header)
			}
		}
	}
}

// TestDeepDocument: a small document does not become a large page.
func TestDeepDocument(t *testing.T) {
	r := start(t)
	const depth = 900
	body := `{"a":` + strings.Repeat("[", depth) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]", depth) + "}"
	r.put("orders", "deep", body)
	b := r.browse(t)
	p := b.get("/console/collections/orders/documents/deep").want(200, "as it is stored", body)
	if len(p.text) > 20*len(body) {
		t.Errorf("a document of %d bytes is a page of %d", len(body), len(p.text))
	}
	r.put("orders", "flat", `{"a":[1]}`)
	b.get("/console/collections/orders/documents/flat").want(200).without("as it is stored")
}

// testPaths: no path leads to another, so a form reaches only the collection that its path names.
func testPaths(t *testing.T, r *rig) {
	r.put("danger", "1", `{}`)
	b := r.browse(t)
	drop := url.Values{"confirm": {"danger"}, "action": {"delete"}}
	const collection = "/console/collections/danger"
	for path, status := range map[string]int{
		collection + "/documents/../drop":             404,
		collection + "/documents/..":                  400,
		collection + "/documents/.":                   400,
		collection + "/documents//drop":               404,
		collection + "//drop":                         404,
		collection + "/./drop":                        404,
		"/console/collections//documents/1":           404,
		"/console/collections/../documents/1":         400,
		"//console/collections/danger/drop":           404,
		"/./console/collections/danger/drop":          404,
		"/console/../console/collections/danger/drop": 404,
	} {
		for _, method := range []string{"GET", "POST"} {
			p := b.do(method, path, drop)
			if p.want(status); status == 400 && !strings.Contains(p.words, "where a name belongs") {
				t.Errorf("%s %s: %s", method, path, p.words)
			}
		}
	}
	if r.body("danger", "1") == "" {
		t.Error("the collection is gone")
	}
}
