package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/store"
)

// diesAnew ends the process while it begins a partition anew.
type diesAnew struct {
	Store
	r   *rig
	at  string
	end context.CancelFunc
}

var errDies = errors.New("the process dies here")

func (p *diesAnew) SetAside(ctx context.Context, version string, next store.State, rebuild uint64) error {
	switch p.at {
	case "after a rename":
		key := keysOf(p.r.t, p.r, "lapse:{*docs:c")[0]
		if err := p.r.redis.Rename(ctx, key, strings.Replace(key, ":", ":before:", 1)).Err(); err != nil {
			return err
		}
	case "before anything":
	default:
		if err := p.Store.SetAside(ctx, version, next, rebuild); err != nil || p.at == "after the checkpoint" {
			return err
		}
	}
	p.end()
	return errDies
}

func (p *diesAnew) Take(ctx context.Context, s store.State, version string, rebuild uint64) error {
	if p.at == "after the checkpoint" && len(keysOf(p.r.t, p.r, "lapse:before:*:state")) > 0 {
		p.end()
		return errDies
	}
	return p.Store.Take(ctx, s, version, rebuild)
}

// decides makes a processor that can carry out a decision, on a store.
func (r *rig) decides(on func(Options) Store) *Processor {
	r.t.Helper()
	opts := r.opts
	opts.Logger = slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := opts.complete(); err != nil {
		r.t.Fatal(err)
	}
	p, err := NewWith(r.nc, on(opts), opts)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) onRedis(opts Options) Store {
	return store.New(r.redis, opts.Prefix, opts.Shard, opts.Shards)
}

// beginAnew carries out a decision. Nothing is refused any more.
func (r *rig) beginAnew(token string) {
	r.t.Helper()
	done, refused, err := r.decides(r.onRedis).BeginAnew(r.t.Context(), token)
	if len(done) == 0 || len(refused) > 0 || err != nil {
		r.t.Fatalf("with the token %q: %q, %v, %v", token, done, refused, err)
	}
}

// beginsNothing checks that a token belongs to no refusal, and that there is one.
func (r *rig) beginsNothing(token string) {
	r.t.Helper()
	before, seqs := strings.Join(r.states(), "\n"), r.lastSeqs()
	done, refused, err := r.decides(r.onRedis).BeginAnew(r.t.Context(), token)
	if len(done) > 0 || len(refused) == 0 || err != nil {
		r.t.Errorf("with the token %q: %q, %v, %v", token, done, refused, err)
	}
	if after, now := strings.Join(r.states(), "\n"), r.lastSeqs(); after != before || now != seqs {
		r.t.Errorf("it has changed Redis from\n%s\nto\n%s\nor the streams, which ended at %v and end at %v", before, after, seqs, now)
	}
}

// TestG7_BeginAnewInterrupted: a process that begins anew dies. What Redis held is kept, and lapse refuses to
// go on, with the same token, until the partition has been begun anew. What Redis held stays until an owner
// has rebuilt it.
func TestG7_BeginAnewInterrupted(t *testing.T) {
	t.Parallel()
	for at, goesOn := range map[string]bool{
		"before anything": false, "after a rename": false, "after it was set aside": false, "after the checkpoint": true,
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, backends[0], Options{})
			token := Decision(r.refusesTruncated().err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dies := func(opts Options) Store { return &diesAnew{r.onRedis(opts), r, at, cancel} }
			if _, _, err := r.decides(dies).BeginAnew(ctx, token); !errors.Is(err, errDies) {
				t.Fatalf("it has not died: %v", err)
			}
			docs := func(pattern string) (n int64) {
				for _, key := range keysOf(t, r, pattern) {
					n += r.redis.HLen(context.Background(), key).Val()
				}
				return n
			}
			if n := docs("lapse:*docs*"); n != 10 {
				t.Fatalf("after it died Redis holds %d documents, want 10", n)
			}
			if !goesOn {
				p := r.start(nil)
				if again := r.refusal(p); again != token {
					t.Errorf("the token was %s, and is %s", token, again)
				}
				p.cancel()
				<-p.done
				if n := docs("lapse:*docs*"); n != 10 {
					t.Errorf("it is refused, and Redis holds %d documents, want 10", n)
				}
				r.beginAnew(token)
			}
			var commits atomic.Int32
			p := r.start(func(here crash.Point) error {
				if here == crash.BeforeCommit && commits.Add(1) == 1 {
					if n := docs("lapse:before:*docs*"); n != 10 {
						t.Errorf("it is begun anew, and of the 10 documents that Redis held %d are kept", n)
					}
				}
				return nil
			})
			p.ready(t)
			if got := r.body("c", "new9"); got != `{}` || commits.Load() == 0 {
				t.Errorf("c/new9 reads %q after %d commits", got, commits.Load())
			}
			p.stop(t)
		})
	}
}

// refusal waits until a process refuses to go on, and returns the token.
func (r *rig) refusal(p *process) (token string) {
	r.t.Helper()
	eventually(r.t, "it is refused", func() bool {
		err := p.Ready()
		select {
		case <-p.done:
			err = p.err
		default:
		}
		if m := tokenIn.FindStringSubmatch(fmt.Sprint(err)); m != nil {
			token = m[1]
		}
		return token != ""
	})
	return token
}

// TestG7_BeginAnewPublishesNothingTwice: the log has lost its beginning, and Redis everything. A person
// begins anew from what the log has. What that has caused was published before, and is not published again.
//
// It fails if nobody reads the stream of events before the partition begins anew.
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
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p = r.start(nil)
		p.ends(t, ErrLogTruncated)
		r.beginAnew(Decision(p.err))
		p = r.start(nil)
		p.ready(t)
		r.caughtUp(p)
		p.stop(t)
		if got := len(r.outputs()); before < 11 || got != before {
			t.Errorf("the stream of events had %d outputs, and has %d", before, got)
		}
	})
}
