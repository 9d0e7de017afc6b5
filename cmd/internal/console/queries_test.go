package console_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// testQueries: the documents of a collection by their values, from the declaration of an index to the pages of results.
func testQueries(t *testing.T, r *rig) {
	r.configure("asked", `{"defaultTtl":-1}`)
	for i := range 120 {
		r.put("asked", fmt.Sprintf("d%03d", i), fmt.Sprintf(`{"n":%d,"who":"%s"}`, i, []string{"Ada", "Bo & Co"}[i%2]))
	}
	b := r.browse(t)
	p := b.get("/console/collections/asked").want(200, "The collection has no index", "Indexes none")
	refused := p.send("query-form", "where", "n>=100").want(400)
	if got := refused.element("where-error"); !strings.Contains(got, "lapse config asked") ||
		len(refused.hrefs("Declare an index…")) != 1 {
		t.Errorf("without an index: %q", got)
	}
	if got := refused.form("query-form").values.Get("where"); strings.TrimSpace(got) != "n>=100" ||
		len(refused.ids()) > 0 {
		t.Errorf("the field has lost the condition: %q", got)
	}
	if got := p.send("query-form", "where", "n>=118", "scan", "yes").want(200,
		"Live documents of the query").ids(); len(got) != 2 {
		t.Errorf("by a scan: %v", got)
	}

	p = b.get(p.hrefs("declare one…")[0])
	p.send("configure-form", "indexes", "n\r\nseat/row").want(400, "does not begin with it")
	p.send("configure-form", "indexes", "n\r\n\r\n /who ").want(200, "expire at once").send("save-form").want(200,
		"The configuration was saved", "/n, /who")
	if config, err := r.Config(t.Context(), "asked"); err != nil || !slices.Equal(config.Indexes, []string{"/n", "/who"}) {
		t.Fatalf("%+v, %v", config, err)
	}
	b.get("/console/collections/asked/configure").send("configure-form").want(200, "This is the present configuration")
	harness.Until(t, harness.Limit, "the indexes are made", func(ctx context.Context) error {
		count, err := r.Count(ctx, "asked")
		for _, index := range count.Indexes {
			if index.Making != nil {
				err = fmt.Errorf("%+v", index)
			}
		}
		return err
	})

	p = b.get("/console/collections/asked").want(200, "Indexes: /n")
	p = p.send("query-form", "where", "who=Bo & Co n>=1\r\nn<118", "order", "-n").want(200,
		"Live documents of the query", "examined for this page")
	got := p.ids()
	for next := p.hrefs("Next page"); len(next) == 1; next = p.hrefs("Next page") {
		p = b.get(next[0]).want(200)
		got = append(got, p.ids()...)
	}
	var want []string
	for i := 117; i > 0; i -= 2 {
		want = append(want, fmt.Sprintf("d%03d", i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("by a query: %v, want %v", got, want)
	}
	if first := p.hrefs("First page"); len(first) != 1 || !slices.Contains(b.get(first[0]).want(200).ids(), "d117") {
		t.Errorf("the first page is %v", first)
	}
	if f := p.form("query-form"); f.values.Get("order") != "-n" || !strings.Contains(f.values.Get("where"),
		"who=Bo & Co n>=1\r\nn<118") {
		t.Errorf("the form has lost the query: %v", f.values)
	}
	b.get("/console/collections/asked?where="+url.QueryEscape("who=Eve")).want(200, "No documents are like this.")
	for where, at := range map[string]string{"n": "where-error", "n=1 n=2": "where-error", "n={}": ""} {
		p := b.get("/console/collections/asked?where=" + url.QueryEscape(where))
		if at != "" && (p.StatusCode != 400 || p.element(at) == "") {
			t.Errorf("%s: %s: %q", where, p.Status, p.element(at))
		}
	}
	if got := b.get("/console/collections/asked?order=-deadline").want(400).element("order-error"); got == "" {
		t.Error("nothing says that the order is wrong")
	}
	b.get("/console/collections/asked?where=n%3E1&after=nonsense").want(400, "continuation")
	b.get("/console/collections/nowhere-at-all?where=n%3D1").want(400, "There is no such collection yet")
}
