package output_test

import (
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
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

// TestValues: a value as text, and what stands for a value that is not there.
func TestValues(t *testing.T) {
	at := new(wire.Time(1_800_000_000_000))
	for _, c := range [][2]string{
		{output.Expires(nil), "never"}, {output.Expires(at), "2027-01-15T08:00:00.000Z"},
		{output.DefaultTTL(nil), "off"}, {output.DefaultTTL(new(int32(-1))), "-1"},
		{output.TTL(0), "-"}, {output.TTL(60), "60"},
		{output.Position(0, nil), "-"}, {output.Position(7, at), "7 at 2027-01-15T08:00:00.000Z"},
		{output.Seconds(1.25), "1.2s"},
		{output.Bytes(0), "0 B"}, {output.Bytes(1023), "1023 B"}, {output.Bytes(1024), "1.0 KiB"},
		{output.Bytes(1536), "1.5 KiB"}, {output.Bytes(1 << 20), "1.0 MiB"}, {output.Bytes(1 << 30), "1.0 GiB"},
		{output.Bytes(1 << 40), "1.0 TiB"}, {output.Bytes(1 << 51), "2048.0 TiB"},
		{output.Documents(0), "0 documents"}, {output.Documents(1), "1 document"},
		{output.Documents(1000), "1,000 documents"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}

// TestConfig: a line has only what a configuration has beside its defaults.
func TestConfig(t *testing.T) {
	for want, c := range map[string]wire.Config{
		"orders default-ttl=off indexing=consistent": {IndexingMode: "consistent", EventBody: new(true)},
		"orders default-ttl=60 indexing=none min-ttl=1 max-ttl=2 max-life=3 warn-before=60s,5s slide-on-read " +
			"no-event-body changes paused indexes=a,\"b c\"": {DefaultTTL: new(int32(60)), IndexingMode: "none", MinTTL: 1,
			MaxTTL: 2, MaxLife: 3, WarnBefore: []int32{60, 5}, SlideOnRead: wire.SlideTenth, EventBody: new(false),
			Changes: true, Paused: true, Indexes: []string{"a", "b c"}},
	} {
		if got := output.Config("orders", c); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
