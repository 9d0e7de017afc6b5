package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// Of many versions of many documents, those that expire have one event each,
// not before their deadline, and those that are overwritten or deleted in time
// have none.
//
// It fails if the reaper takes an entry of the index without looking at the
// version (or the write leaves the old entry in it); if what is due is
// published before the log has got there; if a delete is told as an expiry.
func TestG3_OneEventPerExpiredVersion(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":1}`)
	w.Configure("own", `{"defaultTtl":-1}`)
	for round := range 5 {
		for i := range 40 {
			id := fmt.Sprint(i)
			w.Write(wire.Upsert, "c", id, fmt.Sprintf(`{"round":%d}`, round))
			w.Write(wire.Upsert, "own", id, fmt.Sprintf(`{"ttl":%d}`, 1+i%2))
			switch {
			case i%4 == 0:
				w.Write(wire.Touch, "c", id, ``)
			case i%4 == 1 && round == 4:
				w.Write(wire.Delete, "c", id, ``)
				w.Write(wire.Delete, "own", id, ``)
			}
		}
	}
	last := w.Write(wire.Upsert, "own", "last", `{"ttl":2}`)
	w.ExpiryOf("own", "last", wire.Etag(last), harness.Limit)
	result := w.verify()
	if n := len(result.Events); n != 30+30+1 {
		t.Errorf("%d events, want 61", n)
	}
	for _, late := range result.Lateness {
		if late > 5*time.Second {
			t.Errorf("an event came %v after the deadline", late)
		}
	}
}

// A silent log does not keep events waiting: time moves by ticks, and only when
// something falls due.
//
// It fails if nobody appends ticks; if they come without end while nothing is due.
func TestG3_ASilentLogTicks(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":-1}`)
	first := w.Want(201, wire.Upsert, "c", "first", `{"ttl":1}`)
	second := w.Want(201, wire.Upsert, "c", "second", `{"ttl":2}`)
	w.ExpiryOf("c", "first", first.Etag, harness.Limit)
	w.ExpiryOf("c", "second", second.Etag, harness.Limit)
	w.verify()
	ticks := 0
	for _, m := range w.Log() {
		if m.Subject == w.Prefix.Tick() {
			ticks++
		}
	}
	if ticks < 2 || ticks > 10 {
		t.Errorf("%d ticks for two deadlines", ticks)
	}
}
