//go:build held

package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// TestHeldAnnouncer: another process stores its fence after an owner has made sure that it may publish, and before it
// does. Redis tells the owner nothing of that: the stream itself refuses its outputs, all of them (G1).
//
// It fails if the outputs carry a fence that the owner has got after the other one.
func TestHeldAnnouncer(t *testing.T) {
	for _, operation := range []string{"Publish", "prepare"} {
		held.Each(t, "processor/internal/shard.Announcer."+operation, held.Takeover,
			func(t *testing.T, during func(func())) {
				r, happened := newRig(t), false
				a, other := NewAnnouncer(&r.Parts, &asked{ago: time.Minute}), NewAnnouncer(&r.Parts, self{})
				r.begin(a, Checkpoint{}, 0)
				r.MaxAge = 2 // the fence is old, and so is what the owner knows of the shard
				during(func() {
					happened = true
					r.begin(other, Checkpoint{}, 0)
				})
				err := a.Publish(t.Context(), r.outputs(15, 16), store.Stamp{})
				if !happened {
					if err != nil {
						t.Fatal(err)
					}
					r.stored("15", "16")
					return
				}
				if !errors.Is(err, store.ErrFenced) || !errors.Is(err, events.ErrFenced) {
					t.Errorf("behind the fence of another process: %v", err)
				}
				r.stored()
				r.MaxAge = 0
				r.publish(other, r.outputs(15, 16))
				r.stored("15", "16")
			})
	}
}

// TestHeldOutcomes: another configuration is applied, here and then by all shards, while the outcomes of others are
// sent. Each outcome is sent once, and not before all shards have applied its configuration (G1).
func TestHeldOutcomes(t *testing.T) {
	held.Each(t, "processor/internal/shard.Outcomes.Run", held.Write, func(t *testing.T, during func(func())) {
		nc := natstest.Connect(t, natstest.Options{}).Conn()
		heard := make(chan *nats.Msg, 100)
		if _, err := nc.ChanSubscribe("_INBOX.config.*", heard); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		var elsewhere, early atomic.Uint64
		o := NewOutcomes(nc, configured(func() uint64 { return elsewhere.Load() }), nil)
		apply := func(source uint64) {
			o.Send(0, []fold.Outcome{{Position: fold.Position{Seq: 1, Source: source},
				ReplyTo: fmt.Sprint("_INBOX.config.", source)}})
		}
		apply(5)
		happened := make(chan struct{})
		during(func() {
			apply(6)
			if err := nc.Flush(); err != nil {
				t.Error(err)
			}
			if elsewhere.Load() < 6 {
				early.Add(uint64(len(heard))) // no other shard has applied any
			}
			close(happened)
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { o.Run(ctx) })
		select {
		case <-happened:
		case <-time.After(3 * time.Second): // in no gap
			apply(6)
		}
		elsewhere.Store(6)
		if err := poll.Met(limit, "both outcomes are sent", func() bool { return len(heard) >= 2 }); err != nil {
			t.Fatal(err)
		}
		apply(7)
		elsewhere.Store(7)
		if err := poll.Met(limit, "the next outcome is sent", func() bool { return len(heard) >= 3 }); err != nil {
			t.Fatal(err)
		}
		var subjects []string
		for len(heard) > 0 {
			subjects = append(subjects, (<-heard).Subject)
		}
		slices.Sort(subjects)
		same(t, "outcomes", subjects, []string{"_INBOX.config.5", "_INBOX.config.6", "_INBOX.config.7"})
		if n := early.Load(); n > 0 {
			t.Errorf("%d outcomes were sent before the other shards had applied the configuration", n)
		}
	})
}

// configured is up to where all shards have applied the configurations.
type configured func() uint64

func (c configured) Configured(context.Context) (uint64, error) { return c(), nil }

// TestHeldDrain: a configuration waits until the documents that are due have their events. Meanwhile another process
// takes the shard over, and does the same. Each event is published once, by the configuration of before, and the new
// one is applied behind them (G1, G3, G5).
func TestHeldDrain(t *testing.T) {
	held.Each(t, "processor/internal/shard.Owner.drain", held.Takeover, func(t *testing.T, during func(func())) {
		r, happened := newRig(t), false
		r.idle()
		ttlOf1(r)
		r.write(start, "a", `{}`)
		r.write(start, "b", `{}`)
		r.idle()
		r.Bounds.Epochs = 2
		r.send(start+2000, prefix.Config("c"), `{"defaultTtl":2}`)
		next := r.send(start+2001, prefix.Config("c"), `{"defaultTtl":3}`)
		r.write(start+2001, "later", `{}`)
		during(func() {
			r.byAnother(func() {
				happened = true
				r.Bounds.Epochs = 2
				r.idle()
			})
		})
		if err := r.try(); err != nil && (!happened || !errors.Is(err, store.ErrFenced)) {
			t.Errorf("it fails with %v", err)
		}
		r.restart()
		r.Bounds.Epochs = 2
		r.passTime(start + 5002)
		r.idle()
		if n := r.Collections().Config("c").Etag; n != next.Seq {
			t.Errorf("the configuration is of message %d, want %d", n, next.Seq)
		}
		same(t, "events", r.expired(), []string{"a", "b", "later"})
		same(t, "documents", r.documents(), []string{})
	})
}
