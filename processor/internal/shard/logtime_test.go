package shard

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

// TestG4_LogTime: log time is the greatest stamp so far, wherever the reading began, if
// the partition knows the log time there.
//
// Goes red if a second reading forgets a stamp that is greater than later ones, or knows
// one that comes later.
func TestG4_LogTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 40).Draw(t, "stamps")
		greatest := func(upTo int) int64 {
			if upTo == 0 {
				return 0
			}
			return slices.Max(stamps[:upTo])
		}
		// Sequence i+1 is stamped stamps[i].
		began := rapid.IntRange(0, len(stamps)-1).Draw(t, "began")
		var c logTime
		read := began
		for range rapid.IntRange(1, 5).Draw(t, "readings") {
			start := rapid.IntRange(began, read).Draw(t, "start")
			c.back(uint64(start))
			end := rapid.IntRange(start, len(stamps)).Draw(t, "end")
			for i := start; i < end; i++ {
				got := max(c.at(uint64(i+1), stamps[i]), greatest(began))
				if want := greatest(i + 1); got != want {
					t.Fatalf("from %d, back at %d: log time at %d of %v is %d, want %d", began, start, i+1, stamps, got, want)
				}
			}
			read = max(read, end)
		}
	})
}

// TestG4_LogTimeOfAPartitionThatGoesAway: a partition goes away at a message whose stamp is
// less than that of a message of another partition just before it.
//
// It fails if the partition's own reader, which does not read that other one, begins log time
// anew: the message would be applied at its own stamp.
func TestG4_LogTimeOfAPartitionThatGoesAway(t *testing.T) {
	at := func(c *logTime, seq uint64, stamp int64) *fold.Message {
		return &fold.Message{Position: fold.Position{Seq: seq, Time: c.at(seq, stamp)}}
	}
	b := attached(1, 1000)
	main := logTime{}
	b.offer(at(&main, 1, 100), always, never)
	at(&main, 2, 200) // of another partition
	b.offer(at(&main, 3, 150), always, never)
	if !b.isAway() {
		t.Fatal("the partition is not away")
	}
	applied := b.takeAll()
	after, times := b.from()
	if after >= 3 {
		t.Fatalf("it reads after %d", after)
	}
	own := logTime{} // as catchUpOnce begins
	for seq := after + 1; seq <= 3; seq++ {
		m := at(&own, seq, []int64{0, 100, 200, 150}[seq])
		if seq == 3 && !b.fill(m, times, never) {
			t.Fatal("the message is refused")
		}
	}
	applied = append(applied, b.takeAll()...)
	watermark := int64(0)
	for _, m := range applied {
		watermark = max(watermark, m.Time)
	}
	if watermark != 200 {
		t.Errorf("messages %v are applied, the last at log time %d, want 200", seqs(applied), watermark)
	}
}

// TestG4_LogTimeOfAnInterruptedReading: the partition's own reading is interrupted after a
// message of another partition whose stamp is greater than those that follow.
//
// It fails if the next reading begins log time anew after that message.
func TestG4_LogTimeOfAnInterruptedReading(t *testing.T) {
	stamps := []int64{0, 100, 200, 150, 160}
	b := newInbox(10, 1000)
	b.Rewind(0, 4)
	after, times := b.from()
	own := logTime{}
	for seq := after + 1; seq <= 2; seq++ { // both are of another partition
		b.advance(fold.Position{Seq: seq, Time: own.at(seq, stamps[seq])}, times)
	}
	after, times = b.from() // the connection was lost: catchUpOnce begins again
	own = logTime{}
	for seq := after + 1; seq <= 3; seq++ {
		at := fold.Position{Seq: seq, Time: own.at(seq, stamps[seq])}
		if seq == 3 {
			b.fill(&fold.Message{Position: at}, times, never)
		}
		b.advance(at, times)
	}
	if got := b.takeAll(); len(got) != 1 || got[0].Time != 200 {
		t.Errorf("%d messages, the first at log time %d, want 200", len(got), got[0].Time)
	}
	if at := b.position(fold.Position{}); at.Time != 200 {
		t.Errorf("log time at %d is %d, want 200", at.Seq, at.Time)
	}
}
