package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// stage is what an owner is led through, once for each call that can fail in it.
type stage struct {
	begin func(r *rig)                      // once
	send  func(r *rig, k int)               // each time
	ends  func(t *testing.T, r *rig, n int) // after n times
}

// at is the log time of the k-th time.
func at(k int) int64 { return start + 10_000*int64(k+1) }

var ttlOf1 = func(r *rig) { r.send(start, prefix.Config("c"), `{"defaultTtl":1}`) }

var stages = map[string]stage{
	"a document expires, and another one is met by a write": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.write(at(k), fmt.Sprint("b", k), `{"ttl":3}`)
			r.idleUnharmed()
			r.write(at(k)+3100, fmt.Sprint("b", k), `{"ttl":-1}`)
		},
		ends: func(t *testing.T, r *rig, n int) {
			var want, kept []string
			for k := range n {
				want, kept = append(want, fmt.Sprint("a", k), fmt.Sprint("b", k)), append(kept, fmt.Sprint("b", k))
			}
			same(t, "events", r.expired(), want)
			same(t, "documents", r.documents(), kept)
		},
	},
	"a write and a configuration are rejected": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.send(at(k), prefix.Write(wire.Replace, "c", "none"), `{}`)
			r.send(at(k), prefix.Config("c"), `{"indexingMode":"none"}`)
		},
		ends: func(t *testing.T, r *rig, n int) {
			for i, m := range r.sent[1:] {
				if got, want := r.statusOf(m), []int{404, 400}[i%2]; got != want {
					t.Errorf("message %d: status %d, want %d", m.Seq, got, want)
				}
			}
			same(t, "documents", r.documents(), []string{})
		},
	},
	"a drop meets documents that are due": {
		send: func(r *rig, k int) {
			r.send(at(k), prefix.Config("c"), `{"defaultTtl":1}`)
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.idleUnharmed()
			r.send(at(k)+2000, "lapse.drop.c", "")
		},
		ends: func(t *testing.T, r *rig, n int) {
			var want []string
			for k := range n {
				want = append(want, fmt.Sprint("a", k))
			}
			same(t, "events", r.expired(), want)
			same(t, "documents", r.documents(), []string{})
			same(t, "collections", r.Collections().Names(), []string{})
		},
	},
	"an index is built": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.idleUnharmed()
			r.send(at(k)+1000, prefix.Config("c"), `{}`)
			r.send(at(k)+1000, prefix.Config("c"), `{"indexingMode":"none"}`)
			r.write(at(k)+1000, fmt.Sprint("b", k), `{"ttl":1}`)
			r.idleUnharmed()
			r.send(at(k)+1000, prefix.Config("c"), `{}`)
			r.send(at(k)+1000, prefix.Config("c"), `{"defaultTtl":1}`)
			r.passTime(at(k) + 2000)
		},
		ends: func(t *testing.T, r *rig, n int) {
			var want []string
			for k := range n {
				want = append(want, fmt.Sprint("a", k), fmt.Sprint("b", k))
			}
			same(t, "events", r.expired(), want)
		},
	},
	"an index goes while documents are due": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.write(at(k), "b", `{"ttl":-1}`)
			r.idleUnharmed()
			r.send(at(k)+1000, prefix.Config("c"), `{}`)
			r.send(at(k)+1000, prefix.Config("c"), `{"indexingMode":"none"}`)
			r.send(at(k)+1000, prefix.Config("c"), `{}`)
			r.send(at(k)+1000, prefix.Config("c"), `{"defaultTtl":1}`)
		},
		ends: func(t *testing.T, r *rig, n int) {
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
			same(t, "documents", r.documents(), []string{"b"})
		},
	},
	"readers may still see what a write finds expired": {
		begin: func(r *rig) { ttlOf1(r); r.clock = 0 },
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.idleUnharmed()
			r.write(at(k)+1000, fmt.Sprint("a", k), `{"ttl":-1}`)
		},
		ends: func(t *testing.T, r *rig, n int) {
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
		},
	},
	"only log time passes": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), "a", `{"ttl":-1}`)
			r.idleUnharmed()
			r.passTime(at(k) + 5)
			r.duties.heartbeat = time.Time{}
		},
		ends: func(t *testing.T, r *rig, n int) {
			if !r.progress.IsCommitted() || r.progress.CommittedWatermark < at(n-1)+5 {
				t.Errorf("the log time %d is not committed", r.progress.Watermark)
			}
		},
	},
	"the shard is taken over again": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.TakeOverAgain()
			r.passTime(at(k) + 1000)
		},
		ends: func(t *testing.T, r *rig, n int) {
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
		},
	},
	"Redis is emptied, and the shard is built from the log": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), fmt.Sprint("a", k), `{}`)
			r.write(at(k), "b", `{"ttl":-1}`)
			r.passTime(at(k) + 1000)
			r.idleUnharmed()
			r.checkpoint()
			r.wipe()
		},
		ends: func(t *testing.T, r *rig, n int) {
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
			same(t, "documents", r.documents(), []string{"b"})
		},
	},
	"a snapshot is taken": {
		begin: ttlOf1,
		send: func(r *rig, k int) {
			r.write(at(k), "a", `{"ttl":-1}`)
			r.idleUnharmed()
			r.passTime(at(k) + 5)
			r.idleUnharmed() // which commits nothing
			r.snapshot()
		},
		ends: func(t *testing.T, r *rig, n int) {
			if r.tenure.recording != nil || r.calls("copy") > 1 {
				t.Errorf("the snapshot does not end: %q", r.passed)
			}
			if all := r.generations(); len(all) == 0 || all[0].Offset != r.progress.Offset ||
				all[0].Watermark != at(n-1)+5 {
				t.Errorf("the snapshots are %+v, want one at %d", all, r.progress.Offset)
			}
		},
	},
	"Redis is emptied, and the shard is loaded from a snapshot": {
		begin: func(r *rig) {
			ttlOf1(r)
			r.write(start, "a", `{}`)
			r.write(start, "b", `{"ttl":-1}`)
			r.passTime(start + 1000)
			r.idle()
			r.snapshot()
			r.idle()
			r.checkpoint()
			r.truncate(r.progress.Offset + 1)
		},
		send: func(r *rig, k int) { r.wipe() },
		ends: func(t *testing.T, r *rig, n int) {
			same(t, "events", r.expired(), []string{"a"})
			same(t, "documents", r.documents(), []string{"b"})
		},
	},
}

