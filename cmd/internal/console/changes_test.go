package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// testChanges: the changes of a collection are shown with what they did, each on a page of its own; a collection that
// publishes none says so.
func testChanges(t *testing.T, r *rig) {
	const live = "/console/live?kind=changes&collection=watched"
	b := r.browse(t)
	b.get("/console/live?kind=changes").want(200, "changes are those of a collection")
	b.get("/console/live?kind=changes&collection=no+good").want(400, "contains")
	r.configure("watched", `{"defaultTtl":-1}`)
	if p := b.get(live).want(200, "does not publish its changes"); p.attribute("messages", "data-stream") != "" {
		t.Error("the page follows a collection that publishes nothing")
	}
	r.configure("watched", `{"defaultTtl":-1,"changes":true}`)
	r.put("watched", "1", `{"n":1}`)
	r.put("watched", "1", `{"n":2,"ttl":600}`)
	r.put("watched", "2", `{"n":3,"ttl":1}`)
	r.write("lapse.write.touch.watched.1", "")
	r.write("lapse.write.delete.watched.1", "")
	var p *page
	harness.Until(t, harness.Limit, "the changes are shown", func(context.Context) error {
		if p = b.get(live); len(p.sequences()) != 6 {
			return fmt.Errorf("%d messages", len(p.sequences()))
		}
		return nil
	})
	p.want(200, "Changes of documents of watched", "created", "updated", "deleted", "expired", `"n":3`, "(as before)",
		"never")
	if stream := p.attribute("messages", "data-stream"); !strings.Contains(stream, "kind=changes") {
		t.Errorf("its stream is %s", stream)
	}
	at := map[string]string{} // the pages, by their titles
	for _, seq := range p.sequences() {
		one := b.get(p.hrefs(fmt.Sprint(seq))[0]).want(200)
		at[strings.SplitN(one.words, " –", 2)[0]] += one.words
	}
	for title, part := range map[string]string{
		"Created: 1": `"n": 1`, "Created: 2": `"ttl": 1`, "Updated: 1": "The document is as it was before",
		"Deleted: 1": "There is none.", "Expired: 2": "Its last version",
	} {
		if !strings.Contains(at[" "+title]+at[title], part) {
			t.Errorf("%s: %q, want %s; there are %v", title, at[title], part, at)
		}
	}
}
