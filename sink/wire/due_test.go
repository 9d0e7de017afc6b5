package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestTargetFilters: a filter has the wildcards of NATS as whole tokens, and selects what NATS selects.
//
// Goes red if > selects the tokens before it alone, or * more than one token.
func TestTargetFilters(t *testing.T) {
	for _, c := range []struct{ filter, yes, no string }{
		{"mail.send", "mail.send", "mail mail.other mail.send.now"},
		{"mail.>", "mail.send mail.send.now", "mail mails.send"},
		{">", "mail a.b.c.d.e.f.g.h", ""},
		{"*", "mail", "mail.send"},
		{"*.send", "mail.send", "mail.other send mail.send.now"},
		{"mail.*.now", "mail.send.now", "mail.send mail.now"},
		{"a.*.>", "a.b.c", "a.b"},
	} {
		if err := wire.CheckTargetFilter(c.filter); err != nil {
			t.Error(err)
		}
		for want, targets := range map[bool]string{true: c.yes, false: c.no} {
			for _, target := range strings.Fields(targets) {
				if wire.MatchTarget(c.filter, target) != want {
					t.Errorf("filter %s selects target %s: %v", c.filter, target, !want)
				}
			}
		}
	}
	for _, bad := range []string{"", ".", "mail.", "mail>", "m*", "*x.y", ">.x", "a.>.b", "a b", strings.Repeat("a.", 8) +
		">"} {
		err := wire.CheckTargetFilter(bad)
		if !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("filter %q: %v", bad, err)
		}
	}
}

// TestStoredDue: the stream stores a target of two tokens with a number in place of the second one.
func TestStoredDue(t *testing.T) {
	p := wire.DefaultPrefix
	for filter, want := range map[string]string{
		"mail": "lapse.due.mail", "mail.send": p.Stored("lapse.due.mail.send"),
		"*.send": strings.Replace(p.Stored("lapse.due.mail.send"), "mail", "*", 1),
		"mail.*": "lapse.due.mail.*", "mail.>": "lapse.due.mail.>", "a.b.c": "lapse.due.a.b.c", ">": "lapse.due.>",
	} {
		if got := p.StoredDue(filter); got != want || filter == "mail.send" && got == "lapse.due.mail.send" {
			t.Errorf("filter %s is stored as %s, want %s", filter, got, want)
		}
	}
}

// TestParseDue: the headers of a due message are its document's names, and its body keeps its bytes.
func TestParseDue(t *testing.T) {
	header := map[string][]string{
		"ce-source": {"/lapse/1790000000000/collections/mail"}, "ce-subject": {"a%2Eb"}, "ce-id": {"mail/a%2Eb/7"},
		"ce-time": {"2026-01-31T12:00:05.123Z"}, wire.HeaderTarget: {"mail.send"},
	}
	want := wire.Due{ID: "a.b", Collection: "mail", Target: "mail.send", Document: []byte(` {"a": "<"} `), Etag: 7,
		DueAt: 1769860805123}
	read := func(header map[string][]string, body []byte) (wire.Due, error) {
		n, err := wire.ParseEvent(wire.DefaultPrefix, "lapse.due.mail.3", header, body)
		return *n.Due, err
	}
	got, err := read(header, want.Document)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	text := got.Encode()
	var back wire.Due
	if err := json.Unmarshal(text, &back); err != nil || !bytes.Contains(text, []byte(` {"a": "<"} `)) {
		t.Errorf("%s: %v", text, err)
	}
	back.Document = want.Document
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	header[wire.HeaderTruncated] = []string{"4000"}
	if got, err = read(header, nil); err != nil || !got.Omitted || got.Document != nil || !bytes.Contains(got.Encode(),
		[]byte(`"documentOmitted":true`)) {
		t.Errorf("%+v, %v", got, err)
	}
	for name := range header {
		if name == wire.HeaderTruncated {
			continue
		}
		kept := header[name]
		header[name] = []string{"?/%"}
		if _, err := read(header, nil); err == nil {
			t.Errorf("header %s is not valid, and the message is read", name)
		}
		header[name] = kept
	}
	if _, err := read(nil, nil); err == nil {
		t.Error("a message without headers is read")
	}
}
