package layout

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// ptr returns a pointer to a value.
func ptr[T any](v T) *T { return &v }

// fullConfig has all that a configuration can have.
var fullConfig = Config{
	History:  ttlrules.History{}.With(1000, 1, 10).With(2000, 2, 20).With(3000, 3, 30),
	Lazy:     true,
	MinTTL:   5,
	MaxTTL:   50,
	MaxLife:  30,
	Default:  ttlrules.NoDefault,
	Warnings: []Warning{{Before: 9, Since: 1100, Seq: 4}, {Before: 1, Since: 1200, Seq: 5}, {ttlrules.MaxSeconds, 1300, 6}},
	Changes:  true, SlideOnRead: 0.25,
	Rules:   wire.LogRulesBody{Open: true, ReplyPrefixes: []string{"_INBOX_acme"}},
	Bodies:  []BodyChange{{Since: 1400, Seq: 7}, {Since: 1500, Seq: 8}, {Since: 1600, Seq: 9}},
	Pauses:  []Pause{{Since: 3100, Seq: 10, Until: 3200, EndSeq: 11}, {Since: 3300, Seq: 12, Drained: true}},
	Bands:   []uint64{2, 3},
	Indexes: []PropertyIndex{{Pointer: "/a", Slot: 7}, {Pointer: "/b", Slot: 0}},
	Etag:    13,
}

// TestConfigIsStored: a configuration is read as it was stored, and clients see what they have configured.
func TestConfigIsStored(t *testing.T) {
	for _, c := range []Config{{}, {NoIndex: true, Etag: 1}, fullConfig, {MaxLife: 1, Default: ttlrules.MaxSeconds}} {
		again, err := DecodeConfig(c.Encode())
		if diff := cmp.Diff(c, again); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.Encode(), err, diff)
		}
	}
	for _, row := range []struct {
		config Config
		want   wire.Config
	}{
		{Config{}, wire.Config{IndexingMode: wire.Consistent}},
		{Config{NoIndex: true}, wire.Config{IndexingMode: wire.NoIndex}},
		{Config{History: ttlrules.History{}.With(1, 1, 10), Bodies: make([]BodyChange, 2),
			Pauses: []Pause{{Seq: 1, EndSeq: 2}}}, wire.Config{IndexingMode: wire.Consistent, DefaultTTL: ptr(int32(10))}},
		{fullConfig, wire.Config{DefaultTTL: ptr(int32(-1)), IndexingMode: wire.Lazy, MinTTL: 5, MaxTTL: 50, MaxLife: 30,
			WarnBefore: []int32{9, 1, ttlrules.MaxSeconds}, SlideOnRead: 0.25, EventBody: new(bool), Changes: true, Paused: true,
			Indexes: []string{"/a", "/b"}, Etag: 13}},
	} {
		if diff := cmp.Diff(row.want, row.config.Wire()); diff != "" {
			t.Errorf("clients see of %s (-want +got):\n%s", row.config.Encode(), diff)
		}
	}
}

// TestConfigCache: a cache decodes as DecodeConfig does, however many configurations there are, and remembers no more
// than it may.
func TestConfigCache(t *testing.T) {
	var cache ConfigCache
	for range 2 {
		for i := range mostCached + 100 {
			want := Config{Etag: uint64(i)}
			if got, err := cache.Decode(want.Encode()); err != nil || !cmp.Equal(got, want) {
				t.Fatalf("%d: %+v, %v", i, got, err)
			}
			n := 0
			cache.decoded.Range(func(any, any) bool { n++; return true })
			if n > mostCached {
				t.Fatalf("it remembers %d configurations", n)
			}
		}
	}
	for _, raw := range []string{"x", `{"epochs":[[5,1,10],[4,2,20]]}`, `{"epochs":[[5,1,-2]]}`, `{"epochs":[[5,1,2147483648]]}`,
		`{"maxLife":5}`, `{"maxLife":5,"default":-2}`, `{"warnings":[[1,2,2147483648]]}`, `{"epochs":[[5,1,10]],"bands":[2]}`} {
		for range 2 {
			if got, err := cache.Decode(raw); !errors.Is(err, ErrForeign) || !cmp.Equal(got, Config{}) {
				t.Errorf("%s is read as %+v, %v, want ErrForeign", raw, got, err)
			}
		}
	}
	if c, err := cache.Decode(`{"epochs":[[5,1,10],[5,2,-1]],"bands":[1,2]}`); err != nil || len(c.History) != 2 {
		t.Errorf("two changes at one instant are read as %+v, %v", c, err)
	}
}

