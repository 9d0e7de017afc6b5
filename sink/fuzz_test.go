package sink

import (
	"errors"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// FuzzParseValue: any value is a header and a body, or an error that says it is no
// document; and what was read is written again as it was.
func FuzzParseValue(f *testing.F) {
	f.Add("")
	f.Add(string(Header{Ts: 1_790_000_000_123, Etag: 1 << 47, TTL: ttlrules.Never, Trace: "trace"}.Append(nil)) + "{}")
	f.Fuzz(func(t *testing.T, value string) {
		h, body, err := parseValue(value)
		if err != nil {
			if !errors.Is(err, errHeader) || h != (Header{}) || body != "" {
				t.Errorf("%q is %+v, %q, %v", value, h, body, err)
			}
			return
		}
		if again := string(h.Append(nil)) + body; again != value {
			t.Errorf("%q is written again as %q", value, again)
		}
		if in, score := h.index(); in != notIndexed && score < h.Ts {
			t.Errorf("%q stands at %d, before it was written", value, score)
		}
	})
}

// FuzzDecodeConfig: any text is a configuration that can be judged by and written
// again, or an error.
func FuzzDecodeConfig(f *testing.F) {
	f.Add("")
	f.Add(Config{History: ttlrules.History{}.With(5, 7, 60).With(9, 8, ttlrules.NoDefault), Building: true}.encode())
	f.Fuzz(func(t *testing.T, raw string) {
		c, err := decodeConfig(raw)
		if err != nil {
			if c.History != nil || c.NoIndex || c.Building {
				t.Errorf("%q is %+v, %v", raw, c, err)
			}
			return
		}
		again, err := decodeConfig(c.encode())
		if err != nil || again.encode() != c.encode() || again.Wire().IndexingMode != c.Wire().IndexingMode {
			t.Errorf("%q is %+v, and again %+v, %v", raw, c, again, err)
		}
		for _, now := range []int64{0, 1_790_000_000_123, 4_102_444_800_000} {
			c.History.Cuts(now)
			c.History.Expired(now, 5, now)
		}
	})
}

// FuzzDecodePosition: any continuation is a position in one of the partitions, or
// the caller's mistake.
func FuzzDecodePosition(f *testing.F) {
	r, err := NewReader(nil, ReaderOptions{Partitions: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add(listPosition{Partition: 2, Server: "abc", Cursor: "12", Count: 7, Next: "13", After: "é"}.encode())
	f.Fuzz(func(t *testing.T, s string) {
		pos, err := r.decodePosition(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidRequest) || pos != (listPosition{}) {
				t.Errorf("%q is %+v, %v", s, pos, err)
			}
			return
		}
		if pos.Partition < 0 || pos.Partition > 2 || pos.Cursor == "" || pos.Count < 0 || pos.Count > wire.MaxListLimit {
			t.Errorf("%q is %+v", s, pos)
		}
		if again, err := r.decodePosition(pos.encode()); err != nil || again != pos {
			t.Errorf("%q is %+v, and again %+v, %v", s, pos, again, err)
		}
	})
}
