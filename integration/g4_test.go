package integration

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG4_TheStampDecidesNotTheClock: a write that reached the log before the deadline wins, however late lapse applies
// it. A write that reached the log after the deadline finds the document gone.
//
// It fails if lapse judges a write by its own clock instead of the stamp; if the reaper
// goes by the clock and runs ahead of the log.
func TestG4_TheStampDecidesNotTheClock(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":-1}`)
	var won, lost string
	var deadline wire.Time // of lost
	var touch uint64
	// A busy machine may need longer than the TTL to stop the processor.
	for ttl, inTime := 3, false; !inTime; ttl *= 2 {
		if ttl > longestTTL {
			t.Fatalf("the processor stopped too late for a TTL of %d s", longestTTL)
		}
		won, lost = fmt.Sprint("won", ttl), fmt.Sprint("lost", ttl)
		body := fmt.Sprintf(`{"ttl":%d}`, ttl)
		first := *w.Want(201, wire.Create, "c", won, body).ExpiresAt
		deadline = *w.Want(201, wire.Create, "c", lost, body).ExpiresAt
		w.stopProcessor()
		touch = w.Write(wire.Touch, "c", won, ``)
		if inTime = w.stamp(touch) < first; !inTime {
			w.startProcessor()
		}
	}
	after(t, deadline)
	late := w.Write(wire.Touch, "c", lost, ``)
	again := w.Write(wire.Create, "c", lost, `{"v":2,"ttl":3}`)
	w.startProcessor()

	result := w.verify()
	outcomes := result.Model.Outcomes
	if outcomes[touch].Status != 200 || outcomes[late].Status != 404 || outcomes[again].Status != 201 {
		t.Errorf("the outcomes of the oracle are %v, %v, %v, want 200, 404, 201", outcomes[touch], outcomes[late],
			outcomes[again])
	}
	w.ExpiryOf("c", won, wire.Etag(touch), harness.Limit)
	w.ExpiryOf("c", lost, wire.Etag(again), harness.Limit)
	w.verify()
}

// TestG4_RacesAtTheDeadline: writes race with deadlines, within milliseconds. The one that the log has first wins, and
// the events and versions of one document stand in order.
//
// It fails if a document expires a millisecond after its deadline or before it; if lapse
// publishes the event of an expired version after the rejection of the write that met it.
func TestG4_RacesAtTheDeadline(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":1}`)
	r := rand.New(rand.NewPCG(5, 5))
	const least, rounds, together = 40, 60, 40
	won, lost := 0, 0
	way := time.Millisecond // how long a write takes to the log; the last round shows it
	acks := make([]jetstream.PubAckFuture, together)
	for round := 0; won < least || lost < least; round++ {
		if round == rounds {
			t.Fatalf("%d writes came before a deadline and %d after one, in %d rounds; want %d each", won, lost, rounds,
				least)
		}
		races := make([]race, together)
		for i := range races {
			races[i].id = fmt.Sprintf("%d-%d", round, i)
			acks[i] = w.SendLater(w.Prefix.Write(wire.Upsert, "c", races[i].id), `{}`)
		}
		for i := range races {
			races[i].deadline = w.stamp(w.Stored(acks[i])) + 1000
			around := r.IntN(7) - 3
			if i%2 == 0 {
				around = r.IntN(41) - 20
			}
			races[i].begin = time.UnixMilli(int64(races[i].deadline)).Add(time.Duration(around)*time.Millisecond - way)
		}
		slices.SortFunc(races, func(a, b race) int { return a.begin.Compare(b.begin) })
		for i := range races {
			harness.At(t, races[i].begin)
			op := []wire.Op{wire.Touch, wire.Create, wire.Patch}[r.IntN(3)]
			acks[i] = w.SendLater(w.Prefix.Write(op, "c", races[i].id),
				map[bool]string{true: `{"second":true}`}[op.HasBody()])
		}
		late := make([]time.Duration, 0, together)
		for i, race := range races {
			stamp := w.stamp(w.Stored(acks[i]))
			if stamp < race.deadline {
				won++
			} else {
				lost++
			}
			late = append(late, time.UnixMilli(int64(stamp)).Sub(race.begin))
		}
		slices.Sort(late)
		way = late[together/2]
	}
	last := w.Write(wire.Upsert, "c", "last", `{}`)
	w.ExpiryOf("c", "last", wire.Etag(last), harness.Limit)
	w.verify()
}

// race is one write that races with a deadline.
type race struct {
	id       string
	deadline wire.Time
	begin    time.Time
}
