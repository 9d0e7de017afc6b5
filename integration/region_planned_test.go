package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink/wire"
)

// fastWriters publish as fast as they can in a region, until they are stopped, and remember what was acknowledged.
type fastWriters struct {
	stop  context.CancelFunc
	done  sync.WaitGroup
	mu    sync.Mutex
	acked map[string]uint64 // sequences by the stream and the id
}

func startWriters(t *testing.T, w *inRegion) *fastWriters {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &fastWriters{stop: stop, acked: map[string]uint64{}}
	for n := range 4 {
		js, err := jetstream.New(w.Connect(), jetstream.WithPublishAsyncMaxPending(4000))
		if err != nil {
			t.Fatal(err)
		}
		f.done.Go(func() { f.write(ctx, js, n) })
	}
	t.Cleanup(f.end)
	return f
}

func (f *fastWriters) end() { f.stop(); f.done.Wait() }

func (f *fastWriters) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
}

func (f *fastWriters) write(ctx context.Context, js jetstream.JetStream, n int) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%d-%d", n, i)
		m := &nats.Msg{Subject: wire.DefaultPrefix.Write(wire.Upsert, "flood", id), Data: []byte(`{"ttl":3600}`)}
		future, err := js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		if err != nil {
			continue // too many wait
		}
		waiting.Go(func() {
			select {
			case ack := <-future.Ok():
				f.mu.Lock()
				f.acked[ack.Stream+" "+id] = ack.Sequence
				f.mu.Unlock()
			case <-future.Err():
			case <-ctx.Done():
			}
		})
	}
}

// lost are the acknowledged writes that a region does not have at their sequences.
func (f *fastWriters) lost(w *inRegion, logs []string) (lost int) {
	for _, log := range logs {
		ids := map[uint64]string{}
		for _, m := range w.Stream(log) {
			ids[m.Seq] = m.Subject[strings.LastIndex(m.Subject, ".")+1:]
		}
		for key, seq := range f.acked {
			if stream, id, _ := strings.Cut(key, " "); stream == log && ids[seq] != id {
				lost++
			}
		}
	}
	return lost
}

// TestAll_RegionHandsOverUnderLoad: the first region hands over under as many writes as it takes, while each is synced
// to the disk: then thousands wait in the queue of its log, which it stores and acknowledges after it was told to take
// no more.
//
// It fails if one of them is lost. LAPSE_HANDOVERS sets how often.
func TestAll_RegionHandsOverUnderLoad(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			for range number(t, "LAPSE_HANDOVERS", 1) {
				handsOverUnderLoad(t, shards)
			}
		})
	}
}

func handsOverUnderLoad(t *testing.T, shards int) {
	r := startRegions(t, regions.Options{Shards: shards, Synced: true})
	r.follow(r.b, r.a)
	f := startWriters(t, r.a)
	harness.Until(t, harness.Limit, "writes are acknowledged", func(context.Context) error {
		if f.count() < 5000 {
			return errors.New("there are few")
		}
		return nil
	})
	t.Log(r.command(r.b, 0, "promote", "--from", r.a.Name, "--force")) // the mirror may be far behind
	f.end()
	r.b.lapse.Ready()
	if n := f.lost(r.b, r.logs()); n > 0 {
		t.Errorf("%d of %d acknowledged writes are lost", n, len(f.acked))
	}
	t.Logf("%d acknowledged writes", len(f.acked))
}

// TestRegion_PlanAndUndo: the plan is printed and nothing is changed; a promotion that has begun is shown in /readyz
// with its next step, and is taken back: then the first region goes on, and the other one follows it. Where something
// keeps a promotion from ending well it is refused before anything was changed.
func TestRegion_PlanAndUndo(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	r.a.Want(201, wire.Upsert, "c", "1", `{}`)
	r.b.lapse.Ready()
	if out := r.command(r.b, 0, "promote", "--from", "a", "--dry-run"); !strings.Contains(out,
		"would make a stream of the mirror LAPSE_LOG") {
		t.Errorf("the plan is %s", out)
	}
	if out := r.command(r.b, 1, "promote", "--dry-run"); !strings.Contains(out, "the first region answers") {
		t.Errorf("a region that answers counts as lost: %s", out)
	}
	if out := r.command(r.b, 1, "promote", "--undo"); !strings.Contains(out, "nothing to undo") {
		t.Errorf("nothing is undone: %s", out)
	}
	js := r.b.JetStream()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER",
		Subjects: []string{"lapse.tick"}}); err != nil {
		t.Fatal(err)
	}
	if out := r.command(r.b, 1, "promote", "--from", "a"); !strings.Contains(out, "the stream OTHER here listens to") {
		t.Errorf("another stream takes messages of the log: %s", out)
	}
	r.a.Want(201, wire.Upsert, "c", "2", `{}`) // nothing was changed
	if err := js.DeleteStream(t.Context(), "OTHER"); err != nil {
		t.Fatal(err)
	}
	log, err := js.Stream(t.Context(), "LAPSE_LOG")
	if err != nil {
		t.Fatal(err)
	}
	c := log.CachedInfo().Config // as an interrupted promotion leaves it
	region, err := wire.ParseRegion(c.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	region.Promotion = &wire.Promotion{Identity: 1, Domain: "b", From: "a", By: "a test"}
	c.Metadata[wire.RegionKey] = region.String()
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "/readyz names the next step", func(ctx context.Context) error {
		why := r.b.lapse.ReadyNow(ctx)
		if why == nil || !strings.Contains(why.Error(), "next step is to make a stream of the mirror LAPSE_EVENTS") {
			return fmt.Errorf("/readyz: %w", why)
		}
		return nil
	})
	t.Log(r.command(r.b, 0, "promote", "--undo"))
	r.b.lapse.Ready()
	r.a.Want(201, wire.Upsert, "c", "3", `{}`)
	t.Log(r.command(r.b, 0, "promote", "--from", "a"))
	r.b.lapse.Ready()
	if !r.b.Found("c", "3") {
		t.Error("region b lacks a write from before the promotion")
	}
}
