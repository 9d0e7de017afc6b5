package processor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// startWatched starts a processor of one shard. Its goroutine calls look at each point
// after the takeover.
func (r *rig) startWatched(look func(*shard.Owner, crash.Point) error) *process {
	r.t.Helper()
	var watched atomic.Pointer[Processor]
	p := r.start(func(here crash.Point) error {
		p := watched.Load()
		if p == nil || here == crash.BeforeCheckpoint || here == crash.AfterCheckpoint ||
			p.session.owner.Collections() == nil {
			return nil
		}
		return look(p.session.owner, here)
	})
	watched.Store(p.Processor)
	return p
}

// veryMany is a hundred thousand, or fewer with the race detector.
var veryMany = map[bool]int{false: 100_000, true: 20_000}[raceEnabled]

// storeCollections stores n configured collections in shard 0, while no processor
// runs: each with a history and, if the header is not nil, a document.
func (r *rig) storeCollections(n int, of func(i int) (ttlrules.History, *store.Header)) {
	r.t.Helper()
	p := store.New(r.redis, prefix, 0, 1)
	state, err := p.Load(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	const chunk = 1000
	for i := 0; i < n; i += chunk {
		var configs []store.ConfigChange
		var changes []store.CollectionChanges
		for j := i; j < i+chunk; j++ {
			name := fmt.Sprint("many", j)
			history, h := of(j)
			configs = append(configs, store.ConfigChange{Collection: name, Config: &store.Config{History: history}})
			if h != nil {
				changes = append(changes, store.CollectionChanges{Collection: name,
					Changes: []store.Change{{ID: "x", New: h, Body: []byte(`{}`)}}})
			}
		}
		next := fmt.Sprint("stored-", i)
		pr := store.Progress{Version: state.Version, Next: next, Offset: state.Offset, Watermark: state.Watermark}
		if err := p.Commit(r.t.Context(), pr, configs, changes); err != nil {
			r.t.Fatal(err)
		}
		state.Version = next
	}
}

// TestG9_VeryManyCollectionsCostAStepNothing: with a hundred thousand collections, a step
// visits no more of them than with ten. A takeover looks up each once.
//
// Goes red if a step, or a duty of each second, visits all collections.
func TestG9_VeryManyCollectionsCostAStepNothing(t *testing.T) {
	t.Parallel()
	for i, b := range backends {
		if quick && i == 0 {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, b, Options{})
			p := r.start(nil)
			p.ready(t)
			r.config("few", `{"defaultTtl":3600}`)
			p.stop(t)
			far := time.Now().Add(time.Hour).UnixMilli()
			// One in ten has a document, and epochs to be dropped.
			r.storeCollections(veryMany, func(i int) (ttlrules.History, *store.Header) {
				history := ttlrules.History{}.With(0, 1, 10)
				if i%10 != 0 {
					return history.Settled(), nil
				}
				return history, &store.Header{Ts: far, Etag: 1}
			})
			var visited, steps, finds, left atomic.Int64
			left.Store(int64(veryMany))
			p = r.startWatched(func(p *shard.Owner, here crash.Point) error {
				switch here {
				case crash.AfterCommit:
					steps.Add(1)
					visited.Store(int64(p.Collections().Visited()))
					left.Store(int64(p.Collections().Unsettled()))
				case crash.AfterFind:
					finds.Add(1)
				}
				return nil
			})
			p.ready(t)
			eventually(t, "all are looked up and settled", func() bool { return left.Load() <= shard.SettleAtOnce })
			t.Logf("taken over with %d look-ups, %d commits, %d visits", finds.Load(), steps.Load(), visited.Load())
			if n := visited.Load(); n > int64(200*veryMany) {
				t.Errorf("taking over visited %d entries", n)
			}
			r.put("few", "warm", `{}`)
			before, stepsBefore := visited.Load(), steps.Load()
			// Long enough for the duties of each second.
			for i, until := 0, time.Now().Add(5*shard.HeartbeatEvery/2); time.Now().Before(until); i++ {
				r.put("few", fmt.Sprint(i%100), `{}`)
			}
			r.caughtUp(p)
			n, of := visited.Load()-before, steps.Load()-stepsBefore
			t.Logf("%d steps visited %d entries", of, n)
			// Some are verified each second, and a few steps look some up ahead.
			if most := 10*of + 5000; n > most {
				t.Errorf("%d steps visited %d entries, want less than %d", of, n, most)
			}
			p.stop(t)
		})
	}
}

// TestEmptiedCollectionsAreForgotten: a collection without documents and without a
// configuration leaves no trace in the process or in Redis, however it was emptied.
//
// Goes red if a collection stays in memory for ever.
func TestEmptiedCollectionsAreForgotten(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var known atomic.Pointer[[]string]
		p := r.startWatched(func(p *shard.Owner, here crash.Point) error {
			if here == crash.AfterCommit {
				names := p.Collections().Names()
				known.Store(&names)
			}
			return nil
		})
		p.ready(t)
		r.put("deleted", "x", `{}`)
		r.must(204, prefix.Write(wire.Delete, "deleted", "x"), ``)
		r.put("dropped", "x", `{}`)
		r.must(204, prefix.Drop("dropped"), ``)
		r.config("expires", `{"defaultTtl":1}`)
		r.put("expires", "x", `{}`)
		r.waitEvents("expires", 1)
		r.must(204, prefix.Drop("expires"), ``)
		r.must(404, prefix.Write(wire.Touch, "never", "x"), ``)
		r.config("none", `{"indexingMode":"none"}`)
		r.put("none", "x", `{"ttl":1}`)
		r.must(204, prefix.Write(wire.Delete, "none", "x"), ``)
		r.config("stays", `{"defaultTtl":3600}`)
		r.put("plain", "x", `{}`)
		r.caughtUp(p)
		r.put("plain", "x", `{}`) // a step after all that
		want := []string{wire.LogRules, "none", "plain", "stays"}
		if got := *known.Load(); !slices.Equal(got, want) {
			t.Errorf("known are %v, want %v", got, want)
		}
		var sizes []string
		for _, key := range keysOf(t, r, "*:state") {
			for field := range r.redis.HGetAll(context.Background(), key).Val() {
				if name, ok := strings.CutPrefix(field, "size:"); ok {
					sizes = append(sizes, name)
				}
			}
		}
		if want := []string{"plain"}; !slices.Equal(sizes, want) {
			t.Errorf("Redis has sizes of %v, want %v", sizes, want)
		}
		p.stop(t)
	})
}
