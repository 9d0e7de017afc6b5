package ttlrules_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestG2_ExpiredFromTheDeadlineOn pins the boundary: a millisecond before its
// deadline a document is live, at it and a millisecond after it is expired, by
// Expired as by the cut.
//
// It fails if Expired or Cuts compares with < instead of <=, or counts seconds as
// anything but 1000 milliseconds.
func TestG2_ExpiredFromTheDeadlineOn(t *testing.T) {
	const ts = 1_790_000_000_123
	tests := []struct {
		name     string
		item     ttlrules.TTL
		def      ttlrules.Default
		deadline int64
	}{
		{"inherits", ttlrules.Inherit, 60, ts + 60_000},
		{"inherits the least", ttlrules.Inherit, 1, ts + 1000},
		{"inherits the greatest", ttlrules.Inherit, ttlrules.MaxSeconds, ts + 2_147_483_647_000},
		{"own, shorter", 30, 60, ts + 30_000},
		{"own, longer", 90, 60, ts + 90_000},
		{"own, without a default", 30, ttlrules.NoDefault, ts + 30_000},
		{"own, the greatest", ttlrules.MaxSeconds, ttlrules.NoDefault, ts + 2_147_483_647_000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := ttlrules.History{}.With(1, 1, tt.def)
			d := doc{ts: ts, item: tt.item}
			for off := int64(-1); off <= 1; off++ {
				now, want := tt.deadline+off, off >= 0
				if got := h.Expired(d.clock(), now); got != want {
					t.Errorf("%+d ms from the deadline: Expired is %t", off, got)
				}
				if got := underCut(h, d, now); got != want {
					t.Errorf("%+d ms from the deadline: under the cut is %t", off, got)
				}
			}
			score, inherit, _ := d.indexed()
			if due, ok := h.FirstDue(score, inherit); !ok || due != tt.deadline {
				t.Errorf("FirstDue is %d, %t; the deadline is %d", due, ok, tt.deadline)
			}
		})
	}
}

// TestG2_KeptAndAbsoluteClocks pins the same boundary where a write kept its clock or named a
// deadline: the version is expired from the later of its deadline and its ts, under the cut as
// well, and the write itself is the cause where the deadline had passed.
//
// It fails if a kept clock counts from ts, if an absolute deadline moves with the default, or if
// a version is expired before it was written.
func TestG2_KeptAndAbsoluteClocks(t *testing.T) {
	const begin, ts = 1_790_000_000_000, 1_790_000_040_000
	for _, tt := range []struct {
		name     string
		clock    ttlrules.Clock
		def      ttlrules.Default
		at       int64 // 0: never
		ttl      int32
		byItself bool
	}{
		{"kept, inherits", ttlrules.Clock{Kept: begin}, 60, begin + 60_000, 60, false},
		{"kept, own", ttlrules.Clock{Kept: begin, TTL: 50}, 60, begin + 50_000, 50, false},
		{"kept, run out by the default", ttlrules.Clock{Kept: begin}, 30, ts, 30, true},
		{"kept, run out at ts", ttlrules.Clock{Kept: begin, TTL: 40}, ttlrules.NoDefault, ts, 40, true},
		{"kept, never", ttlrules.Clock{Kept: begin, TTL: ttlrules.Never}, 30, 0, 0, false},
		{"kept, off", ttlrules.Clock{Kept: begin, TTL: 1}, ttlrules.Off, 0, 0, false},
		{"absolute", ttlrules.Clock{Absolute: ts + 1}, 60, ts + 1, 0, false},
		{"absolute, without a default", ttlrules.Clock{Absolute: ts + 1, Kept: begin, TTL: ttlrules.Never},
			ttlrules.NoDefault, ts + 1, 0, false},
		{"absolute, off", ttlrules.Clock{Absolute: ts + 1}, ttlrules.Off, 0, 0, false},
		{"limited, the ttl ends first", ttlrules.Clock{TTL: 50, NotAfter: ts + 50_001}, 60, ts + 50_000, 50, false},
		{"limited, both end together", ttlrules.Clock{TTL: 50, NotAfter: ts + 50_000}, ttlrules.NoDefault, ts + 50_000,
			50, false},
		{"limited, the limit comes first", ttlrules.Clock{TTL: 50, NotAfter: ts + 49_999}, 1, ts + 49_999, 0, false},
		{"limited and kept", ttlrules.Clock{Kept: begin, TTL: 50, NotAfter: ts + 10_001}, 60, begin + 50_000, 50,
			false},
		{"limited and kept, run out", ttlrules.Clock{Kept: begin, TTL: 50, NotAfter: ts - 1}, 60, ts, 0, true},
		{"limited, without a ttl", ttlrules.Clock{NotAfter: ts + 1}, 60, ts + 1, 0, false},
		{"limited, never by its ttl", ttlrules.Clock{NotAfter: ts + 1, TTL: ttlrules.Never}, ttlrules.NoDefault, ts + 1,
			0, false},
		{"limited, off", ttlrules.Clock{NotAfter: ts + 1, TTL: 5}, ttlrules.Off, 0, 0, false},
	} {
		c := tt.clock
		c.Ts, c.Seq = ts, 7
		h := ttlrules.History{}.With(begin, 1, tt.def).Settled()
		want := ttlrules.Expiry{At: tt.at, TTL: tt.ttl}
		if tt.byItself {
			want.Seq = 7
		}
		if x, ok := h.ExpiredAt(c); ok != (tt.at != 0) || ok && x != want {
			t.Errorf("%s: ExpiredAt is %+v, %t; want %+v", tt.name, x, ok, want)
		}
		score, in := c.Score()
		for off := int64(-1); off <= 1; off++ {
			now, expired := tt.at+off, off >= 0 && tt.at != 0
			if got := h.Expired(c, now); got != expired {
				t.Errorf("%s, %+d ms: Expired is %t", tt.name, off, got)
			}
			if under := in != ttlrules.NotIndexed && score <= cut(h, in == ttlrules.ByInherit, now); now >= ts &&
				under != expired {
				t.Errorf("%s, %+d ms: under the cut is %t", tt.name, off, under)
			}
		}
	}
}

