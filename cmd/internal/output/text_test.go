package output_test

import (
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

func TestName(t *testing.T) {
	for in, want := range map[string]string{
		"42": "42", "a.b/c": "a.b/c", "é✓": "é✓", `a\b`: `a\b`, "a b": `"a b"`, "a\nb": `"a\nb"`, "a\r\tb": `"a\r\tb"`,
		"\x1b[2J": `"\x1b[2J"`, `"`: `"\""`, `a "\`: `"a \"\\"`, "": "", "\xff": `"\xff"`, "\ufffd": "\ufffd",
		"e\u0301":    `"e\u0301"`,    // é, of a letter and a combining accent
		"a\u00a0b":   `"a\u00a0b"`,   // no-break space
		"a\u200bb":   `"a\u200bb"`,   // zero width space
		"a\u200db":   `"a\u200db"`,   // zero width joiner
		"\u202eabc":  `"\u202eabc"`,  // right-to-left override
		"a\u2066b":   `"a\u2066b"`,   // left-to-right isolate
		"a\u00adb":   `"a\u00adb"`,   // soft hyphen
		"a\ufe0fb":   `"a\ufe0fb"`,   // variation selector
		"a\u3164b":   `"a\u3164b"`,   // Hangul filler: a letter that is not seen
		"a\u2800b":   `"a\u2800b"`,   // Braille blank
		"a\u0085b":   `"a\u0085b"`,   // a control of Latin-1
		"a\ufeffb":   `"a\ufeffb"`,   // byte order mark
		"\U000e0041": `"\U000e0041"`, // a tag
		"\ue000":     `"\ue000"`,     // private use
		"日本語":        "日本語",
	} {
		if got := output.Name(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
