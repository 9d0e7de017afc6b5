package wire_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

// idToken is the pattern of an id's token in the contract.
var idToken = regexp.MustCompile(`^(?:[A-Za-z0-9_\-~:@+=,]|%[0-9A-F]{2})+$`)

// drawBytes draws any bytes, and often text and bytes that look like parts of an escape.
func drawBytes(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 300), func(b []byte) string { return string(b) }),
		rapid.StringN(0, 100, 300),
		rapid.StringMatching(`[%0-9A-Fa-f.*>~:@+=, _\-]{0,40}`),
	).Draw(t, label)
}

// UnescapeID returns every valid id from the token that EscapeID writes, which has only the
// characters of the contract. It returns no invalid id.
//
// Goes red if EscapeID does not escape a byte that must be escaped, if it writes hexadecimal
// in lower case, or if text that is not UTF-8 passes. TestIDLimits tests the limits.
func TestIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawBytes(t, "id")
		token := wire.EscapeID(id)
		if id != "" && !idToken.MatchString(token) {
			t.Fatalf("EscapeID(%q) = %q, which is no token of the contract", id, token)
		}
		got, err := wire.UnescapeID(token)
		valid := len(id) >= 1 && len(id) <= 255 && utf8.ValidString(id)
		if (wire.CheckID(id) == nil) != valid {
			t.Fatalf("CheckID(%q) = %v", id, wire.CheckID(id))
		}
		if !valid {
			if !errors.Is(err, wire.ErrInvalidName) || got != "" {
				t.Fatalf("UnescapeID(%q) = %q, %v; want ErrInvalidName", token, got, err)
			}
			return
		}
		if err != nil || got != id {
			t.Fatalf("UnescapeID(EscapeID(%q)) = %q, %v", id, got, err)
		}
	})
}

// An id has one token: UnescapeID accepts only the token that EscapeID writes. Otherwise one
// document could have two subjects, and two shards.
//
// Goes red if UnescapeID accepts hexadecimal in lower case, or an escape that is not needed.
func TestUnescapeIDIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := drawBytes(t, "token")
		if id, err := wire.UnescapeID(token); err == nil && wire.EscapeID(id) != token {
			t.Fatalf("UnescapeID(%q) = %q, whose token is %q", token, id, wire.EscapeID(id))
		}
	})
}

// Goes red if EscapeID escapes a byte that needs no escape, or does not escape one that does.
func TestEscapeID(t *testing.T) {
	plain := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~:@+=,"
	for b := range 256 {
		c := string([]byte{byte(b)})
		want := c
		if !strings.Contains(plain, c) {
			want = "%" + strings.ToUpper(hex(byte(b)))
		}
		if got := wire.EscapeID(c); got != want {
			t.Errorf("EscapeID(%q) = %q, want %q", c, got, want)
		}
	}
	for id, want := range map[string]string{
		"order-17":    "order-17",
		"a.b":         "a%2Eb",
		"*":           "%2A",
		">":           "%3E",
		"50%":         "50%25",
		"a b":         "a%20b",
		"Grüße":       "Gr%C3%BC%C3%9Fe",
		"a@b:c+d=e,f": "a@b:c+d=e,f",
		"\x00":        "%00",
	} {
		if got := wire.EscapeID(id); got != want {
			t.Errorf("EscapeID(%q) = %q, want %q", id, got, want)
		}
	}
}

