package ttlrules_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestParse: it fails if a limit moves by one, or if anything but a whole JSON number in
// range is let through.
func TestParse(t *testing.T) {
	const invalid = -99
	tests := []struct {
		name  string
		value string
		want  int32
	}{
		{"absent", ``, 0},
		{"null", `null`, 0},
		{"null in white space", " \t\r\n null \t\r\n ", 0},
		{"under the lower limit", `-2`, invalid},
		{"never", `-1`, -1},
		{"zero", `0`, invalid},
		{"negative zero", `-0`, invalid},
		{"least", `1`, 1},
		{"white space", " \t\r\n60 \t\r\n ", 60},
		{"greatest", `2147483647`, 2147483647},
		{"over the greatest", `2147483648`, invalid},
		{"over the greatest of 32 bits without a sign", `4294967297`, invalid},
		{"over the greatest of 64 bits", `9223372036854775808`, invalid},
		{"over the greatest of 64 bits without a sign", `18446744073709551617`, invalid},
		{"under the least of 32 bits", `-2147483649`, invalid},
		{"under the least of 64 bits", `-9223372036854775809`, invalid},
		{"huge", strings.Repeat("9", 10_000), invalid},
		{"fraction", `1.5`, invalid},
		{"fraction that is whole", `60.0`, invalid},
		{"exponent", `1e3`, invalid},
		{"upper-case exponent", `1E3`, invalid},
		{"negative exponent", `10e-1`, invalid},
		{"huge exponent", `1e999999999`, invalid},
		{"never as a fraction", `-1.0`, invalid},
		{"string", `"60"`, invalid},
		{"string null", `"null"`, invalid},
		{"empty string", `""`, invalid},
		{"true", `true`, invalid},
		{"false", `false`, invalid},
		{"array", `[60]`, invalid},
		{"empty array", `[]`, invalid},
		{"object", `{"ttl":60}`, invalid},
		// What follows is no JSON; a caller that did not look must not be let down.
		{"leading zero", `060`, invalid},
		{"leading zero after the sign", `-01`, invalid},
		{"plus", `+60`, invalid},
		{"hexadecimal", `0x10`, invalid},
		{"underscore", `1_000`, invalid},
		{"two values", `60 60`, invalid},
		{"no number", `NaN`, invalid},
		{"upper-case null", `NULL`, invalid},
		{"no-break space, which is no white space in JSON", "\u00a060", invalid},
		{"vertical tab, which is no white space in JSON", "\v60", invalid},
		{"other digits", "٦٠", invalid},
		{"no UTF-8", "\xff", invalid},
		{"NUL", "\x00", invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			item, itemErr := ttlrules.ParseTTL([]byte(tt.value))
			def, defErr := ttlrules.ParseDefault([]byte(tt.value))
			if tt.want == invalid {
				checkError(t, itemErr, "ttl", tt.value)
				checkError(t, defErr, "defaultTtl", tt.value)
				return
			}
			if itemErr != nil || item != ttlrules.TTL(tt.want) {
				t.Errorf("ParseTTL(%q) = %d, %v; want %d", tt.value, item, itemErr, tt.want)
			}
			if defErr != nil || def != ttlrules.Default(tt.want) {
				t.Errorf("ParseDefault(%q) = %d, %v; want %d", tt.value, def, defErr, tt.want)
			}
		})
	}
}

// TestParseNil: a member that is absent is nil or empty bytes.
func TestParseNil(t *testing.T) {
	if item, err := ttlrules.ParseTTL(nil); item != ttlrules.Inherit || err != nil {
		t.Errorf("ParseTTL(nil) = %d, %v; want Inherit", item, err)
	}
	if def, err := ttlrules.ParseDefault(nil); def != ttlrules.Off || err != nil {
		t.Errorf("ParseDefault(nil) = %d, %v; want Off", def, err)
	}
}

// checkError holds err against what every error of the parser promises: the
// sentinel, the member's name, the value as far as it is short and printable,
// what is allowed, and a length and shape that fit a header.
func checkError(t *testing.T, err error, name, value string) {
	t.Helper()
	if !errors.Is(err, ttlrules.ErrInvalidTTL) {
		t.Fatalf("%s %.100q: error %v does not wrap ErrInvalidTTL", name, value, err)
	}
	text := err.Error()
	if !strings.HasPrefix(text, name+" ") || !strings.HasSuffix(text, ".") {
		t.Errorf("%s %.100q: error %q is not a sentence that begins with the member", name, value, text)
	}
	quoted := strings.Trim(value, " \t\r\n")
	if i := strings.IndexFunc(quoted, func(r rune) bool {
		return !unicode.IsPrint(r) ||
			r == unicode.ReplacementChar
	}); i >= 0 {
		quoted = quoted[:i]
	}
	if len(quoted) > 30 {
		quoted = quoted[:30]
	}
	if !strings.HasPrefix(text, name+" "+strings.ToValidUTF8(quoted, "")) {
		t.Errorf("%s %.100q: error %q does not quote the value", name, value, text)
	}
	for _, allowed := range []string{"-1", "1 to 2147483647", "whole"} {
		if !strings.Contains(text, allowed) {
			t.Errorf("%s %.100q: error %q does not say that %q is allowed", name, value, text, allowed)
		}
	}
	if len(text) > 400 {
		t.Errorf("%s %.100q: the error has %d bytes", name, value, len(text))
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%s %.100q: error %q does not fit on a line", name, value, text)
	}
}

