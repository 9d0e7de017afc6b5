package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion_TheFirstGrowsAgainWithoutAFollower: while no lapse runs in the second region, the log of the first one
// loses its end and grows past the end of the mirror. NATS lets the mirror go on behind messages that the first region
// has no more. lapse then refuses to follow, and says why. A person keeps what the first region has: lapse demote saves
// the messages that only this one has, and lapse follows from the beginning.
//
// It fails if lapse follows such a mirror: its region would go on with writes that were taken back, and without others.
func TestRegion_TheFirstGrowsAgainWithoutAFollower(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	write := func(name string) {
		for i := range 20 {
			r.a.Want(201, wire.Upsert, "c", fmt.Sprint(name, i), `{}`)
		}
	}
	write("kept")
	r.same()
	r.b.lapse.Terminate()
	before, err := stateIn(t.Context(), r.b.redis.Client())
	if err != nil {
		t.Fatal(err)
	}
	r.a.nats.Stop()
	copied := r.a.nats.Copy()
	r.a.nats.Continue()
	write("lost")
	lost := r.mirrored()
	r.a.lapse.Kill()
	r.growAgain(copied, lost)

	r.b.lapse.Launch()
	harness.Until(t, harness.Limit, "lapse refuses to follow", func(ctx context.Context) error {
		why := r.b.lapse.ReadyNow(ctx)
		after, err := stateIn(ctx, r.b.redis.Client())
		if err != nil {
			return err
		}
		if err := differences(before, after); err != nil {
			t.Fatalf("region b applies what it must not follow: %v", err)
		}
		if why == nil || !strings.Contains(why.Error(), "the first region has lost its end, and has grown again") {
			return fmt.Errorf("/readyz: %w", why)
		}
		return nil
	})
	r.b.lapse.Terminate() // as lapse demote needs it
	flags := r.a.lapse.FlagsIn(r.a.lapse.Refuses())
	r.a.lapse.Terminate()
	t.Log(r.a.lapse.BeginAnew(flags, 0))
	r.a.lapse.Start()
	if out := r.demote(r.b, 0, "--save", filepath.Join(t.TempDir(), "lost"), "--first", "a"); !strings.Contains(out, " 20 messages ") {
		t.Errorf("lapse demote is to save the 20 writes that were taken back: %s", out)
	}
	r.b.lapse.Start()
	r.same()
	r.sameStreams()
	if r.b.Found("c", "lost0") || !r.b.Found("c", "other0") {
		t.Error("region b has a write that was taken back, or lacks one that came later")
	}
}

// mirrored waits until region b has mirrored the log, and returns its messages.
func (r *twoRegions) mirrored() []oracle.Message {
	r.t.Helper()
	end := r.endsOf(r.a)[0]
	harness.Until(r.t, 3*harness.Limit, fmt.Sprintf("region b has message %d", end), func(context.Context) error {
		if have := r.endsOf(r.b)[0]; have < end {
			return fmt.Errorf("it has %d", have)
		}
		return nil
	})
	return r.b.Log()
}

// growAgain puts the log of region a back to a copy, lets it grow past the messages that region b has mirrored, and
// waits until NATS has mirrored that behind them.
func (r *twoRegions) growAgain(copied string, lost []oracle.Message) {
	r.t.Helper()
	r.Link.Down()
	r.a.nats.RestoreStream(copied, r.a.Prefix.LogStream())
	last := lost[len(lost)-1].Seq
	for i := 0; r.a.Write(wire.Upsert, "c", fmt.Sprint("other", i), `{}`) < last+10; i++ {
	}
	r.Link.Up()
	r.Linked(r.t)
	mixed, there := r.mirrored(), r.a.Log()
	if n := len(lost); mixed[n-1].Subject != lost[n-1].Subject || there[n-1].Subject == lost[n-1].Subject ||
		mixed[n+5].Subject != there[n+5].Subject {
		r.t.Fatalf("NATS mirrors in another way: at %d there are %s in a, and %s in b", last, there[n-1].Subject,
			mixed[n-1].Subject)
	}
}
