package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// hammer reads documents over and over, in every way, until all are gone, and
// fails the test at each that is read at or after its deadline. It returns how
// often one was read in time.
func hammer(t *testing.T, reads oracle.Reads, deadlines map[string]wire.Time) int64 {
	t.Helper()
	var inTime atomic.Int64
	check := func(how, id string, began wire.Time) {
		deadline, ok := deadlines[id]
		if !ok || began >= deadline {
			t.Errorf("%s, %s: %s was read at %s, its deadline was %s", reads, how, id, began, deadline)
		}
		inTime.Add(1)
	}
	var all sync.WaitGroup
	for id := range deadlines {
		all.Go(func() {
			err := harness.Poll(t.Context(), harness.Limit, func(ctx context.Context) error {
				began := now()
				_, err := reads.Get(ctx, "c", id)
				if errors.Is(err, sink.ErrNotFound) {
					if now() < deadlines[id] {
						return fmt.Errorf("%s was not found before its deadline", id)
					}
					return nil
				}
				if err != nil {
					return err
				}
				check("get", id, began)
				return fmt.Errorf("%s is still there", id)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		err := harness.Poll(t.Context(), harness.Limit, func(ctx context.Context) error {
			began := now()
			docs, err := reads.List(ctx, "c")
			if err != nil {
				return err
			}
			for _, d := range docs {
				check("list", d.ID, began)
			}
			count, err := reads.Count(ctx, "c")
			if err != nil {
				return err
			}
			most := int64(0)
			for _, deadline := range deadlines {
				if began < deadline {
					most++
				}
			}
			if count.Live > most {
				t.Errorf("%s: count says that %d are live, %d are", reads, count.Live, most)
			}
			if len(docs) > 0 {
				return fmt.Errorf("%d are still there", len(docs))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	all.Wait()
	return inTime.Load()
}

// writeToExpire writes documents that expire one after the other, by their own
// TTL and by the default, and returns their deadlines.
func writeToExpire(w *world, n int) map[string]wire.Time {
	w.t.Helper()
	w.Configure("c", `{"defaultTtl":2}`)
	deadlines := map[string]wire.Time{}
	for i := range n {
		id, body, ttl := fmt.Sprintf("d%d", i), `{}`, wire.Time(2000)
		if i%2 == 0 {
			body, ttl = `{"ttl":1}`, 1000
		}
		o := w.Want(201, wire.Create, "c", id, body)
		if o.ExpiresAt == nil || *o.ExpiresAt != o.Ts+ttl {
			w.t.Errorf("%s: outcome %+v", id, o)
			continue
		}
		deadlines[id] = *o.ExpiresAt
	}
	return deadlines
}

// No read returns a document at or after its deadline: not by get, list or
// count, not by the service nor by the reader.
//
// It fails if a read judges by the watermark alone; if list or count leave the
// judging to get.
func TestG2_NoReadAfterTheDeadline(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	deadlines := writeToExpire(w, 100)
	var both sync.WaitGroup
	for _, reads := range []oracle.Reads{oracle.ByReader(w.reader), oracle.ByService(w.NC, w.Prefix)} {
		both.Go(func() {
			if n := hammer(t, reads, deadlines); n < 100 {
				t.Errorf("%s: read in time %d times only", reads, n)
			}
		})
	}
	both.Wait()
	w.verify()
}

// Nor does it when nobody reaps: expiry is a matter of reading, not of cleaning up.
//
// It fails if reads return whatever is in Redis still.
func TestG2_NobodyReaps(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	deadlines := writeToExpire(w, 50)
	w.lapse.Stop()
	if n := hammer(t, oracle.ByReader(w.reader), deadlines); n < 50 {
		t.Errorf("read in time %d times only", n)
	}
	count, err := w.reader.Count(t.Context(), "c")
	if err != nil || count.Live != 0 || count.Expired == 0 {
		t.Errorf("count %+v, %v: want some that are expired and not reaped, and none live", count, err)
	}
	w.lapse.Continue()
	w.verify()
}

// At the very millisecond of its deadline a document is gone.
//
// It fails if a read judges by < where <= belongs.
func TestG2_AtTheDeadlineItself(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	deadlines := writeToExpire(w, 200)
	ids := slices.SortedFunc(maps.Keys(deadlines), func(a, b string) int { return cmp.Compare(deadlines[a], deadlines[b]) })
	exact := 0
	for _, id := range ids {
		after(t, deadlines[id])
		began := now()
		_, err := w.reader.Get(t.Context(), "c", id)
		if !errors.Is(err, sink.ErrNotFound) {
			t.Errorf("%s: read at %s, its deadline is %s: %v", id, began, deadlines[id], err)
		}
		if now() == deadlines[id] {
			exact++
		}
	}
	if exact == 0 {
		t.Error("no read fell into the millisecond of a deadline")
	}
	w.verify()
}
