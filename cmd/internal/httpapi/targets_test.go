package httpapi_test

import (
	"strings"
	"testing"
	"time"
)

// TestTargets: the header Lapse-Target makes a document a message, and is on what reads it.
//
// Goes red if a write or an import loses the target, or if a read does not have it.
func TestTargets(t *testing.T) {
	r := start(t)
	const collection, path, many, name = "/collections/mail", "/collections/mail/documents/1",
		"/collections/mail/documents", "Lapse-Target"
	r.do("PUT", collection, `{"defaultTtl":3600}`).want(t, 200)
	at := time.Now().Add(2 * time.Hour).UTC().Format("2006-01-02T15:04:05.000Z")
	r.do("PUT", path, `{"to":"ada"}`, "If-None-Match", "*", name, "mail.send", "Lapse-Expires-At", at).want(t, 201)
	read := r.do("GET", path, "").want(t, 200, `{"to":"ada"}`)
	read.header(t, name, "mail.send")
	r.do("HEAD", path, "").want(t, 200).header(t, name, "mail.send")
	r.do("GET", path, "", "If-None-Match", read.Header.Get("Etag")).want(t, 304).header(t, name, "mail.send")
	r.do("GET", many, "").want(t, 200, `"target":"mail.send"`)
	r.do("GET", many+"?ids=1", "").want(t, 200, `"target":"mail.send"`)
	r.do("PATCH", path, `{"cc":"bo"}`, "Prefer", "return=representation").want(t, 200, "bo").header(t, name, "mail.send")
	r.do("POST", path+"/touch", "").want(t, 200)
	r.do("GET", path, "").want(t, 200).header(t, name, "mail.send")
	r.do("PUT", path, `{}`, name, "a").want(t, 200)
	r.do("GET", path, "").want(t, 200).header(t, name, "a")
	r.do("PUT", path, `{}`).want(t, 200)
	r.do("GET", path, "").want(t, 200).header(t, name, "")

	r.do("PUT", path, `{}`, name, "a..b").want(t, 400, "empty token")
	r.do("PUT", path, `{}`, name, "").want(t, 400, "Lapse-Target is empty")
	r.do("PATCH", path, `{}`, name, "a").want(t, 400, "only allowed on upsert, create and replace")
	r.do("PUT", collection, `{}`, name, "a").want(t, 400, name)
	r.do("POST", many, `{"id":"x"}`, "Content-Type", linesType, name, "a").want(t, 400,
		"no meaning for many documents at once")

	// A request with the same key and another target is another one.
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", name, "a").want(t, 200)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", name, "a").want(t, 200)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k", name, "b").want(t, 422)
	r.do("PUT", path, `{}`, "Idempotency-Key", "k").want(t, 422)

	// An import takes what an export of a message has written; with patch and delete it is only the id that counts.
	line := `{"$lapse":{"id":"2","target":"mail.send","expiresAt":"` + at + `"},"to":"cy"}` + "\n"
	bad := `{"$lapse":{"ttl":5},"id":"3"}` + "\n"
	r.do("POST", many, line+bad, "Content-Type", linesType).want(t, 200, `"id":"2","status":201`, `"line":2,"status":400`)
	imported := r.do("GET", many+"/2", "").want(t, 200)
	imported.header(t, name, "mail.send")
	imported.header(t, "Lapse-Expires-At", at)
	r.do("POST", many+"?op=patch", line, "Content-Type", linesType).want(t, 200, `"id":"2","status":200`)
	patched := r.do("GET", many+"/2", "").want(t, 200)
	if patched.header(t, name, "mail.send"); patched.body != `{"to":"cy"}` {
		t.Errorf("the import has written %s", patched.body)
	}
	r.do("POST", many+"?op=delete", line, "Content-Type", linesType).want(t, 200, `"id":"2","status":204`)
}

// TestG3_DueEvents: a client follows the messages of documents of a collection, whatever their targets are, as
// they come and from the past, and gets no expiry events.
func TestG3_DueEvents(t *testing.T) {
	r := start(t)
	for _, c := range []string{"mail", "foreign"} {
		r.do("PUT", "/collections/"+c, `{"defaultTtl":-1}`).want(t, 200)
	}
	send := func(collection, id, target string) {
		t.Helper()
		r.do("PUT", "/collections/"+collection+"/documents/"+id, `{"ttl": 1}`, "Lapse-Target", target).want(t, 201)
	}
	send("foreign", "0", "mail.send")
	send("mail", "1", "other.x.y") // before anybody follows
	r.expire("mail", 9, 1)
	past := r.follow("/events?type=due&collection=mail&since=1h")
	first := past.next()
	if !strings.HasPrefix(first.data,
		`{"id":"1","collection":"mail","target":"other.x.y","document":{"ttl": 1},"etag":"`) ||
		!strings.Contains(first.data, `","dueAt":"20`) {
		t.Errorf("%+v", first)
	}
	live := r.follow("/events?type=due&collection=mail")
	send("mail", "2", "mail.send")
	second := live.next()
	if !strings.HasPrefix(second.data, `{"id":"2","collection":"mail","target":"mail.send"`) {
		t.Errorf("%+v", second)
	}
	if e := past.next(); e != second {
		t.Errorf("after the past: %+v", e)
	}
	all := r.follow("/events?type=due&since=1h")
	// in any order
	if both := all.next().data + all.next().data; !strings.Contains(both, `{"id":"0","collection":"foreign"`) {
		t.Errorf("of all collections: %s", both)
	}
	r.do("GET", "/events?type=x", "").want(t, 400, "due for messages")
}