func hex(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// UnescapeID refuses each malformed token, and says what is allowed.
func TestUnescapeIDErrors(t *testing.T) {
	tests := []struct{ name, token, says string }{
		{"empty", "", "the id is empty: use 1 to 255 bytes"},
		{"bare percent", "%", "two digits"},
		{"one digit", "%4", "two digits"},
		{"percent at the end", "abc%", "two digits of 0-9 A-F"},
		{"one digit at the end", "abc%4", "two digits"},
		{"no digits", "%zz", "two digits"},
		{"lower case", "%2e", "two digits of 0-9 A-F"},
		{"half lower case", "%C3%bc", "two digits of 0-9 A-F"},
		{"sign for a digit", "%+1", "two digits"},
		{"percent for a digit", "%%25", "two digits"},
		{"escaped letter", "%41", `write it as "A"`},
		{"escaped plain sign", "a%3Ab", `write it as "a:b"`},
		{"raw dot", "a.b", `write it as "a%2Eb"`},
		{"raw wildcard", "*", `write it as "%2A"`},
		{"raw space", "a b", `write it as "a%20b"`},
		{"raw text outside ASCII", "ü", `write it as "%C3%BC"`},
		{"no UTF-8, escaped", "%FF", "not UTF-8"},
		{"no UTF-8, raw", "\xff", "not UTF-8"},
		{"overlong UTF-8", "%C0%80", "not UTF-8"},
		{"surrogate", "%ED%A0%80", "not UTF-8"},
		{"too long", strings.Repeat("a", 256), "256 bytes"},
		{"too long once unescaped", strings.Repeat("%20", 256), "256 bytes"},
		{"far too long", strings.Repeat("a", 100_000), "100000 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id, err := wire.UnescapeID(tt.token)
			if !errors.Is(err, wire.ErrInvalidName) || id != "" {
				t.Fatalf("UnescapeID(%.50q) = %q, %v; want ErrInvalidName", tt.token, id, err)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("UnescapeID(%.50q): error %q does not say %q", tt.token, err, tt.says)
			}
			wantSentence(t, err)
		})
	}
}

// The limits count the bytes of the id, not those of its token, and not characters. Goes red
// if a limit changes by one.
func TestIDLimits(t *testing.T) {
	for _, id := range []string{
		"a", strings.Repeat("a", wire.MaxID), strings.Repeat(" ", wire.MaxID),
		strings.Repeat("ü", wire.MaxID/2), "\x00",
	} {
		if err := wire.CheckID(id); err != nil {
			t.Errorf("CheckID(%.20q, %d bytes) = %v", id, len(id), err)
		}
		if got, err := wire.UnescapeID(wire.EscapeID(id)); err != nil || got != id {
			t.Errorf("%.20q, %d bytes, comes back as %.20q, %v", id, len(id), got, err)
		}
	}
	for _, id := range []string{"", strings.Repeat("a", wire.MaxID+1), strings.Repeat("ü", wire.MaxID/2+1), "a\xffb"} {
		if err := wire.CheckID(id); !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("CheckID(%.20q, %d bytes) = %v, want ErrInvalidName", id, len(id), err)
		}
	}
}

func TestCheckCollection(t *testing.T) {
	for _, name := range []string{"a", "Z", "0", "_", "-", "sessions", "a-b_C9", strings.Repeat("x", wire.MaxCollection)} {
		if err := wire.CheckCollection(name); err != nil {
			t.Errorf("CheckCollection(%q) = %v", name, err)
		}
	}
	for _, name := range []string{
		"", strings.Repeat("x", wire.MaxCollection+1), "a.b", ".", "*", ">", "a b", " " +
			"a", "a\n", "a\x00", "ü", "a%20b", "{a}", "a:b", "a/b", "\xff",
	} {
		err := wire.CheckCollection(name)
		if !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("CheckCollection(%.20q) = %v, want ErrInvalidName", name, err)
			continue
		}
		if !strings.Contains(err.Error(), "use 1 to 128 of A-Z a-z 0-9 _ -") {
			t.Errorf("CheckCollection(%.20q): error %q does not say what is allowed", name, err)
		}
		wantSentence(t, err)
	}
}

// The errors say what is wrong with the name, and what is allowed.
func TestNameErrorTexts(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{wire.CheckCollection(""), "the name of the collection is empty: use 1 to 128 of A-Z a-z 0-9 _ -."},
		{wire.CheckCollection("or.ders"), `collection "or.ders" contains ".": use 1 to 128 of A-Z a-z 0-9 _ -.`},
		{wire.CheckCollection("Grüße"), `collection "Grüße" contains "ü": use 1 to 128 of A-Z a-z 0-9 _ -.`},
		{wire.CheckCollection("a\u00a0b"), `collection "a\u00a0b" contains "\u00a0": use 1 to 128 of A-Z a-z 0-9 _ -.`},
		{wire.CheckCollection(strings.Repeat("x", 129)), `collection "` + strings.Repeat("x",
			60) + `..." is 129 bytes long: use 1 to 128 of A-Z a-z 0-9 _ -.`},
		{wire.CheckID(""), "the id is empty: use 1 to 255 bytes of UTF-8 text."},
		{wire.CheckID("a" + long), `id "a` + strings.Repeat("é",
			29) + `..." is 401 bytes long: use 1 to 255 bytes of UTF-8 text.`},
		{wire.CheckID("a\xff"), `id "a\xff" is not UTF-8: use 1 to 255 bytes of UTF-8 text.`},
		{wire.CheckCollection(strings.Repeat("x", 59) + "."), `collection "` + strings.Repeat("x",
			59) + `." contains ".": use 1 to 128 of A-Z a-z 0-9 _ -.`}, // 60 bytes are not shortened
		{wire.CheckCollection(strings.Repeat("x", 60) + "."), `collection "` + strings.Repeat("x",
			60) + `..." contains ".": use 1 to 128 of A-Z a-z 0-9 _ -.`},
	} {
		if tt.err == nil || tt.err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", tt.err, tt.want)
		}
	}
}

