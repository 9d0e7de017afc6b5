package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestLines(t *testing.T) {
	const longest = 10
	long := strings.Repeat("x", 200_000)
	for in, want := range map[string][]string{
		"":                             nil,
		"\n\r\n \t\n":                  nil,
		"a":                            {"1 a"},
		"a\nb\r\n\n c \nd":             {"1 a", "2 b", "4 c", "5 d"},
		"\xef\xbb\xbf{}\n\xef\xbb\xbf": {"1 {}", "2 \xef\xbb\xbf"},
		"1234567890\r\n12345678901\n1": {"1 1234567890", "2 the line has 11 bytes: use at most 10", "3 1"},
		long + "\nb\n" + long: {"1 the line has 200000 bytes: use at most 10", "2 b",
			"3 the line has 200000 bytes: use at most 10"},
	} {
		var got []string
		for l := range lines(t.Context(), strings.NewReader(in), longest) {
			text := string(l.text)
			if l.err != nil {
				text = l.err.Error()
			}
			got = append(got, fmt.Sprintf("%d %s", l.number, text))
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%.40q: got %.200q, want %.200q", in, got, want)
		}
	}

	torn := io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.ErrUnsupported))
	var got []line
	for l := range lines(t.Context(), torn, longest) {
		got = append(got, l)
	}
	if len(got) != 2 || string(got[0].text) != "a" || got[1].number != 0 || !errors.Is(got[1].err, errors.ErrUnsupported) {
		t.Errorf("an input that fails: %+v", got)
	}

	ctx, cancel := context.WithCancel(t.Context())
	endless := lines(ctx, strings.NewReader(strings.Repeat("a\n", 1000)), longest)
	<-endless
	cancel()
	n := 0
	for range endless {
		n++
	}
	if n > 500 {
		t.Errorf("%d lines after the end", n)
	}
}

func TestMessageID(t *testing.T) {
	seen := make(map[string]string)
	for what, id := range map[string]string{
		"one":              messageID("p", line{number: 1, text: []byte("{}")}, "s"),
		"of another line":  messageID("p", line{number: 2, text: []byte("{}")}, "s"),
		"with other bytes": messageID("p", line{number: 1, text: []byte("{ }")}, "s"),
		"somewhere else":   messageID("p", line{number: 1, text: []byte("{}")}, "t"),
		"of another run":   messageID("q", line{number: 1, text: []byte("{}")}, "s"),
	} {
		if other, ok := seen[id]; ok {
			t.Errorf("a message %s and one %s have the same id %s", what, other, id)
		}
		seen[id] = what
	}
	if again := messageID("p", line{number: 1, text: []byte("{}")}, "s"); seen[again] != "one" {
		t.Errorf("the same line has another id: %s", again)
	}
}

// TestLeft: an import knows how much there is to read only of a file.
func TestLeft(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("0123456789"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for in, want := range map[io.Reader]int64{f: 7, r: 0, strings.NewReader("a"): 0} {
		if got := left(in); got != want {
			t.Errorf("%T: %d bytes, want %d", in, got, want)
		}
	}
}
