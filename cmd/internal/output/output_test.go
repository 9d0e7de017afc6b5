package output

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
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

// terminal returns streams of which all are a terminal, and what is written to it.
func terminal(t *testing.T, in string) (Streams, *bytes.Buffer) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	var screen bytes.Buffer
	return Streams{In: strings.NewReader(in), Out: &screen, Err: &screen, Terminal: func(any) bool { return true }},
		&screen
}

func TestPrintDocument(t *testing.T) {
	s, screen := terminal(t, "")
	for in, want := range map[string]string{
		`{"a":"b\"}:","n":-1.50e3,"x":null}`: "{\n  \x1b[34m\"a\"\x1b[0m: \x1b[32m\"b\\\"}:\"\x1b[0m,\n  " +
			"\x1b[34m\"n\"\x1b[0m: \x1b[33m-1.50e3\x1b[0m,\n  \x1b[34m\"x\"\x1b[0m: \x1b[33mnull\x1b[0m\n}\n",
		"{\"\u009b2J\":\"\u202e\x7f\"}": "{\n  \x1b[34m\"\\u009b2J\"\x1b[0m: \x1b[32m\"\\u202e\\u007f\"\x1b[0m\n}\n",
		`{}`:                            "{}\n",
		`[{}]`:                          "[\n  {}\n]\n",
		`{"n":1`:                        "{\"n\":1\n", // not a document
	} {
		screen.Reset()
		if err := s.PrintDocument([]byte(in)); err != nil || screen.String() != want {
			t.Errorf("%s: %q, %v", in, screen, err)
		}
	}
	const flat = `{ "a" : "` + "\u202e" + `" }`
	t.Setenv("NO_COLOR", "1")
	screen.Reset()
	if _ = s.PrintDocument([]byte(flat)); screen.String() != "{\n  \"a\": \"\\u202e\"\n}\n" {
		t.Errorf("without colours: %q", screen)
	}
	for name, s := range map[string]Streams{"a pipe": {Out: screen}, "standard error is a terminal": {Out: screen,
		Err: &strings.Builder{}, Terminal: func(stream any) bool { return stream != any(screen) }}} {
		screen.Reset()
		if _ = s.PrintDocument([]byte(flat)); screen.String() != flat+"\n" {
			t.Errorf("%s: %q", name, screen)
		}
	}
}

func TestColours(t *testing.T) {
	s, screen := terminal(t, "")
	const want = "\x1b[33mlapse: warning:\x1b[0m text\n"
	if s.Warn("text"); screen.String() != want {
		t.Errorf("%q", screen)
	}
	for name, value := range map[string]string{"NO_COLOR": "1", "TERM": "dumb"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			screen.Reset()
			if s.Warn("text"); screen.String() != "lapse: warning: text\n" {
				t.Errorf("%q", screen)
			}
		})
	}
}

func TestHeaded(t *testing.T) {
	s, screen := terminal(t, "")
	w := s.Headed()
	for _, part := range []string{"ID ", " ETAG\n1", " 2\n3 4\n"} {
		if n, err := fmt.Fprint(w, part); n != len(part) || err != nil {
			t.Errorf("%q: %d, %v", part, n, err)
		}
	}
	if got := screen.String(); got != "\x1b[1mID  ETAG\x1b[0m\n1 2\n3 4\n" {
		t.Errorf("%q", got)
	}
}

func TestConfirm(t *testing.T) {
	for in, want := range map[string]bool{"y\n": true, " YES\r\n": true, "yes": true, "n\n": false, "\n": false, "": false,
		"yo\ny\n": false} {
		s, screen := terminal(t, in)
		if got, err := s.Confirm(t.Context(), "Drop it?"); got != want || err != nil || screen.String() != "Drop it? [y/N] " {
			t.Errorf("%q: %t, %v, %q", in, got, err, screen)
		}
	}
	s, _ := terminal(t, "")
	if !s.Interactive() {
		t.Error("a terminal is not interactive")
	}
	for _, pipe := range []any{s.In, s.Out} {
		s.Terminal = func(stream any) bool { return stream != pipe }
		if s.Interactive() {
			t.Errorf("%T is a pipe, and it asks", pipe)
		}
	}
}

func TestBar(t *testing.T) {
	for want, got := range map[string]string{
		"importing a [                        ]   0%  0": Bar("importing a", 0, 0, 1000, 0, 0),
		"importing a [============            ]  50%  1,200  600/s  3s left": Bar("importing a", 0, 500, 1000, 1200,
			2*time.Second),
		"importing a [==================      ]  75%  1,200  600/s  2s left": Bar("importing a", 250, 750, 1000, 1200,
			2*time.Second),
		"importing a [========================] 100%  1,234,567  1,234,567/s": Bar("importing a", 0, 1000, 1000, 1234567,
			time.Second),
		"importing a [========================] 100%  5": Bar("importing a", 5, 5, 0, 5, time.Second),
		"importing a [                        ]   0%  1  0/s  27h46m40s left": Bar("importing a", 0, 1, 10001, 1,
			10*time.Second-1),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -100: "-100", -123456: "-123,456",
		1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