// wantSentence checks that an error is one printable line that fits a header, and that it ends
// with a full stop.
func wantSentence(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 500 || !strings.HasSuffix(text, ".") || strings.ContainsFunc(text,
		func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("error %q is not one short sentence", text)
	}
}

// CheckCollection refuses every byte that the contract does not allow.
func TestCheckCollectionByteByByte(t *testing.T) {
	alphabet := regexp.MustCompile(`^[A-Za-z0-9_-]$`)
	for b := range 256 {
		name := string([]byte{byte(b)})
		if got, want := wire.CheckCollection(name) == nil, alphabet.MatchString(name); got != want {
			t.Errorf("CheckCollection(%q) is fine: %t, want %t", name, got, want)
		}
	}
}

// FuzzUnescapeID: UnescapeID does not panic on any token, accepts only those of the contract,
// and accepts only one token for each id.
func FuzzUnescapeID(f *testing.F) {
	for _, token := range []string{"", "order-17", "a%2Eb", "%", "%2", "%2e", "%41", "a.b", "%FF", "%C3%BC", "*",
		strings.Repeat("%20", 256)} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := wire.UnescapeID(token)
		if err != nil {
			if !errors.Is(err, wire.ErrInvalidName) || id != "" {
				t.Errorf("UnescapeID(%q) = %q, %v", token, id, err)
			}
			// If the token is a valid id without escapes, its escaped form must be accepted.
			if wire.CheckID(token) == nil {
				if got, err := wire.UnescapeID(wire.EscapeID(token)); err != nil || got != token {
					t.Errorf("UnescapeID(EscapeID(%q)) = %q, %v", token, got, err)
				}
			}
			return
		}
		if !idToken.MatchString(token) || wire.EscapeID(id) != token || wire.CheckID(id) != nil {
			t.Errorf("UnescapeID(%q) = %q, which is written %q", token, id, wire.EscapeID(id))
		}
		if wire.EscapeToken(token) != token {
			t.Errorf("EscapeToken(%q) = %q, but it is fit for a subject", token, wire.EscapeToken(token))
		}
	})
}

// A target is tokens of a subject behind lapse.due, and nothing else: no wildcard, no empty token.
//
// Goes red if CheckTarget takes a byte that the contract does not have, or a ninth token.
func TestCheckTarget(t *testing.T) {
	for _, good := range []string{"mail.send", "a", "A-b_9", "1.2.3.4.5.6.7.8", strings.Repeat("x", 128)} {
		if err := wire.CheckTarget(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"": "empty token", ".": "empty token", "mail.": "empty token", ".mail": "empty token", "a..b": "empty token",
		"mail.*": `contains "*"`, ">": `contains ">"`, "a " +
			"b": `contains " "`, "a%2E": `contains "%"`, "é": `contains "é"`, "a\nb": `contains "\n"`,
		"1.2.3.4.5.6.7.8.9": "9 tokens", strings.Repeat("x", 129): "129 bytes",
	} {
		err := wire.CheckTarget(bad)
		if !errors.Is(err, wire.ErrInvalidName) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(),
			"use 1 to 8 tokens of A-Z a-z 0-9 _ -, joined by dots, and at most 128 bytes in all.") {
			t.Errorf("%q: %v, want an ErrInvalidName with %q that says what is allowed", bad, err, says)
		}
	}
}
