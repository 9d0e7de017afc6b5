package ndjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"
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

// FuzzDocumentID: an id is the last member "id" of an object, and nothing else.
func FuzzDocumentID(f *testing.F) {
	for _, seed := range []string{`{"id":"1"}`, `{"ID":"1"}`, `{"id":1}`, `{"id":null}`, `[]`, `null`, `{`, `{"id":"\u00e9"}`, `{"id":"1","id":"2"}`} {
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
