package ndjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

// FuzzReader: the lines are those of bytes.Split, whatever pieces they come in, and one that is
// too long is counted and not kept. It fails if a later line changes the text of an earlier one:
// a message that has the text may be sent again.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbfa\nb\r\n\n ccccccccccccccccccccccccccccccccccccccc\nd"), uint8(20))
	f.Add([]byte("a\r\r\r\r\r\r\r\r\n"), uint8(3))
	f.Add([]byte(""), uint8(1))
	f.Fuzz(func(t *testing.T, input []byte, most uint8) {
		r := NewReader(iotest.OneByteReader(bytes.NewReader(input)), int(most))
		var got, want []Line
		for {
			l, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		for n, text := range bytes.Split(input, []byte("\n")) {
			text = bytes.TrimSuffix(text, []byte("\r"))
			l := Line{Number: n + 1, Size: len(text), TooLong: len(text) > int(most)}
			if n == 0 {
				text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
			}
			if !l.TooLong {
				l.Text = bytes.TrimSpace(text)
			}
			if l.TooLong || len(l.Text) > 0 {
				want = append(want, l)
			}
		}
		same := func(a, b Line) bool {
			return a.Number == b.Number && a.Size == b.Size && a.TooLong == b.TooLong && bytes.Equal(a.Text, b.Text)
		}
		if !slices.EqualFunc(got, want, same) {
			t.Fatalf("%q: %+v, want %+v", input, got, want)
		}
	})
}

// TestReaderFails: the error of an input that cannot be read is not the end of the input.
func TestReaderFails(t *testing.T) {
	gone := errors.New("the disk is gone")
	r := NewReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(gone)), 20)
	if l, err := r.Next(); string(l.Text) != "a" || err != nil {
		t.Errorf("the first line is %q: %v", l.Text, err)
	}
	if l, err := r.Next(); !errors.Is(err, gone) {
		t.Errorf("the line that was not read whole is %q: %v", l.Text, err)
	}
}

