package layout

import (
	"errors"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// FuzzParseDocument: any value is either a header and a body, which encode to the same value, or
// an error.
func FuzzParseDocument(f *testing.F) {
	f.Add("")
	f.Add(string(Header{Ts: 1_790_000_000_123, Etag: 1 << 47, TTL: ttlrules.Never, Trace: "trace"}.Append(nil)) + "{}")
	f.Add(string(Header{Ts: 1_790_000_000_123, Etag: 7, Kept: 1_790_000_000_000, Absolute: 1_800_000_000_000,
		Trace: "trace"}.Append(nil)) + "{}")
	f.Add(string(Header{Ts: 1_790_000_000_123, Etag: 7, TTL: ttlrules.Never, Absolute: 1}.Append(nil)) + "{}")
	f.Add(string(Header{Ts: 1_790_000_000_123, Etag: 7, Absolute: 1_800_000_000_000, Target: "mail.send",
		Trace: "trace"}.Append(nil)) + "{}")
	f.Fuzz(func(t *testing.T, value string) {
		h, body, err := ParseDocument(value)
		if err != nil {
			if !errors.Is(err, ErrHeader) || h != (Header{}) || body != "" {
				t.Errorf("%q is %+v, %q, %v", value, h, body, err)
			}
			return
		}
		if again := string(h.Append(nil)) + body; again != value {
			t.Errorf("%q is written again as %q", value, again)
		}
		if in, score := h.Index(); in != NotIndexed && score < h.Ts && (in != ByInherit || score != h.Kept) {
			t.Errorf("%q stands at %d, before it was written", value, score)
		}
	})
}

// FuzzDecodeConfig: any text is either a configuration, which the rules accept and which can be
// encoded again, or an error.
func FuzzDecodeConfig(f *testing.F) {
	f.Add("")
	f.Add(Config{History: ttlrules.History{}.With(5, 7, 60).With(9, 8, ttlrules.NoDefault), NoIndex: true}.Encode())
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := DecodeConfig(raw)
		if err != nil {
			if c.History != nil || c.NoIndex || c.Lazy {
				t.Errorf("%q is %+v, %v", raw, c, err)
			}
			return
		}
		again, err := DecodeConfig(c.Encode())
		if err != nil || again.Encode() != c.Encode() || again.Wire().IndexingMode != c.Wire().IndexingMode {
			t.Errorf("%q is %+v, and again %+v, %v", raw, c, again, err)
		}
		for _, now := range []int64{0, 1_790_000_000_123, 4_102_444_800_000} {
			c.History.Cuts(now)
			c.History.Expired(ttlrules.Clock{Ts: now, TTL: 5}, now)
		}
	})
}
