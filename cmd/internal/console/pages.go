package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed templates assets
var files embed.FS

// assetPath begins the path of each asset.
const assetPath = "/console/assets/"

// These name the warnings that a write may have. The page has a text of its own for each, so that no link can make it
// say anything else.
const (
	ttlIsOff      = "ttl-is-off"     // the document has a ttl, and will not expire
	notConfigured = "not-configured" // nothing in the collection expires
)

// Page is what the layout shows. Data is the page's own.
type Page struct {
	Title    string
	Active   string // the entry of the menu that it belongs to
	Crumbs   []Crumb
	Notice   string // what the action has done that led here
	Warned   string // names the warning of the write that led here: ttlIsOff, notConfigured, or "" for none
	Now      wire.Time
	Version  string
	Prefix   wire.Prefix
	SignedIn bool   // with a token: then one can sign out
	Signing  bool   // the page is for signing in: it has no menu
	All      bool   // the token is for all collections
	ReadOnly bool   // the token can only read
	Write    bool   // the person may change something, here
	First    string // address of the region that takes the writes; empty if this one does
	Domain   string // JetStream domain of that region
	Healthy  bool
	Sent     bool // it answers a form that was sent: then its address may be none of a page
	Data     any
}

// Crumb is a page above this one.
type Crumb struct{ Text, Href string }

// templates are the pages, by name.
var templates = parseTemplates()

// parseTemplates parses each page with the layout and the parts.
func parseTemplates() map[string]*template.Template {
	common := template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html",
		"templates/parts.html"))
	all := make(map[string]*template.Template)
	names, _ := fs.Glob(files, "templates/*.html") // the pattern is valid
	for _, name := range names {
		base := strings.TrimSuffix(path.Base(name), ".html")
		if base != "layout" && base != "parts" {
			all[base] = template.Must(template.Must(common.Clone()).ParseFS(files, name))
		}
	}
	return all
}

var functions = template.FuncMap{
	"count": count, "rate": rate, "latency": latency, "lead": lead, "ttl": ttlText, "date": date,
	"timeOfDay": timeOfDay, "sentence": sentence, "between": spanText, "clock": clock, "visible": visible,
	"bytes": func(n any) string {
		switch n := n.(type) {
		case int:
			return output.Bytes(uint64(n))
		case uint64:
			return output.Bytes(n)
		}
		return ""
	},
	"seconds": secondsText,
	"period":  period,
	"until":   func(at, now wire.Time) string { return "in " + period(instant(at).Sub(instant(now))) },
	"ago":     func(at, now wire.Time) string { return period(max(0, instant(now).Sub(instant(at)))) + " ago" },
	"span":    func(from, until wire.Time) time.Duration { return instant(until).Sub(instant(from)) },
	"deref":   func(t *wire.Time) wire.Time { return *t },
	"asset":   func(name string) string { return assetPath + name + "?v=" + assets[name].version },
	"dict":    dict,
}

// dict makes the data of a part from names and values.
func dict(pairs ...any) (map[string]any, error) {
	m := make(map[string]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("the %dth name is a %T", i/2, pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// render writes a page.
func render(name string, p Page) ([]byte, error) {
	var b bytes.Buffer
	if err := templates[name].ExecuteTemplate(&b, "layout.html", p); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// assetFile is a file that pages refer to.
type assetFile struct {
	content []byte
	version string // of the content: a browser may keep a version for ever
}

var assets = loadAssets()

func loadAssets() map[string]assetFile {
	all := make(map[string]assetFile)
	names, _ := fs.Glob(files, "assets/*") // the pattern is valid
	for _, name := range names {
		content, _ := files.ReadFile(name) // it is embedded
		sum := sha256.Sum256(content)
		all[path.Base(name)] = assetFile{content, base64.RawURLEncoding.EncodeToString(sum[:9])}
	}
	return all
}

// mediaTypes are the media types of the assets: those of the machine may differ.
var mediaTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml"}

// serveAsset answers with an asset; ok = false if there is none of the name.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) (ok bool) {
	a, ok := assets[name]
	if !ok {
		return false
	}
	w.Header().Set("Content-Type", mediaTypes[path.Ext(name)])
	cache := "no-cache"
	if r.URL.Query().Get("v") == a.version {
		cache = "public, max-age=31536000, immutable"
	}
	w.Header().Set("Cache-Control", cache)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
	return true
}