// FuzzDocumentID: an id is the last member "id" of an object, and nothing else.
func FuzzDocumentID(f *testing.F) {
	for _, seed := range []string{`{"id":"1"}`, `{"ID":"1"}`, `{"id":1}`, `{"id":null}`, `[]`, `null`, `{`,
		`{"id":"\u00e9"}`, `{"id":"1","id":"2"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, err := DocumentID(line)
		if err != nil {
			return
		}
		var members map[string]any
		if json.Unmarshal(line, &members) != nil || members["id"] != id || id == "" || len(id) > 255 {
			t.Errorf("%q has the id %q", line, id)
		}
	})
}

// TestAppendIsParsed: an import reads what an export has written, to the byte.
//
// Goes red if a document changes or loses what belongs to it, if a line has a line break, or if a document that looks
// like a line of an export is taken for one.
func TestAppendIsParsed(t *testing.T) {
	instant := rapid.Custom(func(t *rapid.T) *wire.Time {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return new(wire.Time(rapid.Int64Range(1, 4_000_000_000_000).Draw(t, "instant")))
	})
	document := rapid.SampledFrom([]string{`{}`, ` { } `, "{\n \"a\": 1.0e2\r\n}\n", `{"lapse":1,"id":"x"}`,
		`{"n":[1, 2],"x":"<&> \u00e9 \ud800  "}`, `{"$lapse":{"target":"a"}}`, "\t{\"ttl\":5}"})
	id := rapid.StringN(1, 60, wire.MaxID).Filter(func(id string) bool { return wire.CheckID(id) == nil })
	rapid.Check(t, func(t *rapid.T) {
		doc := wire.Document{
			ID: id.Draw(t, "id"), Ts: 5, Clock: wire.Time(rapid.Int64Range(0, 9).Draw(t, "clock")),
			Created: wire.Time(rapid.Int64Range(0, 2).Draw(t, "created")), Deadline: instant.Draw(t, "deadline"),
			NotAfter: instant.Draw(t, "notAfter"), Target: rapid.SampledFrom([]string{"", "mail", "a.b"}).Draw(t, "target"),
			Traceparent: rapid.SampledFrom([]string{"", "00-1-2-01"}).Draw(t, "trace"),
			Document:    []byte(document.Draw(t, "document")),
		}
		line, err := Append(nil, doc)
		if err != nil || strings.ContainsAny(string(line), "\r\n") || !IsExported(line) || Envelope(line) != "" {
			t.Fatalf("%q: %v", line, err)
		}
		text := func(at *wire.Time) string {
			if at == nil {
				return ""
			}
			return at.String()
		}
		want := Record{ID: doc.ID, Document: doc.Document, Clock: doc.Clock.String(), Deadline: text(doc.Deadline),
			NotAfter: text(doc.NotAfter), Target: doc.Target, Traceparent: doc.Traceparent, Whole: true}
		if doc.Created != 0 {
			want.Created = doc.Created.String()
		}
		if doc.Clock == 0 {
			want.Clock = doc.Ts.String()
		}
		got, err := Parse(line)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Fatalf("%s: %v (-want +got):\n%s", line, err, diff)
		}
	})
}

// TestParse: what lines are, beside those of an export.
func TestParse(t *testing.T) {
	for line, want := range map[string]Record{
		` {"id":"a", "n":1} `:    {ID: "a", Document: []byte(` {"id":"a", "n":1} `)},
		`{"lapse":"1","id":"a"}`: {ID: "a", Document: []byte(`{"lapse":"1","id":"a"}`)},
		`{"id":"a","lapse":1}`:   {ID: "a", Document: []byte(`{"id":"a","lapse":1}`)},
		`{"$lapse":1,"id":"a"}`:  {ID: "a", Document: []byte(`{"$lapse":1,"id":"a"}`)},
		`{"$lapse":{"id":"a","target":"mail","expiresAt":"2026-01-31T12:00:05.123Z"},"to":"<"}`: {ID: "a", Target: "mail",
			Deadline: "2026-01-31T12:00:05.123Z", Document: []byte(`{"to":"<"}`)},
		`{"$lapse":{"id":"a"},"$lapse":{"target":"x"}}`: {ID: "a",
			Document: []byte(`{"$lapse":{"target":"x"}}`)},
		`{ "lapse" : 1, "id":"a", "document": {"b": 1}}`: {ID: "a",
			Document: []byte(`{"b": 1}`), Whole: true},
	} {
		got, err := Parse([]byte(line))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, diff)
		}
	}
	for line, want := range map[string]string{
		`{"lapse":2,"id":"a","document":{}}`:                   "version 2",
		`{"lapse":1,"id":"a"}`:                                 "has no document",
		`{"lapse":1,"id":"a","document":{},"text":"{}"}`:       "either document or text",
		`{"lapse":1,"id":"a","document":{},"more":1}`:          `unknown field "more"`,
		`{"lapse":1,"id":"","document":{}}`:                    "1 to 255",
		`{"lapse":1,"id":"a","document":{}} x`:                 "more behind",
		`{"lapse":1,"id":"a","document":{},"clock":"now"}`:     "begins as one of an export",
		`{"$lapse":{"ttl":5}}`:                                 `unknown field "ttl"`,
		`{"$lapse":{"id":7}}`:                                  "is not valid",
		`{"$lapse":{"id":"` + strings.Repeat("x", 256) + `"}}`: "256 bytes",
		`{"n":1}`: "has no id", `{"id":1}`: "is not a string", `[]`: "not a JSON object",
	} {
		if r, err := Parse([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", line, r, err, want)
		}
	}
	if r, err := (Shape{AsIs: true}).Record([]byte(`{"lapse":1,"id":"a"}`)); err != nil || r.Whole {
		t.Errorf("as it is: %+v, %v", r, err)
	}
}
