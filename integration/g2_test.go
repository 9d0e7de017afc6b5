package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// hammer reads documents by get, list and count again and again, until all have expired.
// It fails the test if one is read at or after its deadline, or not found before it. It
// returns how often documents were read in time.
func hammer(t *testing.T, reads readers.Reads, deadlines map[string]wire.Time) int64 {
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
			get := func(ctx context.Context) error {
				began := now()
				_, err := reads.Get(ctx, "c", id)
				if errors.Is(err, sink.ErrNotFound) {
					if at := now(); at < deadlines[id] {
						t.Errorf("%s: %s was not found at %s, before its deadline %s", reads, id, at, deadlines[id])
					}
					return nil
				}
				if err != nil {
					return err
				}
				check("get", id, began)
				return fmt.Errorf("%s can still be read", id)
			}
			_ = get(t.Context())
			after(t, deadlines[id]-200) // reads close to the deadline are the ones that matter
			if err := poll.Until(t.Context(), harness.Limit, get); err != nil {
				t.Error(err)
			}
		})
	}
	all.Go(func() {
		err := poll.Until(t.Context(), harness.Limit, func(ctx context.Context) error {
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
				t.Errorf("%s: count returned %d live documents, want at most %d", reads, count.Live, most)
			}
			if len(docs) > 0 {
				return fmt.Errorf("%d can still be read", len(docs))
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

// longestTTL, in seconds, is how far a test goes that needs a longer TTL on a busy machine.
const longestTTL = 32

// writeToExpire writes documents, half of them with a TTL of their own and half with the
// default, and returns their deadlines. There is a second until the first of them, at least:
// a busy machine may need longer TTLs for that.
func writeToExpire(w *world, n int) map[string]wire.Time {
	w.t.Helper()
	for ttl := 2; ttl <= longestTTL; ttl *= 2 {
		deadlines := writeToExpireAfter(w, n, wire.Time(ttl))
		all := slices.Collect(maps.Values(deadlines))
		if slices.Min(all) >= now()+1000 {
			return deadlines
		}
		after(w.t, slices.Max(all))
	}
	w.t.Fatalf("%d documents were written too late for a TTL of %d s", n, longestTTL)
	return nil
}

func writeToExpireAfter(w *world, n int, ttl wire.Time) map[string]wire.Time {
	w.t.Helper()
	w.Configure("c", fmt.Sprintf(`{"defaultTtl":%d}`, ttl+1))
	ownTTL := fmt.Sprintf(`{"ttl":%d}`, ttl)
	own, inherited := w.Want(201, wire.Create, "c", "own", ownTTL), w.Want(201, wire.Create, "c", "inherited", `{}`)
	if *own.ExpiresAt != own.Ts+ttl*1000 || *inherited.ExpiresAt != inherited.Ts+(ttl+1)*1000 {
		w.t.Errorf("outcomes %+v and %+v, want deadlines after %d seconds and one more", own, inherited, ttl)
	}
	deadlines := map[string]wire.Time{"own": *own.ExpiresAt, "inherited": *inherited.ExpiresAt}
	prefix, from := w.Prefix.Write(wire.Create, "c", "d"), len(w.Log())
	for i := range n {
		w.SendLater(prefix+fmt.Sprint(i), []string{ownTTL, `{}`}[i%2])
	}
	w.Flush()
	for _, m := range w.Log()[from:] {
		if id, ok := strings.CutPrefix(m.Subject, strings.TrimSuffix(prefix, "d")); ok {
			deadlines[id] = m.At + map[string]wire.Time{ownTTL: ttl * 1000, `{}`: (ttl + 1) * 1000}[string(m.Data)]
		}
	}
	for id, deadline := range deadlines {
		harness.Until(w.t, harness.Limit, id+" is written", func(ctx context.Context) error {
			if _, err := w.reader.Get(ctx, "c", id); err != nil && now() < deadline {
				return err
			}
			return nil
		})
	}
	return deadlines
}

// TestG2_NoReadAfterTheDeadline: no read returns a document at or after its deadline: not get, list or count, and
// neither the service nor the reader.
//
// It fails if a read judges by the watermark alone; if list or count do not judge.
func TestG2_NoReadAfterTheDeadline(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	deadlines := writeToExpire(w, 100)
	var both sync.WaitGroup
	for _, reads := range []readers.Reads{readers.ByReader(w.reader), readers.ByService(w.NC, w.Prefix)} {
		both.Go(func() {
			if n := hammer(t, reads, deadlines); n < 100 {
				t.Errorf("%s: documents were read in time only %d times, want at least 100", reads, n)
			}
		})
	}
	both.Wait()
	w.verify()
}

// TestG2_NobodyReaps: the same holds while lapse stands still and reaps nothing.
//
// It fails if a read returns every document that is still in Redis.
func TestG2_NobodyReaps(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	deadlines := writeToExpire(w, 50)
	w.lapse.Stop()
	if n := hammer(t, readers.ByReader(w.reader), deadlines); n < 50 {
		t.Errorf("documents were read in time only %d times, want at least 50", n)
	}
	count, err := w.reader.Count(t.Context(), "c")
	if err != nil || count.Live != 0 || count.Expired == 0 {
		t.Errorf("count %+v, %v: want none live, and some expired and not reaped", count, err)
	}
	w.lapse.Continue()
	w.verify()
}

// TestG2_AtTheDeadlineItself: in the very millisecond of its deadline a document is gone.
//
// It fails if a read judges by < instead of <=. Whether a read falls into one certain
// millisecond is luck on a busy machine; TestG2_NeverAtItsDeadline beside the reader sets the
// clock of Redis instead.
func TestG2_AtTheDeadlineItself(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Configure("c", `{"defaultTtl":2}`)
	for began, exact := time.Now(), 0; exact == 0; {
		if time.Since(began) > harness.Limit/4 {
			t.Log("no read fell into the millisecond of a deadline")
			break
		}
		var written []wire.Outcome
		for i := range 200 {
			written = append(written, w.Want(201, wire.Create, "c", fmt.Sprint("d", i), `{}`))
		}
		for i, o := range written {
			deadline := *o.ExpiresAt
			after(t, deadline-1)
			for over := false; !over; {
				at := now()
				_, err := w.reader.Get(t.Context(), "c", fmt.Sprint("d", i))
				if at >= deadline && !errors.Is(err, sink.ErrNotFound) {
					t.Errorf("d%d: read at %s, its deadline is %s: %v", i, at, deadline, err)
				}
				if at == deadline && now() == deadline {
					exact++
				}
				over = at >= deadline
			}
		}
	}
	w.verify()
}