// TestParseErrorText: the client receives the error of a parser: this pins the whole text once.
func TestParseErrorText(t *testing.T) {
	const allowed = " is not valid: use a whole number of seconds from 1 to 2147483647, or -1 for never."
	const plain = allowed + " Write it without quotes, fraction or exponent."
	tests := []struct{ value, want string }{
		{`1.5`, `ttl 1.5` + allowed},
		{`0`, `ttl 0` + allowed},
		{`60.0`, `ttl 60.0` + plain},
		{`-1.0`, `ttl -1.0` + plain},
		{`6e1`, `ttl 6e1` + plain},
		{`"60"`, `ttl "60"` + plain},
		{`"soon"`, `ttl "soon"` + allowed},
		{`"0"`, `ttl "0"` + allowed},
		{"[1,\r\n2]", `ttl [1,\r\n2]` + allowed},
		{"\"\u00a0\u202e\xff\"", `ttl "\u00a0\u202e\xff"` + allowed},
		{strings.Repeat("1", 41), `ttl ` + strings.Repeat("1", 40) + `...` + allowed},
		{`"` + strings.Repeat("é", 41), `ttl "` + strings.Repeat("é", 19) + `...` + allowed},
	}
	for _, tt := range tests {
		_, err := ttlrules.ParseTTL([]byte(tt.value))
		if err == nil || err.Error() != tt.want {
			t.Errorf("ParseTTL(%q):\n got %v\nwant %s", tt.value, err, tt.want)
		}
	}
	_, err := ttlrules.ParseDefault([]byte(`0`))
	want := "defaultTtl 0 is not valid: use a whole number of seconds from 1 to 2147483647, -1 to turn TTL on " +
		"without a default, or null to turn it off."
	if err == nil || err.Error() != want {
		t.Errorf("ParseDefault(0):\n got %v\nwant %s", err, want)
	}
}

// TestMatrix: the matrix of the package doc, cell by cell. It fails if any cell counts otherwise.
func TestMatrix(t *testing.T) {
	const (
		ts    = 1_000_000
		never = -1
		m, n  = 7, 30
	)
	tests := []struct {
		item ttlrules.TTL
		def  ttlrules.Default
		want int64
	}{
		{ttlrules.Inherit, ttlrules.Off, never},
		{ttlrules.Inherit, ttlrules.NoDefault, never},
		{ttlrules.Inherit, n, ts + 30_000},
		{ttlrules.Never, ttlrules.Off, never},
		{ttlrules.Never, ttlrules.NoDefault, never},
		{ttlrules.Never, n, never},
		{m, ttlrules.Off, never},
		{m, ttlrules.NoDefault, ts + 7_000},
		{m, n, ts + 7_000},
		{ttlrules.Inherit, ttlrules.MaxSeconds, ts + 2_147_483_647_000},
		{ttlrules.MaxSeconds, n, ts + 2_147_483_647_000},
	}
	for _, tt := range tests {
		at, ok := (ttlrules.Clock{Ts: ts, TTL: tt.item}).Deadline(tt.def)
		if ok != (tt.want != never) || ok && at != tt.want {
			t.Errorf("Deadline(ttl %d, default %d) = %d, %t; want %d (-1: never)", tt.item, tt.def, at, ok, tt.want)
		}
		h := ttlrules.History{}.With(0, 1, tt.def)
		x, ok := h.ExpiredAt(ttlrules.Clock{Ts: ts, TTL: tt.item})
		if ok != (tt.want != never) || ok && x.At != tt.want {
			t.Errorf("ExpiredAt(ttl %d, default %d) = %+v, %t; want %d (-1: never)", tt.item, tt.def, x, ok, tt.want)
		}
		if ok && (int64(x.TTL)*1000 != tt.want-ts || x.Seq != 0) {
			t.Errorf("ExpiredAt(ttl %d, default %d) = %+v: the seconds that counted are %d, and no change did it",
				tt.item, tt.def, x, (tt.want-ts)/1000)
		}
	}
}

