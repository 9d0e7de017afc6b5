package browser

import (
	"context"
	"errors"
	"regexp"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/programs"
)

// demo: a person runs "lapse demo" and clicks through its console. Something is on every page, and
// events come while the person looks.
func (r *rig) demo(t *testing.T) {
	p := harness.StartProcess(t, "demo", programs.Path(t, "lapse"), "demo", "--http-listen", "127.0.0.1:0")
	// It removes its data at the end. Killed, it would leave them.
	t.Cleanup(func() {
		if code := p.Terminate(); code != 0 {
			t.Errorf("the demo ends with code %d", code)
		}
	})
	console := regexp.MustCompile(`http://([^/ ]+)/ +the console`)
	harness.Until(t, harness.Limit, "the demo prints the address of its console", func(context.Context) error {
		if !console.MatchString(p.Log()) {
			return errors.New(p.Log())
		}
		return nil
	})
	of := *r
	of.lapse = &harness.Lapse{Process: p, HTTP: console.FindStringSubmatch(p.Log())[1]}
	b := of.tab(t)
	b.open("/")
	b.untilText("#health", "Ready")
	b.untilText("main", "readings")
	b.clickTo(`nav a[href="/console/live"]`)
	b.untilText("#connection", "Live")
	b.until("events come",
		`(window.first ??= document.querySelector("#messages tbody tr")) && `+
			`document.querySelector("#messages tbody tr") !== window.first`)
	b.clickTo(`nav[aria-label="What to follow"] a[href*="rejections"]`)
	b.untilText("#messages tbody tr .reason", "ttl 0.5")
	b.clickTo("#messages tbody a")
	b.untilText("h1", "Rejected")
	b.clickTo(`nav a[href="/console/system"]`)
	b.untilText("#streams", "LAPSE_EVENTS")
	b.clickTo(`nav a[href="/"]`)
	b.clickTo(`main a[href="/console/collections/sessions"]`)
	b.untilText("h1", "sessions")
	b.clickTo(`main tr:last-child a[href*="/collections/sessions/documents/"]`) // the first one expires next
	b.untilText("main", "device")
}
