package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/seed18712806/lapse/integration/harness"
)

// tabTo presses the tabulator key until an element has the focus, and one can see that.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 100 {
		b.press(kb.Tab)
		if eval[bool](b, fmt.Sprintf("document.activeElement.matches(%s)", quote(selector))) {
			if !eval[bool](b,
				`(s => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0)(getComputedStyle(document.activeElement))`) {
				b.t.Errorf("one cannot see that %s has the focus", selector)
			}
			return
		}
	}
	b.t.Fatalf("the tabulator key does not reach %s\n%s", selector, b.page())
}

// enter presses the enter key, and waits for the page to which that leads.
func (b *tab) enter() {
	b.t.Helper()
	b.follow("the enter key", func() { b.press(kb.Enter) })
}

// keyboard: a person creates, changes and deletes a document, without a mouse.
func (r *rig) keyboard(t *testing.T) {
	c := r.collection(t, "keyboard", time.Hour)
	b := r.tab(t)
	b.open("/")
	b.tabTo(".skip")
	b.press(kb.Enter)
	b.until("the link skips to the content", `document.activeElement.id === "main"`)
	b.tabTo(`tr[data-collection="keyboard"] a`)
	b.enter()
	b.tabTo("#new")
	b.enter()
	b.tabTo("#id")
	b.press("key")
	b.tabTo("#body")
	eval[bool](b, `document.querySelector("#body").select() === undefined`)
	b.press(`{"n":1}`)
	b.tabTo("#save")
	b.enter()
	b.untilText("h1", "key")
	b.tabTo("#edit")
	b.enter()
	b.tabTo("#body")
	b.press(kb.End, kb.Backspace, `,"m":2}`)
	b.tabTo("#save")
	b.enter()
	b.untilText("#body", `"m": 2`)
	if got := get(t, c, "key"); got != `{"m":2,"n":1}` {
		t.Errorf("the document is %s", got)
	}
	b.tabTo("#touch")
	b.enter()
	b.tabTo("#delete-ask summary")
	b.press(kb.Enter)
	b.tabTo("#delete")
	b.enter()
	b.untilText("#notice", "eleted")
}

// plain: everything but what is live works without JavaScript.
func (r *rig) plain(t *testing.T) {
	c := r.collection(t, "plain", time.Hour)
	b := r.tab(t)
	b.withoutJavaScript()
	b.open("/console/collections/plain")
	b.clickTo("#new")
	b.typeIn("#id", "1")
	b.typeIn("#body", `{"n":1}`)
	b.clickTo("#save")
	b.untilText("#body", `"n": 1`)
	b.untilText(".countdown", "in ")
	b.clickTo("#edit")
	b.typeIn("#body", `{"n":2}`)
	b.clickTo("#save")
	b.untilText("#body", `"n": 2`)
	b.clickTo("#touch")
	b.open("/console/collections/plain")
	b.untilText(`tr[data-id="1"]`, `{"n":2}`)
	b.clickTo("#configure")
	b.typeIn("#after", "2h")
	b.clickTo("#preview")
	b.untilText("#at-once", "0 documents")
	b.clickTo("#save")
	b.untilText("#default-ttl", "2 h")
	b.clickTo(`nav[aria-label="How far ahead"] a[href$="within=24h"]`)
	b.click("#forecast summary")
	b.untilText("#forecast tbody", ":")
	b.clickTo(`tr[data-id="1"] a`)
	b.click("#delete-ask summary")
	b.clickTo("#delete")
	b.untilText("#notice", "eleted")
	expire(t, c, "2")
	b.open("/console/live?collection=plain")
	b.untilText("#messages", "2")
	b.untilText("main", "needs JavaScript")
}

