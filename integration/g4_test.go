package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// A write that reached the log before the deadline wins, however late lapse
// comes to it; one that reached it after finds the document gone.
//
// It fails if lapse judges a write by its own clock instead of the stamp; if
// the reaper takes what is due by the clock before the log has been applied.
func TestG4_TheStampDecidesNotTheClock(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":1}`)
	won := w.Want(201, wire.Create, "c", "won", `{}`)
	lost := w.Want(201, wire.Create, "c", "lost", `{"v":1}`)
	w.stopProcessor()
	touch := w.Write(wire.Touch, "c", "won", ``)
	if at := w.stamp(touch); at >= *won.ExpiresAt {
		t.Fatalf("the touch came at %s, too late for the test", at)
	}
	after(t, *lost.ExpiresAt)
	late := w.Write(wire.Touch, "c", "lost", ``)
	again := w.Write(wire.Create, "c", "lost", `{"v":2}`)
	w.startProcessor()

	result := w.verify()
	outcomes := result.Model.Outcomes
	if outcomes[touch].Status != 200 || outcomes[late].Status != 404 || outcomes[again].Status != 201 {
		t.Errorf("the oracle says %v, %v, %v", outcomes[touch], outcomes[late], outcomes[again])
	}
	w.ExpiryOf("c", "won", wire.Etag(touch), harness.Limit)
	w.ExpiryOf("c", "lost", wire.Etag(again), harness.Limit)
	w.verify()
}

// Touches race with deadlines, within milliseconds: whichever reached the log
// first has won, and events, versions and rejections of one document come in order.
//
// It fails if a document is expired only after its deadline's millisecond (or
// already before); if the event of an expired version is published after the
// answer to the write that met it.
func TestG4_RacesAtTheDeadline(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":1}`)
	r := rand.New(rand.NewPCG(5, 5))
	type race struct {
		id string
		at time.Time
	}
	var races []race
	for i := range 300 {
		id := fmt.Sprint(i)
		seq := w.Write(wire.Upsert, "c", id, `{}`)
		deadline := time.UnixMilli(int64(w.stamp(seq) + 1000))
		around := r.IntN(7) - 4 // a write takes part of a millisecond to get there
		if i%2 == 0 {
			around = r.IntN(61) - 40 // more where the machine is busy
		}
		races = append(races, race{id, deadline.Add(time.Duration(around) * time.Millisecond)})
	}
	slices.SortFunc(races, func(a, b race) int { return a.at.Compare(b.at) })
	for _, race := range races {
		harness.At(t, race.at)
		op := []wire.Op{wire.Touch, wire.Create, wire.Patch}[r.IntN(3)]
		w.Write(op, "c", race.id, map[bool]string{true: `{"second":true}`}[op.HasBody()])
	}
	last := w.Write(wire.Upsert, "c", "last", `{}`)
	w.ExpiryOf("c", "last", wire.Etag(last), harness.Limit)
	result := w.verify()
	met, missed := 0, 0
	for _, o := range result.Model.Outcomes {
		switch o.Status {
		case 200, 409:
			met++
		case 404:
			missed++
		}
	}
	if met < 10 || missed < 10 {
		t.Errorf("%d touches met a live document, %d an expired one: the races were no races", met, missed)
	}
}
