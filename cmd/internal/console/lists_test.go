package console_test

import (
	"fmt"
	"net/url"
	"slices"
	"testing"
)

// ids are those of the documents in the list of the page.
func (p *page) ids() (ids []string) {
	for _, n := range p.all {
		if id := n.attrs["data-id"]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// testLists: the documents of a collection by what expires next, and by the beginning of the id.
func testLists(t *testing.T, r *rig) {
	for i := range 60 {
		r.put("listed", fmt.Sprintf("a%02d", i), fmt.Sprintf(`{"ttl":%d}`, 9000-i))
	}
	r.put("listed", "b & c", `{}`)
	b := r.browse(t)
	b.get("/console/collections/listed?order=deadline").want(200, "No documents will expire.")
	r.configure("listed", `{"defaultTtl":-1}`)
	p := b.get(b.get("/console/collections/listed?within=24h").want(200, "in no particular "+
		"order").hrefs("Next to expire")[0]).want(200, "the next to expire first", "24 hours")
	got := p.ids()
	for next := p.hrefs("Next page"); len(next) == 1; next = p.hrefs("Next page") {
		p = b.get(next[0]).want(200, "the next to expire first", "24 hours")
		got = append(got, p.ids()...)
	}
	want := make([]string, 60)
	for i := range want {
		want[i] = fmt.Sprintf("a%02d", 59-i)
	}
	if !slices.Equal(got, want) {
		t.Errorf("by deadline: %v", got)
	}
	if got := b.get("/console/collections/listed?prefix="+url.QueryEscape("b &")).want(200,
		"Live documents whose ids begin with b &").ids(); !slices.Equal(got, []string{"b & c"}) {
		t.Errorf("by a prefix: %v", got)
	}
	b.get("/console/collections/listed?prefix=x").want(200, "No ids begin with x")
	b.get("/console/collections/listed?prefix=x&order=deadline").want(400, "prefix")
	b.get("/console/collections/listed?order=size").want(400, "order")
}
