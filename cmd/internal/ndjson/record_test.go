package ndjson

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestAppendIsParsed: an import reads what an export has written: the document with its id, or a message
// with its id, its target and its time, and a body without them.
//
// Goes red if a message loses one of them, or if a document of a user that begins with $lapse is read as one.
func TestAppendIsParsed(t *testing.T) {
	const id = "a<\"é"
	at := new(wire.Time(1769860805123))
	for _, c := range []struct {
		document, target string
		line             string
		want             Record
	}{
		{`{}`, "", `{"id":"a<\"é"}`, Record{ID: id, Document: []byte(`{"id":"a<\"é"}`)}},
		{" {\n \"n\" : 1.0e2 } ", "", `{"id":"a<\"é","n":1.0e2}`, Record{ID: id}},
		{`{"n":{"id":1},"x":"<&> \u00e9"}`, "", `{"id":"a<\"é","n":{"id":1},"x":"<&> \u00e9"}`, Record{ID: id}},
		{`{"ID":1}`, "", `{"id":"a<\"é","ID":1}`, Record{ID: id}},
		{`{"n":1, "id":"a<\"é"}`, "", `{"n":1,"id":"a<\"é"}`, Record{ID: id}},
		{`{"i\u0064":"a<\"é"}`, "", `{"i\u0064":"a<\"é"}`, Record{ID: id}},
		{`{}`, "mail", `{"$lapse":{"id":"a<\"é","target":"mail","expiresAt":"2026-01-31T12:00:05.123Z"}}`,
			Record{ID: id, Target: "mail", ExpiresAt: at.String(), Document: []byte(`{}`)}},
		{` {"to": "<", "id":"a<\"é"}`, "mail.send", `{"$lapse":{"id":"a<\"é","target":"mail.send","expiresAt":"2026-01-31T12:00:05.123Z"},"to":"<","id":"a<\"é"}`,
			Record{ID: id, Target: "mail.send", ExpiresAt: at.String(), Document: []byte(`{"to":"<","id":"a<\"é"}`)}},
		{`{"ttl":5}`, "mail", `{"$lapse":{"id":"a<\"é","target":"mail"},"ttl":5}`, Record{ID: id, Target: "mail", Document: []byte(`{"ttl":5}`)}},
		{`{"ttl":null}`, "mail", `{"$lapse":{"id":"a<\"é","target":"mail","expiresAt":"2026-01-31T12:00:05.123Z"},"ttl":null}`,
			Record{ID: id, Target: "mail", ExpiresAt: at.String(), Document: []byte(`{"ttl":null}`)}},
		{`{"$lapse":{"target":"x"},"id":"a<\"é"}`, "", `{"$lapse":{"id":"a<\"é"},"$lapse":{"target":"x"},"id":"a<\"é"}`,
			Record{ID: id, Document: []byte(`{"$lapse":{"target":"x"},"id":"a<\"é"}`)}},
		{`{"$lapse":1}`, "", `{"id":"a<\"é","$lapse":1}`, Record{ID: id}},
	} {
		got, err := Append(nil, wire.Document{ID: id, Target: c.target, ExpiresAt: at, Document: []byte(c.document)})
		if err != nil || string(got) != c.line {
			t.Errorf("%s: %s, %v; want %s", c.document, got, err, c.line)
			continue
		}
		if c.want.Document == nil {
			c.want.Document = got
		}
		if diff := cmp.Diff(c.want, must(t, got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", got, diff)
		}
		if diff := cmp.Diff(c.want, must(t, []byte(strings.Replace(string(got), `{"$lapse":`, " { \t\"$lapse\" : ", 1)))); c.target != "" && diff != "" {
			t.Errorf("%s with white space (-want +got):\n%s", got, diff)
		}
	}
	if _, err := Append(nil, wire.Document{ID: "a", Document: []byte("[]")}); err == nil {
		t.Error("no error")
	}
	for line, want := range map[string]string{
		`{"$lapse":{"ttl":5}}`: `unknown field "ttl"`, `{"$lapse":5,"id":"a"}`: "is not valid", `{"$lapse":{"target":"a"}}`: "has no id",
		`{"$lapse":{"id":7}}`: "is not valid", `{"$lapse":`: "is not valid", `{"$lapse":{"id":"` + strings.Repeat("x", 256) + `"}}`: "256 bytes",
	} {
		if r, err := Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", line, r, err, want)
		}
	}
}

func must(t *testing.T, line []byte) Record {
	t.Helper()
	r, err := Parse(line)
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return r
}
