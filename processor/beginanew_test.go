package processor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

var errDies = errors.New("the process dies here")

// anotherProcess makes a processor that can carry out a decision.
func (r *rig) anotherProcess() *Processor {
	r.t.Helper()
	opts := r.opts
	opts.Logger = slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := New(r.nc, r.redis, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// accepts is what gives up a refusal, and nothing else. Its message names the flags.
func (r *rig) accepts(err error) Accepted {
	r.t.Helper()
	refusal := streams.AsRefusal(err)
	if refusal == nil || refusal.Accept == "" {
		r.t.Fatalf("nobody can give up %v", err)
	}
	command := "run lapse begin-anew " + refusal.Accept.Flag()
	if refusal.Removes {
		command += " " + streams.RedisIsSaved
	}
	if !strings.Contains(err.Error(), command+" (") {
		r.t.Errorf("it does not say %q: %v", command, err)
	}
	return Accepted{Losses: []Loss{refusal.Accept}, RedisIsSaved: refusal.Removes}
}

// beginAnew carries out a decision. Nothing is refused any more.
func (r *rig) beginAnew(accepted Accepted) {
	r.t.Helper()
	done, left, err := r.anotherProcess().BeginAnew(r.t.Context(), accepted)
	if len(done) == 0 || left != nil || err != nil {
		r.t.Fatalf("with %v: %q, %v, %v", accepted, done, left, err)
	}
}

// beginsNothing checks that something is refused, and that only the decision that it names gives it up.
func (r *rig) beginsNothing(not Accepted) {
	r.t.Helper()
	others := Accepted{RedisIsSaved: true}
	for _, loss := range Losses {
		if loss != not.Losses[0] {
			others.Losses = append(others.Losses, loss)
		}
	}
	all := []Accepted{{}, others}
	if not.RedisIsSaved {
		all = append(all, Accepted{Losses: not.Losses})
	}
	before, seqs := strings.Join(r.states(), "\n"), r.lastSeqs()
	for _, accepted := range all {
		done, left, err := r.anotherProcess().BeginAnew(r.t.Context(), accepted)
		if len(done) > 0 || left == nil || err != nil {
			r.t.Errorf("with %v: %q, %v, %v", accepted, done, left, err)
		}
	}
	if after, now := strings.Join(r.states(), "\n"), r.lastSeqs(); after != before || now != seqs {
		r.t.Errorf("it has changed Redis from\n%s\nto\n%s\nor the streams, which ended at %v and end at %v", before, after,
			seqs, now)
	}
}

// diesClearing ends the process when it has removed some keys.
type diesClearing struct {
	Store
	r *rig
}

func (p *diesClearing) Clear(context.Context, string, store.State, uint64) error {
	for _, key := range keysOf(p.r.t, p.r, "lapse:{*docs:c") {
		p.r.redis.Del(context.Background(), key)
	}
	return errDies
}

// TestG7_BeginAnewInterrupted: a process that begins anew dies, or its successor does that carries it out.
// Until the decision is stored, lapse refuses to go on, for the same reason, and Redis is as it was; the same decision
// goes on. From then on the next start does.
func TestG7_BeginAnewInterrupted(t *testing.T) {
	t.Parallel()
	for _, at := range []crash.Point{crash.BeforeFence, crash.AfterFence} {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[0], Options{})
			accepted := r.accepts(r.refusesTruncated().err)
			was := strings.Join(r.states(), "\n")
			dies := r.anotherProcess()
			dies.hook = once(at, 1, func() error { return errDies })
			if _, _, err := dies.BeginAnew(t.Context(), accepted); !errors.Is(err, errDies) {
				t.Fatalf("it has not died: %v", err)
			}
			p := r.start(nil)
			p.ends(t, ErrLogTruncated)
			if now := strings.Join(r.states(), "\n"); now != was || r.stored() != 10 {
				t.Errorf("Redis held\n%s\nand holds %d documents\n%s", was, r.stored(), now)
			}
			r.beginAnew(accepted)
			r.hasBegunAnew()
		})
	}
	for _, at := range []string{"claimed", "half cleared", "cleared"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[0], Options{})
			r.beginAnew(r.accepts(r.refusesTruncated().err))
			if n := r.stored(); n != 10 {
				t.Errorf("before the next start Redis holds %d documents, want 10", n)
			}
			p := (*process)(nil)
			switch at {
			case "half cleared":
				r.store = func(s Store) Store { return &diesClearing{s, r} }
				p = r.start(nil)
				eventually(t, "it has removed something", func() bool { return r.stored() == 0 })
				r.store = nil
			default:
				point := map[string]crash.Point{"claimed": crash.AfterTake, "cleared": crash.BeforeCommit}[at]
				p = r.start(once(point, 1, func() error { return errDead }))
				<-p.done
			}
			p.cancel()
			<-p.done
			if done, left, err := r.anotherProcess().BeginAnew(t.Context(), Accepted{}); len(done) > 0 || left != nil ||
				err != nil {
				t.Errorf("once it was decided: %q, %v, %v", done, left, err)
			}
			r.hasBegunAnew()
		})
	}
}

// hasBegunAnew checks that the next start goes on with what the truncated log of refusesTruncated has.
func (r *rig) hasBegunAnew() {
	r.t.Helper()
	p := r.start(nil)
	p.ready(r.t)
	for id, want := range map[string]string{"new9": `{}`, "new7": `{}`, "new6": "", "0": ""} {
		if got := r.body("c", id); got != want {
			r.t.Errorf("c/%s reads %q, want %q", id, got, want)
		}
	}
	p.stop(r.t)
}

// TestG7_BeginAnewPublishesNothingTwice: the log has lost its beginning, and Redis everything. A person
// begins anew from what the log has. What that has caused was published before, and is not published again.
//
// It fails if nobody reads the stream of events before the shard begins anew.
func TestG7_BeginAnewPublishesNothingTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		for range 10 {
			r.put("c", "a", `{"ttl":1}`)
			r.send(prefix.Write("frob", "c", "a"), ``)
		}
		r.caughtUp(p)
		r.sendAsync(prefix.Config("c"), `{"defaultTtl":-1}`)
		last := r.put("c", "a", `{"ttl":1}`)
		r.expires(p, "c", last)
		p.stop(t)
		before := len(r.outputs())
		r.truncate(12)
		r.wipe()
		p = r.start(nil)
		p.ends(t, ErrLogTruncated)
		r.beginAnew(r.accepts(p.err))
		p = r.start(nil)
		p.ready(t)
		r.caughtUp(p)
		p.stop(t)
		if got := len(r.outputs()); before < 11 || got != before {
			t.Errorf("the stream of events had %d outputs, and has %d", before, got)
		}
	})
}
