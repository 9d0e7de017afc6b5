package processor

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_ReplyPrefixes: outcomes go to subjects under the configured prefixes. A rebuild
// under other prefixes decides every message as at first.
//
// It fails if the present prefixes decide messages of the past.
func TestG1_ReplyPrefixes(t *testing.T) {
	r := newRig(t)
	ask := func(id string, answered bool) {
		t.Helper()
		sub, err := r.nc.SubscribeSync("_MY.inbox." + id)
		if err != nil {
			t.Fatal(err)
		}
		r.send(prefix.Write(wire.Upsert, "c", id), `{}`, wire.HeaderReplyTo, "_MY.inbox."+id)
		if answered {
			if _, err := sub.NextMsg(limit); err != nil {
				t.Errorf("%s has no outcome: %v", id, err)
			}
		}
	}
	p := r.start(nil)
	p.ready(t)
	ask("before", false)
	r.caughtUp(p)
	p.stop(t)
	r.opts.ReplyPrefixes = []string{"_MY"}
	p = r.start(nil)
	p.ready(t)
	ask("during", true)
	p.stop(t)
	r.opts.ReplyPrefixes = nil
	p = r.start(nil)
	p.ready(t)
	ask("after", false)
	r.caughtUp(p)
	p.stop(t)
	check := func() {
		t.Helper()
		for id, want := range map[string]string{"before": "", "during": "{}", "after": ""} {
			if got := r.body("c", id); got != want {
				t.Errorf("%s is %q, want %q", id, got, want)
			}
			if n := len(r.rejections("lapse.rejected.c." + id)); (n == 1) != (want == "") || n > 1 {
				t.Errorf("%s has %d rejections", id, n)
			}
		}
	}
	check()
	for _, prefixes := range [][]string{{"_MY"}, {"_OTHER"}, nil} {
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		r.opts.ReplyPrefixes = prefixes
		p = r.start(nil)
		p.ready(t)
		r.caughtUp(p)
		check()
		p.stop(t)
	}
}

