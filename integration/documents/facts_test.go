package documents_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/sink/wire"
)

const contract = "sink/README.md"

// source is the text of all Go files of the product, and of the scripts beside them.
func source(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "processor", "sink", "ttlrules"} {
		err := filepath.WalkDir(filepath.Join(documents.Root(t), dir),
			func(path string, _ os.DirEntry, err error) error {
				if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
					return err
				}
				text, err := os.ReadFile(path)
				all.Write(text)
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestSubjects: the contract has every subject on which a client publishes, reads or subscribes, and each operation,
// verb and stream.
func TestSubjects(t *testing.T) {
	t.Parallel()
	text, p := documents.Read(t, contract), wire.DefaultPrefix
	for _, subject := range []string{
		p.Write("<op>", "<collection>", "ID"), p.Config("<collection>"), p.Drop("<collection>"),
		p.Expired("<collection>", "ID"), p.Expiring("<collection>", "ID"), p.Due("<target>"),
		p.Changed("<collection>", "ID"), p.Dropped("<collection>"),
		p.ReadGet("<collection>", "ID"), p.Read("<verb>", "<collection>"), p.ReadCollections(),
	} {
		if subject = strings.Replace(subject, "ID", "<id>", 1); !strings.Contains(text, "`"+subject+"`") {
			t.Errorf("%s has no subject %s", contract, subject)
		}
	}
	for _, op := range wire.Ops {
		if !strings.Contains(text, "`"+string(op)+"`") {
			t.Errorf("%s has no operation %s", contract, op)
		}
	}
	for _, stream := range []string{p.LogStream(), p.EventsStream()} {
		if !strings.Contains(text, "`"+stream+"`") {
			t.Errorf("%s has no stream %s", contract, stream)
		}
	}
}

// TestHeaders: the contract has each header that lapse reads or writes, and the documents name no other.
func TestHeaders(t *testing.T) {
	t.Parallel()
	own := []string{wire.HeaderSlide} // of lapse itself
	var known []string
	for _, match := range regexp.MustCompile(`Header\w+ += "(Lapse-[A-Za-z-]+)"`).FindAllStringSubmatch(source(t), -1) {
		known = append(known, match[1])
	}
	if len(known) < 15 {
		t.Fatalf("lapse has only the headers %v", known)
	}
	named := func(text string) []string { return regexp.MustCompile(`Lapse-[A-Z][A-Za-z-]+`).FindAllString(text, -1) }
	have := named(documents.Read(t, contract))
	for _, header := range known {
		if !slices.Contains(have, header) && !slices.Contains(own, header) {
			t.Errorf("%s has no header %s", contract, header)
		}
	}
	for _, path := range documents.All(t) {
		for _, header := range named(documents.Read(t, path)) {
			if !slices.Contains(known, strings.TrimSuffix(header, "-")) {
				t.Errorf("%s names the header %s, which lapse does not have", path, header)
			}
		}
	}
}

// TestMembers: the contract has each member of the bodies, by the names that they have in JSON.
func TestMembers(t *testing.T) {
	t.Parallel()
	text := documents.Read(t, contract)
	for what, body := range map[string]any{
		"a configuration": wire.Config{}, "an event": wire.Event{}, "a warning": wire.Expiring{},
		"a change":   wire.Change{},
		"an outcome": wire.Outcome{}, "a list": wire.ListRequest{}, "a page": wire.ListReply{},
		"a query":           wire.QueryRequest{},
		"a page of a query": wire.QueryReply{}, "how far an index is made": wire.IndexMaking{},
		"an index":             wire.IndexCount{},
		"a document of a page": wire.Document{}, "a count": wire.CountReply{}, "a forecast": wire.ForecastRequest{},
		"the reply to it": wire.ForecastReply{},
		"a bucket":        wire.Bucket{}, "the collections": wire.CollectionsReply{}, "a collection": wire.Collection{},
		"settled": wire.SettledReply{},
	} {
		for _, member := range members(body) {
			if !strings.Contains(text, `"`+member+`"`) && !strings.Contains(text, "`"+member+"`") {
				t.Errorf("%s does not have the member %s of %s", contract, member, what)
			}
		}
	}
}

// TestRoutes: the contract has each route of the HTTP API with its methods.
func TestRoutes(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(documents.Read(t, "cmd/internal/httpapi/openapi.json")), &doc); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(documents.Read(t, contract), "\n## Over HTTP\n")
	text = strings.ReplaceAll(text, "`…/forecast`", "`collections/{collection}/forecast`")
	for path, methods := range doc.Paths {
		route, ok := strings.CutPrefix(path, "/v1/")
		if !ok {
			continue
		}
		row := regexp.MustCompile("(?m)^\\|.*`" + regexp.QuoteMeta(route) + "`.*$").FindString(text)
		for method := range methods {
			name := strings.ToUpper(method)
			if method != "parameters" && !strings.Contains(row, name) {
				t.Errorf("%s has no row of %s %s", contract, name, path)
			}
		}
	}
}

// TestMetrics: each metric that the documents name is one of lapse.
func TestMetrics(t *testing.T) {
	t.Parallel()
	text := source(t)
	for _, path := range documents.All(t) {
		if path == ".github/CHANGELOG.md" || slices.Contains(notes, path) {
			continue
		}
		for _, metric := range regexp.MustCompile("`(lapse_[a-z_]+)").FindAllStringSubmatch(documents.Read(t, path),
			-1) {
			name := strings.TrimSuffix(metric[1], "_")
			parts, made := strings.Split(name, "_"), strings.Contains(text, `"`+name+`"`)
			for i := range parts { // its namespace and its subsystem may stand elsewhere
				made = made || i > 0 && i < 3 && strings.Contains(text, `"`+strings.Join(parts[i:], "_")+`"`)
			}
			if !made {
				t.Errorf("%s names the metric %s, which lapse does not have", path, name)
			}
		}
	}
}
