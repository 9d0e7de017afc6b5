package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// ink are the colours of the drawing, on the background of the page of GitHub.
type ink struct{ theme, box, line, text, quiet, accent string }

var inks = []ink{
	{"light", "#f6f8fa", "#59636e", "#1f2328", "#59636e", "#0969da"},
	{"dark", "#151b23", "#9198a1", "#f0f6fc", "#9198a1", "#4493f8"},
}

// TestFlow makes the drawing of the flow in the README, light and dark, with the subjects and the streams that lapse
// has. With LAPSE_PICTURES it goes into that directory (see .github/images/make). It fails if the drawing of the README
// is another one: then make it again.
func TestFlow(t *testing.T) {
	t.Parallel()
	for _, c := range inks {
		name := "flow-" + c.theme + ".svg"
		drawing := c.draw()
		if dir := os.Getenv("LAPSE_PICTURES"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(drawing), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(filepath.Join("../../.github/images", name))
		if err != nil || string(have) != drawing {
			t.Errorf("%s is not what .github/images/make makes: run it again (%v)", name, err)
		}
	}
}

// draw draws clients, the log, lapse, Redis, the events and consumers, from left to right.
func (c ink) draw() string {
	p := wire.DefaultPrefix
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 250" role="img"` +
		` font-family="ui-sans-serif, system-ui, sans-serif">`)
	put(`<title>Clients write to the log in NATS; lapse applies it to Redis, which serves reads,` +
		` and publishes events for consumers</title>`)
	put(`<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">` +
		`<path d="M0 0 8 4 0 8z" fill="` + c.line + `"/></marker></defs>`)
	box := func(x, y int, title, below, color string) {
		put(`<rect x="%d" y="%d" width="150" height="64" rx="8" fill="%s" stroke="%s" stroke-width="1.5"/>`,
			x, y, c.box, color)
		put(`<text x="%d" y="%d" fill="%s" font-size="16" font-weight="600" text-anchor="middle">%s</text>`,
			x+75, y+28, c.text, title)
		put(`<text x="%d" y="%d" fill="%s" font-size="12" text-anchor="middle">%s</text>`, x+75, y+48, c.quiet, below)
	}
	arrow := func(path string) {
		put(`<path d="%s" fill="none" stroke="%s" stroke-width="1.5" marker-end="url(#end)"/>`, path, c.line)
	}
	beside := func(x, y int, anchor, text string) {
		put(`<text x="%d" y="%d" fill="%s" font-size="12" text-anchor="%s">%s</text>`, x, y, c.quiet, anchor, text)
	}
	label := func(x, y int, text string) { beside(x, y, "middle", text) }
	put(`<rect x="255" y="8" width="420" height="100" rx="12" fill="none" stroke="%s" stroke-dasharray="4 4"/>`, c.line)
	label(465, 26, "NATS JetStream")
	box(5, 36, "clients", "any language", c.line)
	box(270, 36, "log", p.LogStream(), c.line)
	box(510, 36, "events", p.EventsStream(), c.line)
	box(805, 36, "consumers", "any language", c.line)
	box(390, 166, "lapse", "one owner, standbys", c.accent)
	box(70, 166, "reads", "NATS, HTTP, console", c.line)
	box(730, 166, "Redis", "documents, deadlines", c.line)
	arrow("M155 68 H268")
	label(212, 58, string(p)+".write.&gt;")
	arrow("M345 100 V140 Q345 150 355 150 H430 Q440 150 440 158 V164")
	beside(337, 140, "end", "applies")
	arrow("M490 166 V160 Q490 150 500 150 H575 Q585 150 585 140 V102")
	beside(593, 140, "start", "publishes")
	arrow("M660 68 H803")
	label(735, 58, string(p)+".expired.&gt;")
	arrow("M540 190 H728")
	label(640, 182, "commits")
	arrow("M728 212 H542")
	label(640, 228, "what is due, what is read")
	arrow("M390 198 H222")
	label(306, 190, string(p)+".read.&gt;")
	put(`</svg>`)
	return b.String()
}
