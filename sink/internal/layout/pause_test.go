package layout

import (
	"math"
	"testing"

	"github.com/seed18712806/lapse/ttlrules"
)

// TestDecodeConfigRefuses: a text that lapse has not stored is no configuration, and an empty one is that of a
// collection without any.
func TestDecodeConfigRefuses(t *testing.T) {
	for _, raw := range []string{"{", "[]", `{"maxLife":-1}`, `{"warnings":[[1,2,0]]}`} {
		if c, err := DecodeConfig(raw); err == nil {
			t.Errorf("%s is read as %+v", raw, c)
		}
	}
	if c, err := DecodeConfig(""); err != nil || c.Paused() || c.History != nil {
		t.Errorf("no configuration is read as %+v, %v", c, err)
	}
}

// TestReapCuts: while a collection is paused, the owner reaps only documents that had expired when the pause began: up
// to that instant, whatever the log time, and nothing once they are reaped. Without a pause it reaps up to log time.
func TestReapCuts(t *testing.T) {
	c := Config{History: ttlrules.History{}.With(1000, 1, 10)}
	if own := c.ReapCuts(0, 9000).Own; own != 9000 {
		t.Errorf("reaps up to %d, want 9000", own)
	}
	paused := c.Pause(true, 5000, 7)
	for until, want := range map[int64]int64{4000: 4000, 5000: 5000, 9000: 5000} {
		if own := paused.ReapCuts(0, until).Own; own != want {
			t.Errorf("paused at 5000, at %d: reaps up to %d, want %d", until, own, want)
		}
	}
	paused.Bands = []uint64{1}
	if cuts := paused.ReapCuts(1, 9000); cuts.Own != ttlrules.NoCut {
		t.Errorf("a band has no documents with a TTL of their own, and is reaped up to %d", cuts.Own)
	}
}

// TestUnderPause: a version that is written into a paused collection, and has expired as it is written, has to wait
// until the documents are reaped that had expired when the pause began: at its very instant too.
func TestUnderPause(t *testing.T) {
	paused := Config{History: ttlrules.History{}.With(1000, 1, 10)}.Pause(true, 5000, 7)
	drained := paused.drained()
	for _, row := range []struct {
		config   Config
		deadline int64
		seq      uint64
		want     bool
	}{
		{paused, 4000, 8, true}, {paused, 5000, 8, true}, {paused, 5001, 8, false}, {paused, 5000, 6, false},
		{paused, 5000, 7, true}, {drained, 5000, 8, false},
		{paused.Pause(false, 6000, 8), 5000, 9, false},
	} {
		clock := ttlrules.Clock{Ts: row.deadline - 1000, TTL: 1, Seq: row.seq}
		if got := row.config.underPause(clock); got != row.want {
			t.Errorf("deadline %d, message %d: has to wait %v, want %v (%+v)", row.deadline, row.seq, got, row.want,
				row.config.Pauses)
		}
	}
	for ts, want := range map[int64]bool{-5000: true, -4999: false} { // the default is 10 s
		if got := paused.underPause(ttlrules.Clock{Ts: ts, Seq: 8}); got != want {
			t.Errorf("inherits the default, since %d: has to wait %v, want %v", ts, got, want)
		}
	}
	if at, ok := paused.FirstReaped(0, 5000, false); !ok || at != 5000 {
		t.Errorf("what had expired when the pause began is first due at %d, %v", at, ok)
	}
	if at, ok := paused.FirstReaped(0, 5001, false); ok || at > math.MaxInt64-1 {
		t.Errorf("what expires in a pause is due at %d", at)
	}
}