// TestG4_AChangeMeetsADeadline pins what happens when the default changes a
// millisecond before a deadline, at it, and after it: before, the deadline is no
// more; at it or after, the document is expired and stays so, whatever the change.
//
// It fails if an epoch no longer counts at the instant of its end.
func TestG4_AChangeMeetsADeadline(t *testing.T) {
	const ts, deadline = 10_000, 20_000
	far := int64(math.MaxInt64)
	for _, def := range []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 3600} {
		for _, tt := range []struct {
			off     int64
			expired bool
		}{{-1, false}, {0, true}, {1, true}} {
			h := ttlrules.History{}.With(0, 1, 10).With(deadline+tt.off, 2, def)
			x, ok := h.ExpiredAt(ttlrules.Clock{Ts: ts})
			if tt.expired {
				if want := (ttlrules.Expiry{At: deadline, TTL: 10}); !ok || x != want {
					t.Errorf("default %d comes %+d ms from the deadline: %+v, %t; want %+v", def, tt.off, x, ok, want)
				}
				if !underCut(h, doc{ts: ts}, far) {
					t.Errorf("default %d comes %+d ms from the deadline: the cut has forgotten it", def, tt.off)
				}
				continue
			}
			if h.Expired(ttlrules.Clock{Ts: ts}, deadline) || underCut(h, doc{ts: ts}, deadline) {
				t.Errorf("default %d comes %+d ms from the deadline: the document has expired all the same", def,
					tt.off)
			}
		}
	}
}

// TestExpiredAt covers the cases that users ask about.
func TestExpiredAt(t *testing.T) {
	const never = -1
	type h = []change
	tests := []struct {
		name    string
		changes h
		ts      int64
		item    ttlrules.TTL
		want    ttlrules.Expiry // At never: it does not expire
	}{
		{"never configured", h{}, 0, 1, ttlrules.Expiry{At: never}},
		{"the default comes after the write and counts from its ts",
			h{{5_000, 9, 10}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 11_000, TTL: 10}},
		{"the default comes when its deadline has passed: the change did it",
			h{{50_000, 9, 10}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 50_000, TTL: 10, Seq: 9}},
		{"the default comes at the very deadline: the change did it, for until then there was none",
			h{{11_000, 9, 10}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 11_000, TTL: 10, Seq: 9}},
		{"the default comes at the very deadline of the one before: time did it",
			h{{0, 1, 10}, {11_000, 9, 5}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 11_000, TTL: 10}},
		{"a lowered default expires at once",
			h{{0, 1, 100}, {50_000, 9, 10}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 50_000, TTL: 10, Seq: 9}},
		{"a raised default counts for the living",
			h{{0, 1, 10}, {5_000, 9, 100}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 101_000, TTL: 100}},
		{"a raised default brings nothing back",
			h{{0, 1, 10}, {12_000, 9, 100}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 11_000, TTL: 10}},
		{"off brings nothing back",
			h{{0, 1, 10}, {12_000, 9, ttlrules.Off}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 11_000, TTL: 10}},
		{"a deadline in a time of off passes unnoticed",
			h{{0, 1, 10}, {5_000, 2, ttlrules.Off}}, 1_000, 10, ttlrules.Expiry{At: never}},
		{"on again, own TTLs count again, and what has passed expires at once",
			h{{0, 1, 10}, {5_000, 2, ttlrules.Off}, {70_000, 3, ttlrules.NoDefault}}, 1_000, 10,
			ttlrules.Expiry{At: 70_000, TTL: 10, Seq: 3}},
		{"on and off in one millisecond: the change was, so what it made expired is",
			h{{70_000, 2, 10}, {70_000, 3, ttlrules.Off}}, 1_000, ttlrules.Inherit, ttlrules.Expiry{At: 70_000, TTL: 10,
				Seq: 2}},
		{"two defaults in one millisecond: the first that made it expired counts",
			h{{70_000, 2, 60}, {70_000, 3, 10}}, 5_000, ttlrules.Inherit, ttlrules.Expiry{At: 70_000, TTL: 60, Seq: 2}},
		{"own ttl of -1 never expires", h{{0, 1, 10}}, 1_000, ttlrules.Never, ttlrules.Expiry{At: never}},
		{"default -1 leaves those that inherit alone", h{{0, 1, ttlrules.NoDefault}}, 1_000, ttlrules.Inherit,
			ttlrules.Expiry{At: never}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x, ok := history(tt.changes, math.MaxInt64).ExpiredAt(ttlrules.Clock{Ts: tt.ts, TTL: tt.item})
			if ok != (tt.want.At != never) || ok && x != tt.want {
				t.Errorf("got %+v, %t; want %+v", x, ok, tt.want)
			}
		})
	}
}

