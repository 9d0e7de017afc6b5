package lease

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

func newTestWatch() *watch {
	return &watch{me: "me", timing: defaultTiming}
}

func owned(owner string, revision uint64) entry {
	return entry{Lease: wire.Lease{Owner: owner}, Revision: revision}
}

func expectTakeAt(t *testing.T, w *watch, rank int, want time.Duration) {
	t.Helper()
	if got, known := w.takeAt(rank); got != want || !known {
		t.Errorf("due at %v, %t, want %v", got, known, want)
	}
}

func TestSilenceIsCountedFromTheLastSignOfLife(t *testing.T) {
	w := newTestWatch()
	if _, known := w.takeAt(0); known {
		t.Error("due before the lease was read")
	}
	w.adopt(owned("a", 7), 1000*ms)
	expectTakeAt(t, w, 0, 1500*ms)
	w.heard(wire.Beat{Owner: "a", Revision: 7}, 1100*ms)
	expectTakeAt(t, w, 0, 1600*ms)
	expectTakeAt(t, w, 2, 1650*ms) // a later rank waits longer
	w.adopt(owned("a", 7), 1200*ms)
	expectTakeAt(t, w, 0, 1600*ms) // nothing new
	w.adopt(owned("a", 8), 1300*ms)
	expectTakeAt(t, w, 0, 1800*ms) // renewed: the owner lives
	w.heard(wire.Beat{Owner: "a", Revision: 9}, 1400*ms)
	if w.lease.Revision != 9 {
		t.Errorf("revision %d", w.lease.Revision)
	}
}

func TestStandingStillIsNoSilence(t *testing.T) {
	w := newTestWatch()
	w.adopt(owned("a", 7), 0)
	w.restart(1900*ms, 2000*ms, w.timing.listen) // it stood still from 100 ms on
	expectTakeAt(t, w, 0, 2400*ms)
	w.restart(1950*ms, 2400*ms, w.timing.listen) // and for the last 50 ms: it listens for some time yet
	expectTakeAt(t, w, 0, 2600*ms)
	w.restart(3000*ms, 3000*ms, 1500*ms) // the connection was lost: the owner may be back later
	expectTakeAt(t, w, 0, 4500*ms)
	w.heard(wire.Beat{Owner: "a", Revision: 7}, 3100*ms)
	expectTakeAt(t, w, 0, 3600*ms)
}

// A busy machine makes a standby stand still for 300 ms again and again. Fails if it never suspects
// an owner that is dead.
func TestWhoStandsStillOftenSuspectsInTheEnd(t *testing.T) {
	w, now := newTestWatch(), time.Duration(0)
	w.adopt(owned("a", 7), now)
	for range 3 {
		now += 250*ms + 300*ms
		if at, _ := w.takeAt(0); at <= now-300*ms {
			return // before it stood still again
		}
		w.restart(w.since+300*ms, now, w.timing.listen)
	}
	t.Errorf("after %v it waits on", now)
}

func TestAReleaseCountsAtOnce(t *testing.T) {
	w := newTestWatch()
	w.adopt(owned("a", 7), 0)
	w.heard(wire.Beat{Owner: "b", Revision: 8, Released: true}, 100*ms)
	if w.free {
		t.Error("another than the owner released it")
	}
	w.heard(wire.Beat{Owner: "a", Revision: 9, Released: true}, 200*ms)
	expectTakeAt(t, w, 0, 200*ms)
	expectTakeAt(t, w, 1, 205*ms)
	expectTakeAt(t, w, 50, 225*ms)
	if w.lease.Revision != 9 || w.former != "a" {
		t.Errorf("%+v", w)
	}
}

func TestABeatOfAnotherMakesTheStandbyReadTheLease(t *testing.T) {
	w := newTestWatch()
	w.adopt(owned("a", 7), 0)
	w.heard(wire.Beat{Owner: "me", Revision: 7}, 100*ms)
	if w.reread {
		t.Error("its own beat is strange")
	}
	w.heard(wire.Beat{Owner: "b", Revision: 8}, 100*ms)
	if !w.reread {
		t.Error("the beat of another is not")
	}
	expectTakeAt(t, w, 0, 500*ms) // it is no sign of life of a
	if !w.adopt(owned("b", 8), 110*ms) {
		t.Error("b is not another owner")
	}
	expectTakeAt(t, w, 0, 610*ms)
}

// Fails if a process stays impatient after its first attempt. It would then take the lease
// from a process that has just taken it.
func TestImpatienceIsForTheFirstOwnerThatWasReadAlone(t *testing.T) {
	w := newTestWatch()
	w.atOnce = true
	w.adopt(owned("dead", 7), 0)
	expectTakeAt(t, w, 3, 0)
	w.adopt(owned("quicker", 8), 10*ms)
	expectTakeAt(t, w, 0, 510*ms)
}

func TestAChangeThatNobodyAcknowledgedIsFound(t *testing.T) {
	w := newTestWatch()
	w.adopt(owned("a", 7), 0)
	w.adopt(owned("me", 8), 100*ms)
	expectTakeAt(t, w, 0, 100*ms)
}

// Beats of another region do not count, and are told: what keeps them out keeps out fences and events too.
func TestBeatsOfAnotherRegionAreTold(t *testing.T) {
	s := newShard(&Member{seams: noSeams(), log: slog.New(slog.DiscardHandler), opts: Options{Region: "a"}}, 0)
	beat := func(region string) *nats.Msg {
		body, err := json.Marshal(wire.Beat{Owner: "x", Region: region})
		if err != nil {
			t.Fatal(err)
		}
		return &nats.Msg{Data: body}
	}
	if _, ok := s.parse(beat("a")); !ok || s.Crossing() != "" {
		t.Errorf("a beat of the region itself: %t, %q crosses", ok, s.Crossing())
	}
	if _, ok := s.parse(beat("b")); ok || s.Crossing() != "b" {
		t.Errorf("a beat of another region: %t, %q crosses", ok, s.Crossing())
	}
}
