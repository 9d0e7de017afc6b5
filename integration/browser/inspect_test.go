package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/chromedp"
)

// inspect looks at the page that the tab shows, on each screen and in each theme. For pictures, it
// looks at all four combinations.
func (b *tab) inspect(name string) {
	b.t.Helper()
	b.lookAt(name, desktop, "light")
	if b.r.shots != "" {
		b.lookAt(name, desktop, "dark")
		b.lookAt(name, phone, "light")
	}
	b.glance(name)
}

// glance is inspect for a page that was inspected in another state: it looks once.
func (b *tab) glance(name string) {
	b.t.Helper()
	b.lookAt(name, phone, "dark")
	b.size(desktop)
	b.theme("light")
}

func (b *tab) lookAt(name string, s screen, theme string) {
	b.t.Helper()
	view := name + "-" + s.name + "-" + theme
	for _, fault := range b.look(s, theme) {
		b.t.Errorf("%s: %s", view, fault)
	}
	if b.r.shots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.r.shots, view+".png"), png, 0o666); err != nil {
		b.t.Fatal(err)
	}
}

// look returns what is wrong with the page: what axe-core finds, and if it is wider than its
// window.
func (b *tab) look(s screen, theme string) (faults []string) {
	b.t.Helper()
	b.size(s)
	b.theme(theme)
	if width := eval[int64](b, `document.documentElement.scrollWidth`); width > s.width {
		widest := eval[string](b, fmt.Sprintf(`[...document.querySelectorAll("body *")]
			.filter(e => e.getBoundingClientRect().right > %d).slice(0, 8)
			.map(e => e.cloneNode(false).outerHTML).join(" ")`, s.width))
		faults = append(faults, fmt.Sprintf("the page is %d pixels wide, the window %d: %s", width, s.width, widest))
	}
	if !eval[bool](b, `typeof axe === "object"`) {
		b.do("load axe", chromedp.Evaluate[chromedp.Void](b.r.axe))
	}
	text := eval[string](b,
		`axe.run(document, {preload: false, resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations))`)
	var violations []struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	if err := json.Unmarshal([]byte(text), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		first := v.Nodes[0]
		faults = append(faults, fmt.Sprintf("axe: %s: %s: %d times, such as in %s: %s", v.ID, v.Help, len(v.Nodes),
			first.HTML, strings.Join(strings.Fields(first.FailureSummary), " ")))
	}
	return faults
}