// TestOmitsDocument: what counts for an event is the configuration of the instant at which the document expired: at the
// very instant of a change, by the message.
func TestOmitsDocument(t *testing.T) {
	c := Config{Bodies: []BodyChange{{Since: 1000, Seq: 5}, {Since: 2000, Seq: 7}}}
	for _, row := range []struct {
		at   int64
		seq  uint64
		want bool
	}{{999, 9, false}, {1000, 0, false}, {1000, 4, false}, {1000, 5, true}, {1001, 0, true}, {2000, 6, true}, {2000, 7, false},
		{2001, 0, false}} {
		if got := c.OmitsDocument(ttlrules.Expiry{At: row.at, Seq: row.seq}); got != row.want {
			t.Errorf("at %d by %d: %t, want %t", row.at, row.seq, got, row.want)
		}
	}
	for n, want := range []bool{false, true, false, true} {
		if got := (Config{Bodies: make([]BodyChange, n)}).NoEventBody(); got != want {
			t.Errorf("after %d changes: %t, want %t", n, got, want)
		}
	}
}

// TestSettled: once no document is due, only the default and the property of now count, and no pause that is over.
func TestSettled(t *testing.T) {
	history := ttlrules.History{}.With(1000, 1, 10).With(2000, 2, 20)
	open := Config{History: history, Pauses: []Pause{{Since: 1, Seq: 3, Until: 2, EndSeq: 4}}, Bands: []uint64{2}}
	for n, bodies := range []int{0, 1, 0, 1} {
		c := open
		c.Bodies = []BodyChange{{Since: 1}, {Since: 2}, {Since: 3}}[:n]
		got := c.Settled()
		if len(got.History) != 1 || got.History[0] != history[2] || got.Pauses != nil || len(got.Bodies) != bodies ||
			got.NoEventBody() != c.NoEventBody() || bodies == 1 && got.Bodies[0] != c.Bodies[n-1] {
			t.Errorf("%+v is settled as %+v", c, got)
		}
		if !c.IsUnsettled() || got.IsUnsettled() {
			t.Errorf("%+v is unsettled: %t, and settled: %t", c, c.IsUnsettled(), got.IsUnsettled())
		}
	}
	if (Config{}).IsUnsettled() || (Config{History: history[2:]}).IsUnsettled() || !(Config{History: history[1:]}).IsUnsettled() {
		t.Error("what is unsettled is not exactly what has more than one epoch or a pause")
	}
}

// TestSettledPause: once no document is left that had expired before a pause, what was changed before it no longer
// counts, and what was changed since stays until its end.
func TestSettledPause(t *testing.T) {
	history := ttlrules.History{}.With(1000, 1, 10).With(2000, 2, 20).With(4000, 8, 30)
	body := func(seq ...uint64) (all []BodyChange) {
		for _, s := range seq {
			all = append(all, BodyChange{Since: 1, Seq: s})
		}
		return all
	}
	for _, row := range []struct {
		bodies, want []BodyChange
		changed      int
	}{{nil, nil, 1}, {body(3), body(3), 1}, {body(3, 4), nil, 1}, {body(3, 4, 5), body(5), 1}, {body(3, 7), body(3, 7), 2},
		{body(3, 4, 9, 10), body(9, 10), 3}} {
		c := Config{History: history, Bodies: row.bodies, Pauses: []Pause{{1, 1, 2, 2, false}, {Since: 3000, Seq: 7}}}
		got := c.Settled()
		if !c.IsUnsettled() || got.IsUnsettled() || !got.Paused() || !got.PausedBy().Drained || len(got.Pauses) != 1 {
			t.Errorf("%+v is drained as %+v", c.Pauses, got.Pauses)
		}
		if diff := cmp.Diff(history[2:], got.History); diff != "" {
			t.Errorf("the history (-want +got):\n%s", diff)
		}
		if fmt.Sprint(got.Bodies) != fmt.Sprint(row.want) {
			t.Errorf("the changes of bodies %v become %v, want %v", row.bodies, got.Bodies, row.want)
		}
		if n := c.ChangedPaused(); n != row.changed {
			t.Errorf("%d changes in the pause, want %d", n, row.changed)
		}
		if n := got.ChangedPaused(); n != row.changed {
			t.Errorf("%d changes in the pause once it is drained, want %d", n, row.changed)
		}
		if n := c.Pause(false, 5000, 11).ChangedPaused(); n != 0 {
			t.Errorf("%d changes in a pause that is over", n)
		}
		if c.Pauses[1].Drained {
			t.Error("the configuration was changed in its place")
		}
	}
}

