package ttlrules_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestWarnAt: when there is a warning, and when there is none.
func TestWarnAt(t *testing.T) {
	on := ttlrules.History{}.With(100_000, 1, 60)
	tests := []struct {
		name   string
		h      ttlrules.History
		c      ttlrules.Clock
		before int32
		since  int64
		want   int64 // 0 if there is none
	}{
		{"inherits", on, ttlrules.Clock{Ts: 200_000}, 10, 0, 250_000},
		{"own", on, ttlrules.Clock{Ts: 200_000, TTL: 30}, 10, 0, 220_000},
		{"absolute", on, ttlrules.Clock{Ts: 200_000, Absolute: 210_001}, 10, 0, 200_001},
		{"not after the write", on, ttlrules.Clock{Ts: 200_000, Absolute: 210_000}, 10, 0, 0},
		{"longer before than the ttl", on, ttlrules.Clock{Ts: 200_000, TTL: 9}, 10, 0, 0},
		{"never", on, ttlrules.Clock{Ts: 200_000, TTL: ttlrules.Never}, 10, 0, 0},
		{"off", on.With(150_000, 2, ttlrules.Off), ttlrules.Clock{Ts: 200_000, TTL: 30}, 10, 0, 0},
		{"no default", on.With(150_000, 2, ttlrules.NoDefault), ttlrules.Clock{Ts: 200_000}, 10, 0, 0},
		{"never configured", nil, ttlrules.Clock{Ts: 200_000, TTL: 30}, 10, 0, 0},
		{"asked for before", on, ttlrules.Clock{Ts: 200_000}, 10, 249_999, 250_000},
		{"asked for then", on, ttlrules.Clock{Ts: 200_000}, 10, 250_000, 0},
		{"the default counts since before", on.With(209_999, 2, 20), ttlrules.Clock{Ts: 200_000}, 10, 0, 210_000},
		{"the default counts since then", on.With(210_000, 2, 20), ttlrules.Clock{Ts: 200_000}, 10, 0, 0},
		{"kept clock", on, ttlrules.Clock{Ts: 200_000, Kept: 160_000}, 10, 0, 210_000},
		{"kept clock, past the warning", on, ttlrules.Clock{Ts: 200_000, Kept: 150_000}, 10, 0, 0},
		{"expired under an earlier default", on.With(130_000, 2, 1000), ttlrules.Clock{Ts: 60_000}, 10, 0, 0},
	}
	for _, tt := range tests {
		at, x, ok := tt.h.WarnAt(tt.c, tt.before, tt.since)
		if !ok {
			at = 0
		}
		if at != tt.want {
			t.Errorf("%s: at %d, want %d", tt.name, at, tt.want)
		}
		if ok && x.At != at+int64(tt.before)*1000 {
			t.Errorf("%s: expires at %d", tt.name, x.At)
		}
	}
}

// TestWarningsAreASlice: the versions whose warning falls between two instants are those whose score
// lies between these instants less the shift.
func TestWarningsAreASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const start = 1_700_000_000_000
		w := newWorld(start, 60_000, -1, 0, 1, 5, 20)
		d, changes := w.doc(t), w.changes(t)
		h, c := history(changes, start+60_000), d.clock()
		before := rapid.Int32Range(1, 30).Draw(t, "before")
		at, _, ok := h.WarnAt(c, before, rapid.Int64Range(start, start+60_000).Draw(t, "since"))
		if !ok {
			return
		}
		score, in := c.Score()
		if shift, is := h.WarnShift(in, before); !is || score+shift != at {
			t.Fatalf("%+v under %v is to be warned of at %d, and its score %d in %d says %d, %v", c, h, at, score, in,
				score+shift, is)
		}
	})
}

// TestWarnShift: what stands in an index is to be warned of so many seconds before its deadline, if anything in it
// expires by the current default.
func TestWarnShift(t *testing.T) {
	for _, c := range []struct {
		def   ttlrules.Default
		in    ttlrules.Index
		shift int64
		ok    bool
	}{
		{60, ttlrules.ByInherit, 53_000, true}, {1, ttlrules.ByInherit, -6000, true}, {60, ttlrules.ByOwn, -7000, true},
		{ttlrules.NoDefault, ttlrules.ByOwn, -7000, true}, {ttlrules.NoDefault, ttlrules.ByInherit, 0, false},
		{ttlrules.Off, ttlrules.ByOwn, 0, false}, {ttlrules.Off, ttlrules.ByInherit, 0, false}, {60, ttlrules.NotIndexed, 0, false},
	} {
		h := ttlrules.History{}.With(10, 1, 5).With(20, 2, c.def)
		if shift, ok := h.WarnShift(c.in, 7); ok != c.ok || ok && shift != c.shift {
			t.Errorf("default %d, index %d: %d, %t, want %d, %t", c.def, c.in, shift, ok, c.shift, c.ok)
		}
	}
}
