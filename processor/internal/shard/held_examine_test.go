//go:build held

package shard

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldLeftovers: an owner finds keys of a shard without a state. Meanwhile another process makes the state of the
// shard, or a person removes the keys, or more keys appear. The owner tells a person to remove only keys that belonged
// to nobody before and after: nothing of the other process's shard is named (G7).
func TestHeldLeftovers(t *testing.T) {
	for name, happen := range map[string]func(t *testing.T, s redistest.Server, p *store.Shard){
		"another process takes over": func(t *testing.T, s redistest.Server, p *store.Shard) {
			if err := p.Take(t.Context(), store.State{Log: "1"}, "other", 0); err != nil {
				t.Error(err)
			}
		},
		"a person removes the keys": func(t *testing.T, s redistest.Server, p *store.Shard) {
			if err := s.Client.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/internal/shard.examiner.checkLeftovers", held.Takeover,
				func(t *testing.T, during func(func())) {
					s, happened := redistest.StartMini(t), false
					p := store.New(s.Client, "lapse", 0, 1)
					e := examiner{&Parts{Store: p, Log: streams.NewLog(&streams.Streams{ID: "1"}, nil)}}
					if err := p.Take(t.Context(), store.State{Log: "1"}, "v0", 0); err != nil {
						t.Fatal(err)
					}
					keys, err := p.Leftovers(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					docs := strings.TrimSuffix(keys[0], "state") + "docs:c"
					if err := s.Client.Rename(t.Context(), keys[0], docs).Err(); err != nil {
						t.Fatal(err)
					}
					during(func() { happened = true; happen(t, s, p) })
					_, err = e.State(t.Context(), known{})
					want := store.ErrForeign
					if happened {
						want = store.ErrFenced
					}
					// The answer about keys that somebody else uses by now must not be: remove them.
					if !errors.Is(err, want) && !(errors.Is(err, store.ErrForeign) && !strings.Contains(err.Error(), ":state")) {
						t.Errorf("it returns %v, want %v", err, want)
					}
					if state, err := p.Load(t.Context()); happened && name == "another process takes over" &&
						(err != nil || state.Version != "other") {
						t.Errorf("the state of the other process is %+v, %v", state, err)
					}
				})
		})
	}
}