// TestEmptyHistory: a collection that nobody configured has TTL off, no cuts, and nothing due.
func TestEmptyHistory(t *testing.T) {
	var h ttlrules.History
	if got := h.Current(); got != ttlrules.Off {
		t.Errorf("Current is %d, want Off", got)
	}
	if got, want := h.Cuts(math.MaxInt64), (ttlrules.Cuts{Inherit: ttlrules.NoCut, Own: ttlrules.NoCut}); got != want {
		t.Errorf("Cuts are %+v, want none", got)
	}
	for _, inherit := range []bool{true, false} {
		if at, ok := h.FirstDue(0, inherit); ok {
			t.Errorf("FirstDue(inherit %t) is %d, want none", inherit, at)
		}
	}
	if got := h.Settled(); len(got) != 0 {
		t.Errorf("Settled is %v, want it empty", got)
	}
}

// TestWithTheSameDefault: a configuration sent again must not make histories longer: clients do that at
// each start.
func TestWithTheSameDefault(t *testing.T) {
	var h ttlrules.History
	if got := h.With(5, 1, ttlrules.Off); len(got) != 0 {
		t.Errorf("off on what was never configured is %v, want it empty", got)
	}
	h = h.With(5, 1, 60)
	if got := h.With(9, 2, 60); !slices.Equal(got, h) {
		t.Errorf("the same default again is %v, want %v", got, h)
	}
	if got := h.With(9, 2, 61); len(got) != len(h)+1 || got.Current() != 61 {
		t.Errorf("another default is %v, want one epoch more than %v", got, h)
	}
}

// TestCutsAndExpiredAtDoNotAllocate: Cuts and ExpiredAt are asked for each read and each write: they must not allocate.
func TestCutsAndExpiredAtDoNotAllocate(t *testing.T) {
	h := longHistory()
	if n := testing.AllocsPerRun(100, func() {
		h.Cuts(50_000)
		h.ExpiredAt(ttlrules.Clock{Ts: 20_000})
		h.FirstDue(20_000, true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// longHistory has ten epochs: as many as come between two reaps where somebody is
// playing with the configuration.
func longHistory() ttlrules.History {
	var h ttlrules.History
	for i := range 9 {
		h = h.With(int64(i)*10_000, uint64(i+1), ttlrules.Default(3600+i))
	}
	return h
}

func BenchmarkCuts(b *testing.B) {
	h := longHistory()
	b.ReportAllocs()
	for b.Loop() {
		h.Cuts(50_000)
	}
}

func BenchmarkExpiredAt(b *testing.B) {
	h := longHistory()
	b.ReportAllocs()
	for b.Loop() {
		h.ExpiredAt(ttlrules.Clock{Ts: 20_000})
	}
}

func BenchmarkParseTTL(b *testing.B) {
	value := []byte("86400")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ttlrules.ParseTTL(value); err != nil {
			b.Fatal(err)
		}
	}
}

// TestBeforeAndFrom: a history falls into the epochs before a message and those from it on.
func TestBeforeAndFrom(t *testing.T) {
	h := ttlrules.History{}.With(10, 3, 1).With(20, 5, 2)
	for seq, before := range map[uint64]int{0: 0, 1: 1, 3: 1, 4: 2, 5: 2, 6: 3} {
		if b, f := h.Before(seq), h.From(seq); len(b) != before || len(f) != 3-before ||
			fmt.Sprint(append(slices.Clone(b), f...)) != fmt.Sprint(h) {
			t.Errorf("before message %d: %v, and from it on: %v", seq, b, f)
		}
	}
}
