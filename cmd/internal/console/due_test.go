package console_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// testDue: a message is shown with its target, keeps target and time when it is edited, also after a mistake and a
// conflict, and is shown as it is delivered.
//
// It fails if a form forgets the target, or the time of a message that has no ttl.
func testDue(t *testing.T, r *rig) {
	r.configure("mail", `{"defaultTtl":-1}`)
	b := r.browse(t)
	const at, instant = "/console/collections/mail/documents/1", "2030-01-31T18:00:00.000Z"
	is := func(target, expires string) {
		t.Helper()
		d, err := r.Get(t.Context(), "mail", "1")
		if err != nil || d.Target != target || expires != "" && (d.ExpiresAt == nil || d.ExpiresAt.String() != expires) {
			t.Fatalf("%+v, %v; want target %q", d, err, target)
		}
	}
	p := b.get("/console/collections/mail/new").send("edit-form", "id", "1", "body", `{"ttl":null}`, "expires",
		instant, "target", "a..b").want(400, "has an empty token")
	if p.element("target-error") == "" || p.form("edit-form").values.Get("target") != "a..b" {
		t.Errorf("a wrong target: %s", p.text)
	}
	p.send("edit-form", "target", "mail.send").want(200, "was created")
	is("mail.send", instant)
	if got := b.get(at).want(200).element("target"); got != "mail.send" {
		t.Errorf("the page says %q", got)
	}
	b.get(at+"?view=edit").send("edit-form", "body", `{"a":1}`).want(200, "The new version was saved")
	is("mail.send", instant)
	edit := b.get(at + "?view=edit")
	r.put("mail", "1", `{"a":3}`)
	edit.send("edit-form", "target", "mail.other").want(412, "Somebody else has changed").send("mine-form").want(200,
		"The new version was saved")
	is("mail.other", instant)
	b.get(at+"?view=edit").send("edit-form", "body", `{"ttl":600}`, "expires", "").want(200, "The new version was saved")
	if p := b.get(at + "?view=edit"); p.form("edit-form").values.Get("expires") != "" {
		t.Error("the time of a message that has a ttl would be absolute")
	}
	b.get(at+"?view=edit").send("edit-form", "target", "").want(200, "The new version was saved")
	is("", "")
	b.get(at).want(200).without("Target")

	b.get("/console/collections/mail/new").send("edit-form", "id", "2", "body", `{"ttl":1,"to":"ada"}`, "target",
		"mail.send").want(200, "was created")
	r.put("mail", "expires", `{"ttl":1}`)
	const live = "/console/live?kind=due&collection=mail"
	harness.Until(t, harness.Limit, "the message is shown", func(context.Context) error {
		if p = b.get(live); len(p.sequences()) != 1 {
			return fmt.Errorf("%d messages", len(p.sequences()))
		}
		return nil
	})
	p.want(200, "Messages whose time has come of mail", "mail.send", "ada").without("expires")
	if stream := p.attribute("messages", "data-stream"); !strings.Contains(stream, "kind=due") {
		t.Errorf("its stream is %s", stream)
	}
	b.get(p.hrefs(fmt.Sprint(p.sequences()[0]))[0]).want(200, "Due: 2", "Due at", "mail.send",
		`"to": "ada"`).without("TTL that")
	b.get("/console/live?kind=due&collection=other").want(200, "Nothing yet.")
}
