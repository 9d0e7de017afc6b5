package console_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// page is an answer that was read and checked.
type page struct {
	*http.Response
	t     testing.TB
	b     *browser
	path  string
	text  string  // the source
	words string  // what a person reads, with one space between words
	all   []*node // every element, in order
}

// node is an element of a page.
type node struct {
	name   string
	attrs  map[string]string
	parent *node
	text   strings.Builder // directly in it, and below it
}

func (n *node) inside(of *node) bool {
	for n = n.parent; n != nil; n = n.parent {
		if n == of {
			return true
		}
	}
	return false
}

const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// check checks what holds for every answer of the console.
func (p *page) check() {
	p.t.Helper()
	for name, want := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "same-origin"} {
		if got := p.Header.Get(name); got != want {
			p.t.Errorf("%s: %s: %q, want %q", p.path, name, got, want)
		}
	}
	if !strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") || p.text == "" {
		return
	}
	if got := p.Header.Get("Cache-Control"); got != "no-store" {
		p.t.Errorf("%s: a cache may keep it: %q", p.path, got)
	}
	p.parse()
	p.checkAccessible()
}

var space = regexp.MustCompile(`\s+`)

// parse reads the elements. It fails unless they are nested as they should be.
func (p *page) parse() {
	p.t.Helper()
	d := xml.NewDecoder(strings.NewReader(p.text))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var at *node
	var words strings.Builder
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			p.t.Fatalf("%s: %v\n%s", p.path, err, p.text)
		}
		switch token := token.(type) {
		case xml.StartElement:
			at = &node{name: token.Name.Local, attrs: map[string]string{}, parent: at}
			for _, a := range token.Attr {
				at.attrs[a.Name.Local] = a.Value
			}
			p.all = append(p.all, at)
			words.WriteByte(' ')
		case xml.EndElement:
			if at == nil || at.name != token.Name.Local {
				p.t.Fatalf("%s: </%s> closes what is not open\n%s", p.path, token.Name.Local, p.text)
			}
			at = at.parent
			words.WriteByte(' ')
		case xml.CharData:
			words.Write(token)
			for n := at; n != nil; n = n.parent {
				n.text.Write(token)
			}
		}
	}
	p.words = space.ReplaceAllString(words.String(), " ")
}

// checkAccessible checks that ids are unique, that every control has a name, that headings are in
// order, and that there is nothing that the policy forbids.
func (p *page) checkAccessible() {
	p.t.Helper()
	ids, labels := map[string]bool{}, map[string]bool{}
	level, mains := 0, 0
	for _, n := range p.all {
		if id, ok := n.attrs["id"]; ok {
			if ids[id] {
				p.t.Errorf("%s: id %s is there twice", p.path, id)
			}
			ids[id] = true
		}
		labels[n.attrs["for"]] = true
		if len(n.name) == 2 && n.name[0] == 'h' && '1' <= n.name[1] && n.name[1] <= '6' {
			if now := int(n.name[1] - '0'); now > level+1 || now == 1 && level > 0 {
				p.t.Errorf("%s: a heading of level %d comes after one of %d", p.path, now, level)
			} else {
				level = now
			}
		}
		if n.name == "main" {
			mains++
		}
		for name := range n.attrs {
			if name == "style" || strings.HasPrefix(name, "on") {
				p.t.Errorf("%s: <%s> has %s", p.path, n.name, name)
			}
		}
		if n.name == "style" || n.name == "script" && strings.TrimSpace(n.text.String()) != "" {
			p.t.Errorf("%s: it has an inline %s", p.path, n.name)
		}
		for _, name := range []string{"href", "src", "action"} {
			if value, ok := n.attrs[name]; ok && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "#") &&
				n.attrs["id"] != "elsewhere" {
				p.t.Errorf("%s: <%s> leads to %q", p.path, n.name, value)
			}
		}
	}
	if level == 0 || mains != 1 {
		p.t.Errorf("%s: it has %d main, and headings to level %d", p.path, mains, level)
	}
	for _, n := range p.all {
		for _, name := range []string{"aria-labelledby", "aria-describedby", "for"} {
			for _, id := range strings.Fields(n.attrs[name]) {
				if !ids[id] {
					p.t.Errorf("%s: %s names %s, which is not there", p.path, name, id)
				}
			}
		}
		control := n.name == "select" || n.name == "textarea" || n.name == "input" && n.attrs["type"] != "hidden"
		if control && n.attrs["aria-label"] == "" && !labels[n.attrs["id"]] {
			p.t.Errorf("%s: the control %s has no label", p.path, n.attrs["name"])
		}
	}
}

// form is a form with the values with which the browser would send it.
type form struct {
	method, action string
	values         url.Values
}

// form finds the form of an id, or the one that has the element of that id.
func (p *page) form(id string) form {
	p.t.Helper()
	var of *node
	for _, n := range p.all {
		if n.attrs["id"] != id {
			continue
		}
		for of = n; of != nil && of.name != "form"; of = of.parent {
		}
	}
	if of == nil {
		p.t.Fatalf("%s: there is no form %s:\n%s", p.path, id, p.text)
	}
	f := form{of.attrs["method"], of.attrs["action"], url.Values{}}
	for _, n := range p.all {
		if !n.inside(of) {
			continue
		}
		_, checked := n.attrs["checked"]
		_, selected := n.attrs["selected"]
		switch {
		case n.name == "textarea":
			f.values.Set(n.attrs["name"], strings.ReplaceAll(strings.TrimPrefix(n.text.String(), "\n"), "\n", "\r\n"))
		case n.name == "option" && selected:
			f.values.Set(n.parent.attrs["name"], n.attrs["value"])
		case n.name == "input" && (n.attrs["type"] != "radio" && n.attrs["type"] != "checkbox" || checked):
			f.values.Set(n.attrs["name"], n.attrs["value"])
		}
	}
	return f
}

// has reports whether the page has an element of this id.
func (p *page) has(id string) bool {
	for _, n := range p.all {
		if n.attrs["id"] == id {
			return true
		}
	}
	return false
}

// element is what a person reads in the element of an id.
func (p *page) element(id string) string {
	for _, n := range p.all {
		if n.attrs["id"] == id {
			return strings.TrimSpace(space.ReplaceAllString(n.text.String(), " "))
		}
	}
	return ""
}

// hrefs lists the links whose text is this.
func (p *page) hrefs(text string) (found []string) {
	for _, n := range p.all {
		if n.name == "a" && strings.TrimSpace(n.text.String()) == text {
			found = append(found, n.attrs["href"])
		}
	}
	return found
}