// TestCause: an event that falls into a pause is to be published by the message that ends it; every other one by what
// made the document expire. At the very instants of both messages the order of the log counts.
func TestCause(t *testing.T) {
	over := Config{}.Pause(true, 1000, 5).Pause(false, 2000, 7)
	open := over.Pause(true, 3000, 9)
	if open.Paused() == over.Paused() || open.Pause(true, 1, 1).PausedBy() != open.PausedBy() || over.PausedBy() != (Pause{}) {
		t.Errorf("paused by %+v, and by %+v", open.PausedBy(), over.PausedBy())
	}
	for _, row := range []struct {
		at   int64
		seq  uint64
		want string // at, sequence, held
		due  int64
	}{
		{999, 9, "999 9 false", 999}, {1000, 0, "1000 0 false", 1000}, {1000, 4, "1000 4 false", 1000},
		{1000, 5, "2000 7 false", 1000}, {1001, 0, "2000 7 false", 2000}, {2000, 6, "2000 7 false", 2000},
		{2000, 7, "2000 7 false", 2000}, {2000, 8, "2000 8 false", 2000}, {2001, 6, "2001 6 false", 2001}, {3000, 0, "3000 0 false", 3000},
		{3000, 9, "0 0 true", 3000}, {3001, 0, "0 0 true", 3001},
	} {
		at, seq, held := open.Cause(ttlrules.Expiry{At: row.at, Seq: row.seq})
		if got := fmt.Sprint(at, seq, held); got != row.want {
			t.Errorf("expired at %d by %d: the cause is %s, want %s", row.at, row.seq, got, row.want)
		}
		if due := open.DueAt(row.at); due != row.due {
			t.Errorf("expired at %d: due at %d, want %d", row.at, due, row.due)
		}
	}
}

// TestReaped: what is reaped of a paused collection is what had expired before, by the defaults until then; nothing is
// due once there is none.
func TestReaped(t *testing.T) {
	history := ttlrules.History{}.With(1000, 1, 10).With(9000, 8, 1)
	c := Config{History: history}
	if h, last := c.Reaped(0); len(h) != 3 || last != math.MaxInt64 {
		t.Errorf("without a pause: %v up to %d", h, last)
	}
	c = c.Pause(true, 5000, 7)
	if h, last := c.Reaped(0); len(h) != 2 || last != 5000 {
		t.Errorf("in a pause: %v up to %d", h, last)
	}
	if h, last := c.drained().Reaped(0); len(h) != 0 || last != 5000 {
		t.Errorf("in a pause that is drained: %v up to %d", h, last)
	}
	if _, ok := c.drained().FirstReaped(0, 1000, false); ok {
		t.Error("a document is due in a pause that is drained")
	}
	resumed := c.Pause(false, 10_000, 9)
	for score, want := range map[int64]int64{-5000: 5000, -4999: 10_000, -1000: 10_000, 0: 10_000, 9001: 10_001} {
		if at, ok := resumed.FirstReaped(0, score, true); !ok || at != want {
			t.Errorf("the clock began at %d: due at %d, %t, want %d", score, at, ok, want)
		}
	}
	banded := Config{History: history, Bands: []uint64{1, 8}}
	for band, epochs := range []int{3, 2, 1} {
		if h := banded.Band(band); len(h) != epochs {
			t.Errorf("band %d has the history %v", band, h)
		}
	}
	if cut := banded.InheritCut(2, 9500); cut != 8500 {
		t.Errorf("the cut of a band is %d, want 8500", cut)
	}
	if cut := banded.InheritCut(0, 9500); cut != 8500 {
		t.Errorf("the cut is %d, want 8500", cut)
	}
	if cut := banded.InheritCut(1, 8000); cut != -2000 {
		t.Errorf("the cut of a band is %d, want -2000", cut)
	}
}