// TestWithinAMaxLife: what counts of a default where no document lives longer than a number of seconds.
func TestWithinAMaxLife(t *testing.T) {
	for _, tt := range []struct {
		def     ttlrules.Default
		maxLife int32
		want    ttlrules.Default
	}{
		{60, 0, 60}, {ttlrules.NoDefault, 0, ttlrules.NoDefault}, {ttlrules.Off, 0, ttlrules.Off},
		{60, 59, 59}, {60, 60, 60}, {60, 61, 60},
		{ttlrules.NoDefault, 60, 60}, {ttlrules.Off, 60, ttlrules.Off},
	} {
		if got := tt.def.Within(tt.maxLife); got != tt.want {
			t.Errorf("a default of %d within %d seconds is %d, want %d", tt.def, tt.maxLife, got, tt.want)
		}
	}
}

// TestAVersionWithinAMaxLife: a version has a limit, maxLife after its document was created, unless a cut or its own TTL
// expires it sooner. It is not before the instant of the write. One that inherits and is not as old as its document
// takes the default.
func TestAVersionWithinAMaxLife(t *testing.T) {
	const life, at = 100, 50_000
	for name, row := range map[string]struct {
		clock   ttlrules.Clock
		maxLife int32
		def     ttlrules.Default
		created int64
		want    ttlrules.Clock
	}{
		"no maxLife":      {ttlrules.Clock{Ts: at, TTL: 900}, 0, 60, 1000, ttlrules.Clock{Ts: at, TTL: 900}},
		"off":             {ttlrules.Clock{Ts: at, TTL: 900}, life, ttlrules.Off, 1000, ttlrules.Clock{Ts: at, TTL: 900}},
		"new, inherits":   {ttlrules.Clock{Ts: at}, life, 60, at, ttlrules.Clock{Ts: at}},
		"new, shorter":    {ttlrules.Clock{Ts: at, TTL: life}, life, 60, at, ttlrules.Clock{Ts: at, TTL: life}},
		"new, longer":     {ttlrules.Clock{Ts: at, TTL: life + 1}, life, 60, at, ttlrules.Clock{Ts: at, TTL: life + 1, Limit: 150_000}},
		"new, never":      {ttlrules.Clock{Ts: at, TTL: -1}, life, 60, at, ttlrules.Clock{Ts: at, TTL: -1, Limit: 150_000}},
		"new, kept":       {ttlrules.Clock{Ts: at, Kept: 1000}, life, 60, 1000, ttlrules.Clock{Ts: at, Kept: 1000}},
		"absolute":        {ttlrules.Clock{Ts: at, Absolute: 60_000}, life, 60, at, ttlrules.Clock{Ts: at, Absolute: 60_000, Limit: 150_000}},
		"not after":       {ttlrules.Clock{Ts: at, NotAfter: 60_000}, life, 60, at, ttlrules.Clock{Ts: at, NotAfter: 60_000, Limit: 150_000}},
		"again, shorter":  {ttlrules.Clock{Ts: at, TTL: 1}, life, 60, at - 1, ttlrules.Clock{Ts: at, TTL: 1, Limit: 149_999}},
		"again, inherits": {ttlrules.Clock{Ts: at}, life, 60, at - 1, ttlrules.Clock{Ts: at, TTL: 60, ByDefault: true, Limit: 149_999}},
		"no default":      {ttlrules.Clock{Ts: at}, life, -1, at - 1, ttlrules.Clock{Ts: at, TTL: -1, ByDefault: true, Limit: 149_999}},
		"slid, inherits": {ttlrules.Clock{Ts: 1000, Kept: at}, life, 60, 1000,
			ttlrules.Clock{Ts: 1000, Kept: at, TTL: 60, ByDefault: true, Limit: 101_000}},
		"too old": {ttlrules.Clock{Ts: at, TTL: 1}, life, 60, -60_000, ttlrules.Clock{Ts: at, TTL: 1, Limit: at}},
	} {
		if got := row.clock.Within(row.maxLife, row.def, row.created, at); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

// TestSlid: after a read the clock counts from that instant, and nothing else has changed.
func TestSlid(t *testing.T) {
	c := ttlrules.Clock{Ts: 5000, TTL: 7, Kept: 1000, NotAfter: 3, Limit: 4, ByDefault: true, Seq: 9, Band: 2}
	want := c
	want.Band = 0
	for at, kept := range map[int64]int64{8000: 8000, 4999: 4999, 5000: 0} {
		if want.Kept = kept; c.Slid(at) != want || c.Slid(at).Begin() != at {
			t.Errorf("renewed at %d: %+v, want %+v", at, c.Slid(at), want)
		}
	}
}

// TestBand: a score of the index by inheritance tells its band, one of the other index is in none.
func TestBand(t *testing.T) {
	for band := range 3 {
		score, in := (ttlrules.Clock{Ts: 1_790_000_000_123, Band: band}).Score()
		if got := in.Band(score); in != ttlrules.ByInherit || got != band {
			t.Errorf("the score of band %d is in band %d", band, got)
		}
	}
	if got := ttlrules.ByOwn.Band(3 * ttlrules.BandWidth); got != 0 {
		t.Errorf("a deadline is in band %d", got)
	}
}
