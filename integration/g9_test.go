package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// fill publishes n documents at once, and returns the outcome of the last.
func (w *world) fill(collection string, n int, body string) wire.Outcome {
	w.t.Helper()
	for i := range n - 1 {
		w.SendLater(w.Prefix.Write(wire.Upsert, collection, fmt.Sprint(i)), body)
	}
	w.Flush()
	return w.Want(201, wire.Upsert, collection, "last", body)
}

// TestG9_WritesGoBeforeReaping: while very many documents are due, lapse applies writes in between. A write does not
// wait until all due documents are reaped.
//
// It fails if lapse reaps all due documents in one step; if it goes on reaping while
// writes are pending.
func TestG9_WritesGoBeforeReaping(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	const many = 8_000
	last := w.fill("c", many, `{}`)
	w.Want(201, wire.Upsert, "busy", "a", `{}`)
	after(t, last.Ts+1000)
	w.Send(w.Prefix.Config("c"), `{"defaultTtl":1}`, nil)
	var refused []uint64
	// A busy machine may be slow to send, so this goes on until all are reaped.
	for began, reaped := time.Now(), false; len(refused) < 20 || !reaped; {
		if limit := 5 * time.Minute; time.Since(began) > limit {
			t.Fatalf("the documents are not reaped after %v and %d writes", limit, len(refused))
		}
		_, seq := w.Do(w.Prefix.Write(wire.Create, "busy", "a"), `{}`, nil)
		refused = append(refused, seq)
		count, err := w.reader.Count(t.Context(), "c")
		reaped = err == nil && count.Live+count.Expired == 0
		harness.At(t, time.Now().Add(20*time.Millisecond))
	}
	result := w.verify()

	// Count, in the order of the stream, the expirations before each rejection.
	at := map[string]int{}
	expiries := 0
	for _, e := range result.Events {
		if strings.HasPrefix(e.Published(), "lapse.expired.c.") {
			expiries++
		} else {
			at[e.Header.Get(wire.HeaderSeq)] = expiries
		}
	}
	if expiries != many {
		t.Fatalf("%d expirations, want %d", expiries, many)
	}
	between := 0
	for _, seq := range refused {
		if n := at[fmt.Sprint(seq)]; n > 0 && n < expiries {
			between++
		}
	}
	if between == 0 {
		t.Errorf("no write was applied between the first and the last of %d expirations: %v", expiries, at)
	}
	t.Logf("%d of %d writes were applied between the first and the last of %d expirations", between, len(refused),
		expiries)
}

// TestG9_ReapingIsNotStarved: while very many writes are pending, lapse reaps due documents in between.
//
// It fails if the reaper waits for a moment without pending writes.
func TestG9_ReapingIsNotStarved(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":1}`)
	w.stopProcessor()
	const due, pending = 500, 6_000
	for i := range due {
		w.SendLater(w.Prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
	}
	w.Flush()
	last := w.Write(wire.Upsert, "busy", "0", `{}`)
	after(t, w.stamp(last)+1000)
	for i := range pending {
		w.SendLater(w.Prefix.Write(wire.Upsert, "busy", fmt.Sprint(i)), `{}`)
	}
	w.SendLater(w.Prefix.Write(wire.Create, "busy", "0"), `{}`) // at the end, a rejection
	w.Flush()
	slow := harness.NewProxy(t, w.redis.Address()) // so that lapse reads the log faster than it applies it
	slow.Delay(harness.ToClient, 10*time.Millisecond)
	w.proc = harness.StartProcessor(t, w.nats.URL(), slow.Address(), w.opts)

	result := w.verify()
	reaped := 0 // before the rejection
	for _, e := range result.Events {
		if strings.HasPrefix(e.Published(), "lapse.rejected.") {
			break
		}
		reaped++
	}
	if reaped == 0 {
		t.Error("nothing was reaped before all pending writes were applied")
	}
}