// TestAdmit: a version that inherits, and whose kept clock an earlier default would have expired, comes to a band of
// its own, one for each change of the default; one with an instant of its own has to wait.
func TestAdmit(t *testing.T) {
	c := Config{History: ttlrules.History{}.With(1000, 1, 1).With(50_000, 2, 100)}
	plain := ttlrules.Clock{Ts: 60_000, Seq: 3}
	old := ttlrules.Clock{Ts: 60_000, Kept: 10_000, Seq: 3}
	if in, band, ok := c.Admit(plain); !ok || band != 0 || len(in.Bands) != 0 {
		t.Errorf("a new version comes to band %d, %t, of %v", band, ok, in.Bands)
	}
	in, band, ok := c.Admit(old)
	if !ok || band != 1 || fmt.Sprint(in.Bands) != "[2]" || len(c.Bands) != 0 {
		t.Fatalf("a kept clock comes to band %d, %t, of %v", band, ok, in.Bands)
	}
	if again, band, ok := in.Admit(old); !ok || band != 1 || fmt.Sprint(again.Bands) != "[2]" {
		t.Errorf("another kept clock comes to band %d, %t, of %v", band, ok, again.Bands)
	}
	next := in
	next.History = in.History.With(55_000, 4, 200)
	old.Seq = 5
	if in, band, ok = next.Admit(old); !ok || band != 2 || fmt.Sprint(in.Bands) != "[2 4]" {
		t.Errorf("after another change it comes to band %d, %t, of %v", band, ok, in.Bands)
	}
	full := next
	full.Bands = make([]uint64, ttlrules.MaxBands-1)
	if in, band, ok := full.Admit(old); !ok || band != ttlrules.MaxBands || len(in.Bands) != ttlrules.MaxBands {
		t.Errorf("the last band is %d, %t", band, ok)
	}
	full.Bands = make([]uint64, ttlrules.MaxBands)
	if _, _, ok := full.Admit(old); ok {
		t.Error("there are more bands than MaxBands")
	}
	own := ttlrules.Clock{Ts: 50_000, TTL: 1, Kept: 49_000, Seq: 3}
	off := Config{History: ttlrules.History{}.With(1000, 1, 1).With(50_000, 2, ttlrules.Off)}
	if _, _, ok := off.Admit(own); ok {
		t.Error("a deadline at the very instant of a change has a place")
	}
	paused := off.Pause(true, 40_000, 2)
	for _, row := range []struct {
		config Config
		clock  ttlrules.Clock
		want   bool
	}{{paused, own, true}, {off, own, false}, {paused.Pause(false, 60_000, 6), own, false}, {paused, old, false}, {paused, plain, false},
		{off.Pause(true, 50_000, 3), own, false}} {
		if got := row.config.Crowded(row.clock); got != row.want {
			t.Errorf("%+v in %+v is crowded: %t, want %t", row.clock, row.config.Pauses, got, row.want)
		}
	}
}

// TestLive: maxLife counts from when the document was created, as either version says, and no write lengthens it. The
// header says when that was only if a limit counts for the version.
func TestLive(t *testing.T) {
	c := Config{MaxLife: 100, Default: 50, History: ttlrules.History{}.With(1, 1, 50)}
	for name, row := range map[string]struct {
		config    Config
		h         Header
		was       *Header
		created   int64
		limit     int64
		byDefault bool
	}{
		"no limit":         {Config{History: c.History}, Header{Ts: 9000, TTL: 60}, &Header{Ts: 5000}, 0, 0, false},
		"new, inherits":    {c, Header{Ts: 9000}, nil, 0, 0, false},
		"new, never":       {c, Header{Ts: 9000, TTL: ttlrules.Never}, nil, 9000, 109_000, false},
		"again":            {c, Header{Ts: 9000, TTL: 60}, &Header{Ts: 5000}, 5000, 105_000, false},
		"again, inherits":  {c, Header{Ts: 9000}, &Header{Ts: 5000}, 5000, 105_000, true},
		"a third time":     {c, Header{Ts: 9000, TTL: 60}, &Header{Ts: 8000, Created: 3000}, 3000, 103_000, false},
		"imported":         {c, Header{Ts: 9000, TTL: 60, Created: 2000}, nil, 2000, 102_000, false},
		"imported, later":  {c, Header{Ts: 9000, TTL: 60, Created: 7000}, &Header{Ts: 6000}, 6000, 106_000, false},
		"kept":             {c, Header{Ts: 9000, TTL: 200, Kept: 4000}, &Header{Ts: 6000}, 4000, 104_000, false},
		"slid":             {c, Header{Ts: 5000, TTL: 60, Kept: 9000}, &Header{Ts: 5000}, 5000, 105_000, false},
		"too late already": {c, Header{Ts: 500_000, TTL: 60}, &Header{Ts: 5000}, 5000, 500_000, false},
	} {
		got := row.config.Live(row.h, row.was, max(row.h.Ts, row.h.Kept))
		if got.Created != row.created || got.Limit != row.limit || got.ByDefault != row.byDefault {
			t.Errorf("%s: created %d, limit %d, by default %t, want %d, %d, %t", name, got.Created, got.Limit, got.ByDefault,
				row.created, row.limit, row.byDefault)
		}
	}
}