// withRedis starts a lapse whose Redis a test can kill.
func (r *rig) withRedis(t *testing.T, redis *harness.Redis, flags ...string) *harness.Lapse {
	t.Helper()
	nats := harness.Address(harness.FreePort(t))
	l := harness.PrepareLapse(t, append([]string{"--nats-listen", nats, "--data", t.TempDir(), "--redis",
		"redis://" + redis.Address()}, flags...)...)
	l.NATSURL = "nats://" + nats
	l.Start()
	return l
}

// signIn: with tokens, a person signs in, and sees only what the token allows. The overview says
// what is wrong.
func (r *rig) signIn(t *testing.T) {
	const reader, writer = "reads-what-it-is-for", "writes-everything"
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(reader+" read-only shown\n"+writer+" read-write\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := harness.StartRedis(t, harness.RedisOptions{})
	own := *r
	own.lapse = r.withRedis(t, redis, "--http-token-file", file)
	own.connect(t)
	for _, name := range []string{"shown", "hidden"} {
		put(t, own.collection(t, name, time.Hour), "1", document{"n": 1})
	}
	b := own.tab(t)
	b.expect("status of 40[13]")
	b.open("/console/collections/shown")
	b.untilText("h1", "Sign in")
	b.inspect("sign-in")
	b.typeIn("#token", "wrong")
	b.clickTo("#sign-in-form button")
	b.untilText("#token-error", "token")
	b.glance("sign-in-wrong")
	b.typeIn("#token", reader)
	b.enter()
	b.untilText("h1", "shown") // where the person wanted to go
	for _, action := range []string{"#new", "#drop-form"} {
		if b.count(action) != 0 {
			t.Errorf("a token that can only read is shown %s", action)
		}
	}
	b.glance("collection-read-only")
	b.clickTo("#configure") // to see the effect, but not to save it
	b.typeIn("#after", "2h")
	b.clickTo("#preview")
	b.untilText("#at-once", "0 documents")
	if b.count("#save-form") != 0 {
		t.Error("a token that can only read is shown how to configure")
	}
	b.open("/console/collections/shown")
	b.clickTo(`tr[data-id="1"] a`)
	b.untilText("#body", `"n": 1`)
	if b.count("#touch, #edit, #delete-form") != 0 {
		t.Error("a token that can only read is shown actions on a document")
	}
	b.open("/")
	b.untilText("#collections", "shown")
	if n := b.count("#collections tbody tr"); n != 1 {
		t.Errorf("a token for one collection is shown %d", n)
	}
	b.open("/console/collections/hidden")
	b.untilText("main", "403")
	b.glance("forbidden")
	b.open("/console/live?collection=shown")
	b.untilText("#connection", "Live")
	b.clickTo("#sign-out")
	b.untilText("h1", "Sign in")
	b.open("/")
	b.untilText("h1", "Sign in")
	b.typeIn("#token", writer)
	b.enter()
	b.untilText("#collections", "hidden")
	b.clickTo(`tr[data-collection="hidden"] a`)
	b.clickTo(`tr[data-id="1"] a`)
	b.clickTo("#touch")
	b.untilText("#notice", "ouched")

	// Redis dies: what can be seen is seen, and what is wrong is said.
	b.open("/")
	b.expect("status of (40[13]|503)")
	redis.Kill()
	b.untilText("#health", "Not ready")
	b.untilText(".problems", "Redis")
	b.open("/")
	b.untilText(".advice", " ")
	b.inspect("overview-unhealthy")
	b.open("/console/collections/hidden")
	b.untilText("main", "Redis")
	b.glance("collection-unhealthy")
	b.open("/console/system")
	b.glance("system-unhealthy")
	redis.Start()
	harness.Until(t, harness.Limit, "lapse is ready again", b.once(func() bool {
		b.open("/")
		return b.text("#health") == "Ready"
	}))

	// A token that counts no longer.
	if err := os.WriteFile(file, []byte(reader+" read-only shown\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own.lapse.Reload()
	harness.Until(t, harness.Limit, "the token counts no longer", b.once(func() bool {
		b.open("/")
		return b.text("h1") == "Sign in"
	}))
}
