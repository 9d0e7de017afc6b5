package console_test

import (
	"strings"
	"testing"
)

// TestExamples: an empty lapse has a command that works, and makes examples once.
func TestExamples(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.browse(t)
	first := b.get("/").want(200, "There are no collections yet", "curl --request PUT --json",
		r.base+"/v1/collections/examples/documents/tea")
	first.send("examples-form").want(200, "The examples were made", "600 s (10 min)", "Live 5", "coffee", "salt")
	if got := r.body("examples", "salt"); !strings.Contains(got, `"ttl":-1`) {
		t.Errorf("salt is %q", got)
	}
	// What somebody has made meanwhile stays.
	r.configure("examples", `{"defaultTtl":-1}`)
	r.put("examples", "bread", `{"mine":true}`)
	again := first.send("examples-form", "once", "another").want(200, "-1 (own ttl only)")
	if got := r.body("examples", "bread"); got != `{"mine":true}` {
		t.Errorf("a second form has changed bread to %q", got)
	}
	b.get("/").want(200, "examples").without("examples-form", "There are no collections yet")
	again.want(200, "Drop this collection")
	b.get("/console/collections/another").want(200, "There is no such collection yet").without("drop-form")
}
