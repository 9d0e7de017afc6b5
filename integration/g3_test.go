package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_OneEventPerExpiredVersion: of many versions of many documents, each that expires has one event, not before its
// deadline. A version that is overwritten or deleted in time has none.
//
// It fails if the reaper does not compare the version of an index entry (or a write leaves
// the old entry in the index); if lapse publishes an event before the log reaches the
// deadline; if it publishes one for a delete.
func TestG3_OneEventPerExpiredVersion(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":2}`)
	w.Configure("own", `{"defaultTtl":-1}`)
	first := w.Log()[len(w.Log())-1].Seq
	// All are sent at once, so that no version expires before it is overwritten.
	write := func(op wire.Op, collection, id, body string) { w.SendLater(w.Prefix.Write(op, collection, id), body) }
	for round := range 5 {
		for i := range 40 {
			id := fmt.Sprint(i)
			write(wire.Upsert, "c", id, fmt.Sprintf(`{"round":%d}`, round))
			write(wire.Upsert, "own", id, fmt.Sprintf(`{"ttl":%d}`, 2+i%2))
			switch {
			case i%4 == 0:
				write(wire.Touch, "c", id, ``)
			case i%4 == 1 && round == 4:
				write(wire.Delete, "c", id, ``)
				write(wire.Delete, "own", id, ``)
			}
		}
	}
	w.Flush()
	last := w.Write(wire.Upsert, "own", "last", `{"ttl":3}`)
	w.ExpiryOf("own", "last", wire.Etag(last), harness.Limit)
	result := w.verify()
	want := len(result.Model.Expiries)
	if w.stamp(last)-w.stamp(first+1) < 2000 { // else a busy machine was slower than the TTL
		want = 30 + 30 + 1
	}
	if n := len(result.Events); n != want {
		t.Errorf("%d events, want %d", n, want)
	}
	for _, late := range result.Lateness {
		if late > harness.Limit {
			t.Errorf("an event was published %v after the deadline", late)
		}
	}
}

// TestG3_ASilentLogTicks: events do not wait for a silent log: lapse appends a tick when a document is due, and only
// then.
//
// It fails if lapse appends no ticks, or appends them while nothing is due.
func TestG3_ASilentLogTicks(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":-1}`)
	began := time.Now()
	first := w.Want(201, wire.Upsert, "c", "first", `{"ttl":1}`)
	w.ExpiryOf("c", "first", first.Etag, harness.Limit)
	second := w.Want(201, wire.Upsert, "c", "second", `{"ttl":1}`)
	w.ExpiryOf("c", "second", second.Etag, harness.Limit)
	w.verify()
	ticks := 0
	for _, m := range w.Log() {
		if m.Subject == w.Prefix.Log(0, 1).Tick() {
			ticks++
		}
	}
	// lapse repeats a tick that it has not read after a second.
	if most := 10 + int(time.Since(began).Seconds()); ticks < 2 || ticks > most {
		t.Errorf("%d ticks for two deadlines, want 2 to %d", ticks, most)
	}
}
