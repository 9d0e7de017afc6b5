package events

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestCloudEventsAreUnique: source and id together are unique among all logs, also of two
// prefixes, and if a log was created again under the same name.
func TestCloudEventsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, log := range []Source{
		testLog,
		NewSource(wire.Prefix("other").Log(0, 1), 1_780_000_000_456),
		NewSource(prefix.Log(0, 1), 1_780_000_000_457),
	} {
		h := Expired(log, wire.Event{ID: "x", Collection: "c", Etag: 1}, "").msg.Header
		seen[h.Get("ce-source")+" "+h.Get("ce-id")] = true
	}
	if len(seen) != 3 {
		t.Errorf("three logs have the events %v", seen)
	}
}

// TestG8_RejectionFitsWhateverIsLong: whichever part of a rejected message is long, the stream
// stores its rejection, with as much of it as fits and a note of what is missing.
//
// Goes red if truncate cuts only the body.
func TestG8_RejectionFitsWhateverIsLong(t *testing.T) {
	const most = 8192
	for _, size := range []struct{ subject, text, body int }{
		{30, 30, 0}, {4000, 1000, 0}, {4000, 1000, 3000}, {4000, 1000, 1 << 20}, {9000, 100, 0}, {9000, 1000, 5000}, {60_000,
			1000, 1 << 20}, {100, 60_000, 0}, {60_000, 60_000, 60_000},
	} {
		subject, text, body := strings.Repeat("s", size.subject), strings.Repeat("é", size.text/2), strings.Repeat("b",
			size.body)
		m := Rejected(testLog, Rejection{Subject: subject, Rest: subject, Seq: 7, Code: 400, Error: text, Body: []byte(body)})
		if err := m.shrink(most, "the limit of the test"); err != nil || m.size() > most {
			t.Errorf("%+v: the rejection has %d bytes: %v", size, m.size(), err)
		}
		h := m.msg.Header
		if cut := h.Get("Lapse-Truncated"); !strings.HasPrefix(body, string(m.msg.Data)) ||
			(cut != "") != (len(m.msg.Data) < len(body)) || cut != "" && cut != strconv.Itoa(len(body)) {
			t.Errorf("%+v: it has %d bytes of the body, and says that it is cut: %q", size, len(m.msg.Data), cut)
		}
		if got := h.Get("Lapse-Subject"); got != subject && (!strings.HasSuffix(got, "...") || !strings.HasPrefix(subject,
			got[:len(got)-3])) {
			t.Errorf("%+v: its subject is %.80q", size, got)
		}
		if got := h.Get("Lapse-Error"); !strings.HasPrefix(got, text) && !strings.Contains(got, "...") ||
			!utf8.ValidString(got) || got == "" {
			t.Errorf("%+v: its error is %.80q", size, got)
		}
		if size.subject+size.body > 12_000 && m.size() < most-8 {
			t.Errorf("%+v: it has %d bytes only", size, m.size())
		}
	}
}
