package console

import (
	"strings"
	"testing"
	"unicode/utf16"
)

// TestFindBadJSON: the place is the character that is wrong, counted as people and as scripts count.
func TestFindBadJSON(t *testing.T) {
	for _, c := range []struct {
		body         string
		line, column int
		text         string
	}{
		{`{`, 1, 2, `{`},
		{"{\n \"a\": 1,\n}\n", 3, 1, "}"},
		{"{\"ü\":\"😀\", x}", 1, 11, "{\"ü\":\"😀\", x}"},
		{"[1,]", 1, 4, "[1,]"},
		{"{} {}", 1, 4, "{} {}"},
		{"{\"a\u202e\": y}", 1, 8, "{\"a\\u202e\": y}"},
	} {
		got := findBadJSON(c.body)
		if got == nil || got.Line != c.line || got.Column != c.column || got.Text != c.text {
			t.Errorf("%q: %+v, want line %d, column %d, %q", c.body, got, c.line, c.column, c.text)
			continue
		}
		before := strings.Join(strings.SplitAfter(c.body, "\n")[:c.line-1], "")
		want := len(utf16.Encode([]rune(before))) + len(utf16.Encode([]rune(strings.SplitAfter(c.body,
			"\n")[c.line-1])[:c.column-1]))
		if got.At != want {
			t.Errorf("%q: at %d, want %d", c.body, got.At, want)
		}
	}
	for _, good := range []string{"{}", "[1]", "1", `{"a":1.5e9}`} {
		if got := findBadJSON(good); got != nil {
			t.Errorf("%q: %+v", good, got)
		}
	}
	long := findBadJSON(`{"a":"` + strings.Repeat("x", 5000) + `" y`)
	if n := len([]rune(long.Text)); n > 2*snippetRunes+1 || !strings.HasSuffix(long.Text, "y") {
		t.Errorf("%d characters of a long line: %q", n, long.Text)
	}
}