// idleUnharmed lets the owner work without faults, in the middle of a stage.
func (r *rig) idleUnharmed() {
	r.t.Helper()
	at := r.failAt
	r.failAt = -1
	r.idle()
	r.failAt = at
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestG1_G3_EachFailureIsNoticed fails each call of Redis once, and each point that the owner passes, one
// after the other. The owner returns every failure, goes on from a takeover, and in the end each document
// has one event, each message one outcome, and Redis what follows from the log.
//
// It fails if the owner goes on after a call that has failed.
func TestG1_G3_EachFailureIsNoticed(t *testing.T) {
	for name, s := range stages {
		t.Run(name, s.run)
	}
}

// run leads an owner through the stage, once for each call that can fail in it.
func (s stage) run(t *testing.T) {
	r := newRig(t)
	r.idle()
	if s.begin != nil {
		s.begin(r)
	}
	r.idle()
	k := 0
	for wasHit := true; wasHit && k < 100; k++ {
		s.send(r, k)
		wasHit = r.fails(k)
	}
	t.Logf("%d calls failed, such as %q", r.faults, r.passed)
	s.ends(t, r, k)
	for _, m := range r.sent {
		if r.statusOf(m) == 0 && m.ReplyTo != "" {
			t.Errorf("message %d, on %s, has no outcome", m.Seq, m.Subject)
		}
	}
}

// fails fails the k-th call from here on, lets the owner recover, and reports whether there was such a call.
func (r *rig) fails(k int) bool {
	r.t.Helper()
	r.passed, r.failAt = nil, k
	faults, noticed := r.faults, 0
	for tries := 0; ; tries++ {
		err := r.try()
		if err == nil {
			break
		}
		if errors.Is(err, errFault) {
			noticed++
		}
		if tries == 5 {
			r.t.Fatalf("after %q: %v", r.passed, err)
		}
		r.recover(err)
	}
	r.failAt = -1
	if r.faults > faults+noticed {
		r.t.Errorf("the owner goes on after a failure: %q", r.passed[:k+1])
	}
	return r.faults > faults
}

// recover is what Run does after an error, without the pause.
func (r *rig) recover(err error) { r.recoverFrom(err, 1) }

func (r *rig) recoverFrom(err error, failures int) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	r.fail(done, err, failures)
}
