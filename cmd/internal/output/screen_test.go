package output

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestScreen: a terminal gets what was sent by others with each control character escaped, on both streams, and what
// lapse tells it as it is; a pipe gets the bytes as they are.
func TestScreen(t *testing.T) {
	s, shown := terminal(t, "")
	s = s.Screens()
	for in, want := range map[string]string{
		"plain\ttext é日本\n":                "plain\ttext é日本\n",
		"\x1b[2J\x07\r":                    `\u001b[2J\u0007\u000d`,
		"\u009b31m \u202eabc\u2066":        `\u009b31m \u202eabc\u2066`,
		"\x9b\xff\xe2\x82":                 `\x9b\xff`, // the rest may come yet
		"\x1b_lapse;\x1b[31m;\x1b]0;x\x07": `\xe2\x82\u001b_lapse;\u001b[31m;\u001b]0;x\u0007`,
		"�":                                "�",
	} {
		if strings.HasPrefix(in, "\x1b_") { // after what has not come whole
			_, _ = s.Out.Write([]byte("\xe2\x82"))
		}
		shown.Reset()
		if n, err := s.Out.Write([]byte(in)); n != len(in) || err != nil || shown.String() != want {
			t.Errorf("%q: %q, want %q (%d, %v)", in, shown, want, n, err)
		}
		s = Streams{In: s.In, Out: shown, Err: shown, Terminal: func(any) bool { return true }}.Screens()
	}
	shown.Reset()
	for _, part := range []string{"\xe6\x97", "\xa5", "\xe2\x80", "\xae!"} { // characters in parts
		_, _ = s.Out.Write([]byte(part))
	}
	if shown.String() != `日\u202e!` {
		t.Errorf("%q", shown)
	}
	shown.Reset()
	s.Warn("\x1b[8m a certificate")
	if want := "\x1b[33mlapse: warning:\x1b[0m " + `\u001b[8m a certificate` + "\n"; shown.String() != want {
		t.Errorf("%q, want %q", shown, want)
	}
	var pipe bytes.Buffer
	s = Streams{Out: &pipe, Err: shown, Terminal: func(stream any) bool { return stream != any(&pipe) }}.Screens()
	_, _ = s.Out.Write([]byte("\x1b\u009b\xff\r\n"))
	if pipe.String() != "\x1b\u009b\xff\r\n" {
		t.Errorf("a pipe gets %q", pipe.String())
	}
}

// FuzzScreen: whatever comes, in whatever parts, the terminal gets no character to obey, and nothing is lost.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\x1b[2J\u202e"), 1)
	f.Add([]byte("\x9b\xe2\x80\xae"), 2)
	f.Fuzz(func(t *testing.T, text []byte, part int) {
		var shown bytes.Buffer
		s := &screen{w: &shown}
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+max(part, -part)%7)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		got := shown.String()
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool {
			return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
		}) {
			t.Errorf("%q shows %q", text, got)
		}
		plain := !bytes.ContainsFunc(text, hidden)
		if plain && got != string(text) {
			t.Errorf("%q shows %q", text, got)
		}
	})
}
