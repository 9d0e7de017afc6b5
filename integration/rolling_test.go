package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// gaps measures what comes regularly.
type gaps struct {
	mu      sync.Mutex
	n       int
	last    time.Time
	longest time.Duration // between two
	latest  time.Duration // that one was late
}

// saw notes that one came, which was due at an instant.
func (g *gaps) saw(due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.n > 0 {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.n, g.last, g.latest = g.n+1, now, max(g.latest, now.Sub(due))
}

func (g *gaps) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

func (g *gaps) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprintf("%d, the longest gap %v, the latest %v late", g.n, g.longest.Round(time.Millisecond),
		g.latest.Round(time.Millisecond))
}

// expiring writes a document each 10 ms, which expires a second later, and measures the
// events. It ends with ctx.
func expiring(ctx context.Context, t *testing.T, w *world, g *gaps) (wait func()) {
	t.Helper()
	sub, err := w.NC.Subscribe(string(w.Prefix)+".expired.gap.*", func(m *nats.Msg) {
		var e wire.Event
		if json.Unmarshal(m.Data, &e) == nil {
			g.saw(time.UnixMilli(int64(e.ExpiredAt)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := w.TrySend(ctx, harness.Limit, w.Prefix.Write(wire.Upsert, "gap", fmt.Sprint(i)), `{"ttl":1}`,
				nil); err != nil {
				return
			}
			<-tick.C
		}
	})
	return writing.Wait
}

// reading reads by the service all the time, and fails the test if a read is not answered.
func reading(ctx context.Context, t *testing.T, w *world, g *gaps) (wait func()) {
	service := readers.ByService(w.NC, w.Prefix)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				if _, err := service.Get(ctx, "kept", "a"); err != nil && ctx.Err() == nil &&
					!errors.Is(err, sink.ErrNotFound) {
					t.Errorf("a read after %v: %v", time.Since(began), err)
					return
				}
				g.saw(began)
			}
		})
	}
	return all.Wait
}

// TestAll_RollingRestart: three processes are restarted one after the other under load, with one shard and with four.
// Events go on with small gaps, and each read is answered. A tenth of LAPSE_CRASHES is how often (once if it is not
// set).
//
// It fails if an event is lost, repeated or early; if a write is lost; if a process that ends
// drops a read that it has accepted, or accepts one that it does not answer.
func TestAll_RollingRestart(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d shards", shards), func(t *testing.T) {
			t.Parallel()
			rollingRestart(t, shards)
		})
	}
}

func rollingRestart(t *testing.T, shards int) {
	w, all := members(t, 3, shards)
	w.Want(201, wire.Upsert, "kept", "a", `{}`)
	w.Configure("gap", `{"defaultTtl":-1}`)
	l := startLoad(t, w.Client, 34)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var events, reads gaps
	written, read := expiring(ctx, t, w, &events), reading(ctx, t, w, &reads)
	harness.Until(t, harness.Limit, "documents expire", func(context.Context) error {
		if events.count() == 0 {
			return errors.New("there is no event")
		}
		return nil
	})
	l.wait(t, 100)
	rounds := (number(t, "LAPSE_CRASHES", 1) + 9) / 10
	for range rounds {
		for _, m := range all {
			if code := m.Terminate(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			l.wait(t, 50)
			m.Start()
			harness.Until(t, harness.Limit, "all processes know all", func(context.Context) error {
				for _, m := range all {
					if n := metric(t, m.Lapse, "lapse_members"); n != float64(len(all)) {
						return fmt.Errorf("one knows %v", n)
					}
				}
				return nil
			})
			l.wait(t, 50)
		}
	}
	l.wait(t, 100)
	stop()
	written()
	read()
	l.end()
	w.lapse.Ready()
	result := w.verify()
	l.verifyStored(t)
	moves := -shards // the first owners
	for _, m := range all {
		moves += strings.Count(m.Log(), "took the shard over")
	}
	t.Logf("%d rolling restarts of 3 processes: shards moved %d times", rounds, moves)
	t.Logf("events: %s", &events)
	t.Logf("reads: %s", &reads)
	t.Logf("%d messages, %d events: none lost, repeated or early", result.Model.Seq(), len(result.Events))
}