// TestHeldBeyond: the log continues another one since a promotion, and the stored state is of that one, beyond its end:
// a follower has applied what came after the promotion, and the stamp shows it. While the owner asks for that, another
// process takes the shard over, and commits. The owner learns that the shard is not its own: it takes no state for
// damaged that is whole, which would have the shard rebuilt, nor one for verified that it has not verified (G7).
func TestHeldBeyond(t *testing.T) {
	server, redis := newServer(t), redistest.StartMini(t)
	held.Each(t, "processor/internal/shard.examiner.beyond", held.Takeover, func(t *testing.T, during func(func())) {
		w, happened := server.newWorld(t), false
		e, stored := w.store(), store.New(redis.Client, w.prefix, 0, 1)
		e.Store = stored
		state := w.state
		state.Version = ""
		if err := stored.Take(t.Context(), state, "v", 0); err != nil {
			t.Fatal(err)
		}
		former, err := strconv.ParseInt(w.streams.ID, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		w.streams.ID, w.streams.Former = strconv.FormatInt(former+1, 10), []wire.Former{{Identity: former, Last: 5}}
		during(func() {
			happened = true
			if err := stored.Take(context.Background(), store.State{Version: "v"}, "other", 0); err != nil {
				t.Error(err)
			}
		})
		f, err := e.State(t.Context(), known{})
		switch {
		case happened && errors.Is(err, store.ErrFenced):
		case err != nil || f.Damage != nil:
			t.Errorf("the state is damaged: %v, %v", f.Damage, err)
		case happened:
			t.Error("it takes a state for verified that another process has taken")
		case f.State.Offset != 9 || f.State.Log != w.streams.ID || f.State.Stamp != w.state.Stamp:
			t.Errorf("it goes on from %+v", f.State)
		}
	})
}

// TestHeldForgetSnapshots: a person has begun the shard anew, and while an owner forgets the snapshots of before,
// another process takes the shard over and takes a snapshot of the shard as it is now. That one stays: the log may be
// truncated behind it (G7).
func TestHeldForgetSnapshots(t *testing.T) {
	held.Each(t, "processor/internal/shard.Owner.forgetSnapshots", held.Takeover,
		func(t *testing.T, during func(func())) {
			r, happened := newRig(t), false
			r.idle()
			r.write(start, "lost", `{"ttl":-1}`)
			r.idle()
			r.snapshot()
			r.idle()
			first := r.write(start+1000, "new", `{"ttl":-1}`)
			r.restart()
			r.truncate(first.Seq)
			r.sent = r.sent[len(r.sent)-1:]
			accepted := Accepted{Losses: []streams.Loss{streams.LostLogBeginning}, RedisIsSaved: true}
			r.wipe()
			if err := r.objects.Remove(t.Context(), "0"); err != nil {
				t.Fatal(err)
			}
			if _, left, err := r.BeginAnew(t.Context(), accepted); left != nil || err != nil {
				t.Fatal(left, err)
			}
			r.restart()
			during(func() {
				r.byAnother(func() {
					happened = true
					r.idle()
					r.passTime(start + 2000) // behind what it lacks
					r.idle()
					r.snapshot()
					r.idle()
				})
			})
			if err := r.try(); (err != nil) != happened {
				t.Errorf("the former owner ends with %v", err)
			}
			all := r.generations()
			if happened && (len(all) != 1 || all[0].Offset < first.Seq) || !happened && len(all) != 0 {
				t.Errorf("there are %d snapshots: %+v", len(all), all)
			}
			r.restart()
			r.idle()
			same(t, "documents", r.documents(), []string{"new"})
		})
}

// TestHeldGiveUpEvents: a person gives up events that the stream has lost. Meanwhile another process takes the decision
// too, or takes the shard over, which is refused. Whatever is given up is noted once, with the place behind which all is
// published: no event is lost that could have been published, and the next owner goes on (G3, G12).
func TestHeldGiveUpEvents(t *testing.T) {
	accepted := Accepted{Losses: []streams.Loss{streams.LostEvents}}
	for name, happen := range map[string]func(*rig) error{
		"the same decision": func(r *rig) error {
			_, _, err := r.BeginAnew(context.Background(), accepted)
			return err
		},
		"a takeover": func(r *rig) error {
			if err := r.takeOver(); err == nil || streams.AsRefusal(err) != nil {
				return nil
			} else {
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/internal/shard.Owner.giveUpEvents", held.Takeover,
				func(t *testing.T, during func(func())) {
					r := newRig(t)
					r.idle()
					ttlOf1(r)
					r.write(start, "kept", `{"ttl":-1}`)
					r.write(start, "a", `{}`)
					r.passTime(start + 1000)
					r.idle()
					r.checkpoint()
					r.loseEvents()
					r.truncate(r.progress.Offset + 1)
					r.restart()
					during(func() {
						r.byAnother(func() {
							if err := happen(r); err != nil && !errors.Is(err, store.ErrFenced) {
								t.Errorf("the other: %v", err)
							}
						})
					})
					for n := 0; ; n++ { // one that another process has disturbed is repeated
						_, left, err := r.BeginAnew(t.Context(), accepted)
						if left == nil && err == nil {
							break
						}
						if left != nil || n == 3 {
							t.Fatalf("it is refused: %v, %v", left, err)
						}
						t.Logf("it is to be called again: %v", err)
						r.restart()
					}
					r.restart()
					if err := r.takeOver(); err != nil {
						t.Fatal(err)
					}
					r.write(start+2000, "new", `{}`)
					r.passTime(start + 3000)
					r.idle()
					same(t, "documents", r.documents(), []string{"kept"})
					same(t, "events", r.expired(), []string{"new"})
				})
		})
	}
}
