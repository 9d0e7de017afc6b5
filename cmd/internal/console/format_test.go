package console

import (
	"bytes"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestFormats(t *testing.T) {
	ttl := func(n int32) *int32 { return &n }
	number := func(n float64) *float64 { return &n }
	for _, c := range []struct{ got, want string }{
		{count(0), "0"}, {count(int64(999)), "999"}, {count(1000), "1,000"}, {count(-1234567), "-1,234,567"},
		{count(uint64(1<<63 + 1)), "9,223,372,036,854,775,809"},
		{count(1234.6), "1,235"}, {count((*int64)(nil)), "–"},
		{rate(0.034), "0.03"}, {rate(12.34), "12.3"}, {rate(12345.6), "12,346"},
		{latency(nil), "–"}, {latency(number(0.00123)), "1.2 ms"}, {latency(number(0.123)), "123 ms"},
		{latency(number(1.25)), "1.2 s"}, {latency(number(125)), "2 min 5 s"},
		{lead(-0.0123), "-12.3 ms"},
		{period(0), "0 s"}, {period(999 * time.Millisecond), "0 s"}, {period(59 * time.Second), "59 s"},
		{period(60 * time.Second), "1 min"}, {period(3599 * time.Second), "59 min 59 s"},
		{period(time.Hour + 59*time.Second), "1 h"}, {period(25*time.Hour + time.Minute), "1 d 1 h"},
		{period(30*24*time.Hour + 90*time.Minute), "30 d 1 h"},
		{ttlText(nil), "off"}, {ttlText(ttl(-1)), "-1 (own ttl only)"}, {ttlText(ttl(59)), "59 s"},
		{ttlText(ttl(604800)), "604,800 s (7 d)"}, {ttlText(ttl(90061)), "90,061 s (1 d 1 h 1 min 1 s)"},
		{spanText(0, 60_000), "Jan 1, 00:00 to 00:01"}, {spanText(86_340_000, 86_400_000), "Jan 1, 23:59 to Jan 2, 00:00"},
		{date(wire.Time(1_790_000_000_999)) + " " + timeOfDay(wire.Time(1_790_000_000_999)), "2026-09-21 14:13:20"},
		{sentence("the body is wrong"), "The body is wrong"}, {sentence("ttl 0 is not valid"), "ttl 0 is not valid"},
		{sentence(""), ""},
		{visible("a b\u00e9☃ �"), "a b\u00e9☃ �"}, {visible("a\u202eb\x01\n\u200b"), `a\u202eb\x01\n\u200b`},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestScriptsAreSmall: the console works without them, so they stay what they are: a little.
func TestScriptsAreSmall(t *testing.T) {
	for _, name := range []string{"console.js", "live.js"} {
		lines := bytes.Count(assets[name].content, []byte("\n"))
		if lines < 10 || lines > 240 {
			t.Errorf("%s has %d lines", name, lines)
		}
	}
}
