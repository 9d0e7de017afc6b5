package console_test

import "testing"

// testClock: the fields beside the body of a document, also after a mistake and a conflict.
func testClock(t *testing.T, r *rig) {
	r.configure("clocks", `{"defaultTtl":3600}`)
	b := r.browse(t)
	const at, instant = "/console/collections/clocks/documents/1", "2030-01-31T18:00:00Z"
	expires := func() string {
		t.Helper()
		d, err := r.Get(t.Context(), "clocks", "1")
		if err != nil || d.ExpiresAt == nil {
			t.Fatalf("%+v, %v", d, err)
		}
		return d.ExpiresAt.String()
	}
	p := b.get("/console/collections/clocks/new").send("edit-form", "id", "1", "body", "{}", "expires", "soon").want(400)
	if p.element("expires-error") == "" || p.form("edit-form").values.Get("expires") != "soon" {
		t.Errorf("a wrong deadline: %s", p.text)
	}
	p.send("edit-form", "expires", instant).want(200, "was created")
	if got := expires(); got != "2030-01-31T18:00:00.000Z" {
		t.Errorf("it expires at %s", got)
	}
	b.get(at+"?view=edit").send("edit-form", "expires", "", "body", `{"a":1}`).want(200, "The new version was saved")
	first := expires()
	b.get(at+"?view=edit").send("edit-form", "clock", "keep", "body", `{"a":2}`).want(200, "The new version was saved")
	if got := expires(); got != first {
		t.Errorf("with the kept clock it expires at %s, want %s", got, first)
	}
	edit := b.get(at + "?view=edit")
	r.put("clocks", "1", `{"a":3}`)
	edit.send("edit-form", "expires", instant).want(412, "Somebody else has changed").send("mine-form").want(200,
		"The new version was saved")
	if got := expires(); got != "2030-01-31T18:00:00.000Z" {
		t.Errorf("after a conflict it expires at %s", got)
	}
	b.get("/console/collections/clocks/configure").send("configure-form", "max", "7200").want(200,
		"1 document does not keep to the limits")
}