// TestG1_ReplyPrefixesBesideAFormerOwner: a process that allows other prefixes begins while the former
// owner still applies the log. What that decides by the old prefixes, a rebuild decides alike.
//
// It fails if the new prefixes count from before the fences.
func TestG1_ReplyPrefixesBesideAFormerOwner(t *testing.T) {
	r := newRig(t)
	former := r.start(nil)
	former.ready(t)
	opts := r.opts
	opts.ReplyPrefixes, opts.OpenCollections = []string{"_MY"}, true
	next, err := NewWith(r.nc, loadedAfter{former.store, sync.OnceFunc(func() {
		r.send(prefix.Write(wire.Upsert, "c", "between"), `{}`, wire.HeaderReplyTo, "_MY.inbox")
		r.caughtUp(former)
		former.stop(t)
	})}, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p := &process{Processor: next, cancel: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = next.Run(ctx)
	}()
	p.ready(t)
	r.send(prefix.Write(wire.Upsert, "c", "after"), `{}`, wire.HeaderReplyTo, "_MY.inbox")
	r.caughtUp(p)
	p.stop(t)
	r.opts = opts
	for range 2 {
		if between, after := r.body("c", "between"), r.body("c", "after"); between != "" || after != "{}" {
			t.Errorf("the message of before the fences reads %q, the one after them %q", between, after)
		}
		if n := len(r.rejections("lapse.rejected.c.between")); n != 1 {
			t.Errorf("%d rejections", n)
		}
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p := r.start(nil)
		p.ready(t)
		r.caughtUp(p)
		p.stop(t)
	}
}

// TestG7_ReplyPrefixesBetweenRegions: a region that follows another one, and has another flag, applies what that applies,
// and sends no outcome. Once it is promoted its own flag counts.
//
// It fails if a region decides by its own prefixes.
func TestG7_ReplyPrefixesBetweenRegions(t *testing.T) {
	urlA, urlB, _ := natstest.StartJoined(t)
	a := newRigAt(t, urlA, backends[0], Options{ReplyPrefixes: []string{"_MY"}})
	first := a.start(nil)
	first.ready(t)
	b := newRigAt(t, urlB, backends[0], Options{Follow: "a", ReplyPrefixes: []string{"_B"}})
	follower := b.start(nil)
	follower.ready(t)
	for _, id := range []string{"_B", "_MY"} {
		a.send(prefix.Write(wire.Upsert, "c", id), `{}`, wire.HeaderReplyTo, id+".inbox")
	}
	a.caughtUp(first)
	eventually(t, "the follower has what the first region has", func() bool { return b.body("c", "_MY") == `{}` })
	if got := a.body("c", "_B") + b.body("c", "_B"); got != "" {
		t.Errorf("a write with the inbox of the other flag was applied: %q", got)
	}
	first.stop(t)
	follower.stop(t)
	if _, err := Promote(t.Context(), b.nc, prefix, PromoteOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	b.opts.Follow = ""
	p := b.start(nil)
	p.ready(t)
	sub, err := b.nc.SubscribeSync("_B.inbox")
	if err != nil {
		t.Fatal(err)
	}
	b.send(prefix.Write(wire.Upsert, "c", "promoted"), `{}`, wire.HeaderReplyTo, "_B.inbox")
	b.comesTo("the client", sub, 201)
	p.stop(t)
}

// TestG1_ReplyPrefixesOfATruncatedLog: the rules of the log are in what is stored, once the log is truncated behind them.
//
// It fails if they are in the log alone: the client would wait for its outcome, and its write be rejected.
func TestG1_ReplyPrefixesOfATruncatedLog(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.opts.ReplyPrefixes = []string{"_MY"}
		p := r.start(nil)
		p.ready(t)
		p.stop(t)
		log, err := r.js.Stream(t.Context(), prefix.LogStream())
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Purge(t.Context(), jetstream.WithPurgeSequence(r.lastSeq()+1)); err != nil {
			t.Fatal(err)
		}
		p = r.start(nil)
		p.ready(t)
		sub, err := r.nc.SubscribeSync("_MY.inbox")
		if err != nil {
			t.Fatal(err)
		}
		r.send(prefix.Write(wire.Upsert, "c", "x"), `{}`, wire.HeaderReplyTo, "_MY.inbox")
		r.comesTo("the client", sub, 201)
		p.stop(t)
	})
}

// loadedAfter is a store that does something before the shard is loaded.
type loadedAfter struct {
	Store
	before func()
}

func (s loadedAfter) Load(ctx context.Context) (store.State, error) {
	s.before()
	return s.Store.Load(ctx)
}

// TestOutcomeOfALateListener: a client gets the outcome of its message although lapse sent it
// before the server knew the inbox of the client, as happens between the servers of a cluster. It
// comes once.
//
// It fails if an outcome is sent once and for all.
func TestOutcomeOfALateListener(t *testing.T) {
	r := newRig(t)
	p := r.start(nil)
	p.ready(t)
	inbox := r.nc.NewInbox()
	r.send(prefix.Write(wire.Upsert, "c", "x"), `{}`, wire.HeaderReplyTo, inbox)
	r.must(200, prefix.Write(wire.Upsert, "c", "x"), `{}`) // so that of the message before has been sent
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	r.comesTo("the late listener", sub, 201)
	r.must(200, prefix.Write(wire.Upsert, "c", "x"), `{}`)
	if n, _, err := sub.Pending(); n > 0 || err != nil {
		t.Errorf("it came again: %d, %v", n, err)
	}
}

// A prefix that is not valid is refused at once.
func TestReplyPrefixIsChecked(t *testing.T) {
	for _, bad := range []string{"", "lapse", "a.*", "$JS"} {
		if _, err := New(nil, nil, Options{ReplyPrefixes: []string{"_OK", bad}}); !errors.Is(err, wire.ErrInvalidName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
