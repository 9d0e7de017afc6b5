//go:build held

package lease

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"

	"github.com/seed18712806/lapse/sink/wire"
)

// rival takes the lease like another process, and creates the bucket if that is absent. It does not beat.
func (p *process) rival() {
	p.t.Helper()
	if _, err := p.bucket.Provision(p.t.Context()); err != nil {
		p.t.Error(err)
	}
	p.change(func(wire.Lease) wire.Lease { return wire.Lease{Owner: "rival", Name: "rival"} })
}

// expectRival checks that the bucket holds the lease of the rival.
func (p *process) expectRival() {
	p.t.Helper()
	if e := p.entry(); e.Owner != "rival" {
		p.t.Errorf("the rival has taken the lease, and the bucket holds %+v", e)
	}
}

// remove removes the lease, with its bucket if so asked.
func (p *process) remove(bucket bool) {
	p.t.Helper()
	js := p.bucket.js
	if bucket {
		if err := js.DeleteKeyValue(p.t.Context(), p.bucket.Name()); err != nil {
			p.t.Error(err)
		}
		return
	}
	kv, err := js.KeyValue(p.t.Context(), p.bucket.Name())
	if err == nil {
		err = kv.Purge(p.t.Context(), wire.LeaseKey(0))
	}
	if err != nil {
		p.t.Error(err)
	}
}

// joined is a process that does not run. It has created the bucket.
func (s *natsServer) joined(name string, replace ...func(*seams)) *process {
	s.t.Helper()
	p := s.prepare(name, Options{}, replace...)
	if err := p.Provision(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// owning is an ownership of a process that does not run: nobody but the test verifies the lease.
func (p *process) owning() *tenure {
	p.t.Helper()
	s := p.shards[0]
	lease, taking := wire.Lease{Owner: p.opts.ID, Name: p.opts.Name}, s.pulse.Renew()
	revision, err := p.bucket.Change(p.t.Context(), 0, lease, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	s.pulse.Renewed(taking)
	h := newHeld(s)
	return &tenure{shard: s, term: term{lease: lease, revision: revision, taking: taking}, held: h,
		cancel: func(error) {}, heart: &heart{shard: s, held: h, foreign: make(chan struct{}, 1)}}
}

// later is a clock that a test sets forward.
type later struct{ by atomic.Int64 }

// ticks makes a process live by the clock.
func (l *later) ticks(s *seams) {
	clock := s.clock
	s.clock = func() instant {
		now, by := clock(), time.Duration(l.by.Load())
		return instant{Mono: now.Mono + by, Wall: now.Wall + by}
	}
}

// patience makes a proof hold for longer than a busy machine needs.
func patience(s *seams) { s.timing.doubt = limit }

// TestHeldVerify: another process takes the lease within a renewal that finds the lease or its bucket removed. Then the
// renewal is a loss. Fails if the owner puts its lease back over that of the other: both would pass the fence.
func TestHeldVerify(t *testing.T) {
	for name, bucket := range map[string]bool{"lease removed": false, "bucket removed": true} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/lease.tenure.verify", held.Takeover, func(t *testing.T, during func(happen func())) {
				a := startAlone(t).joined("a")
				o := a.owning()
				a.remove(bucket)
				took := false
				during(func() { a.rival(); took = true })
				err := o.verify(t.Context())
				if took {
					if !errors.Is(err, ErrLost) || o.pulse.Good() || !o.held.lost.Load() {
						t.Errorf("another process has the lease, and the renewal answers %v", err)
					}
					a.expectRival()
				} else if err != nil || a.entry().Owner != "a" {
					t.Errorf("nobody has the lease, and the renewal answers %v", err)
				}
			})
		})
	}
}

// TestHeldProof: between the question of a renewal and its answer passes as much time as a proof holds for. Then the
// renewal proves nothing: another process may have taken the lease since. It fails if the owner believes in its lease
// from the answer on.
func TestHeldProof(t *testing.T) {
	gap := 0
	held.Each(t, "processor/lease.tenure.verify", held.Restart, func(t *testing.T, during func(happen func())) {
		clock := &later{}
		a := startAlone(t).joined("a", clock.ticks, patience)
		o := a.owning()
		a.remove(false)
		during(func() { clock.by.Add(int64(limit)) }) // the process stood still
		if err := o.verify(t.Context()); err != nil {
			t.Error(err)
		}
		const question = 2 // the second one, which is stored, is asked just before this gap
		if gap++; o.pulse.Good() != (gap != question) {
			t.Errorf("in gap %d the process stood still, and the proof holds: %t", gap, o.pulse.Good())
		}
	})
}

// TestHeldTakingProof is TestHeldProof for the change by which a standby takes the lease.
func TestHeldTakingProof(t *testing.T) {
	held.Each(t, "processor/lease.shard.attempt", held.Restart, func(t *testing.T, during func(happen func())) {
		clock := &later{}
		a := startAlone(t).joined("a", clock.ticks, patience)
		s, stood := a.shards[0], false
		a.rival()
		w := &watch{me: "a", timing: s.timing}
		if err := s.learn(t.Context(), w, true); err != nil {
			t.Fatal(err)
		}
		during(func() { clock.by.Add(int64(limit)); stood = true })
		taken := s.attempt(t.Context(), w)
		if taken.revision == 0 {
			t.Fatal("a standby has not taken the lease of a silent owner")
		}
		if s.pulse.Renewed(taken.taking); s.pulse.Good() == stood {
			t.Errorf("the process stood still: %t, and the proof holds: %t", stood, s.pulse.Good())
		}
	})
}

// TestHeldConfirm: a silent owner's bucket is gone, and within the look at it another process creates it and takes the
// lease. Fails if the standby takes the lease over from that process, in a bucket that it believes to be new.
func TestHeldConfirm(t *testing.T) {
	for _, operation := range []string{"processor/lease.shard.confirm", "processor/lease.shard.attempt"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, operation, held.Takeover, func(t *testing.T, during func(happen func())) {
				a := startAlone(t).joined("a")
				s, took := a.shards[0], false
				a.change(func(wire.Lease) wire.Lease { return wire.Lease{Owner: "silent"} })
				w := &watch{me: "a", timing: s.timing}
				if err := s.learn(t.Context(), w, true); err != nil {
					t.Fatal(err)
				}
				a.remove(true)
				during(func() { a.rival(); took = true })
				taken := s.attempt(t.Context(), w)
				if took {
					if taken.revision > 0 || !w.reread {
						t.Errorf("another process has just taken the lease, and this one has at revision %d", taken.revision)
					}
					a.expectRival()
				} else if taken.revision == 0 {
					t.Error("nobody has the lease, and the standby has not taken it")
				}
			})
		})
	}
}

// TestHeldAttempt: the bucket is deleted within an attempt to take the lease of a silent owner. Fails if the standby
// does not create it again, or does not take the lease in it.
func TestHeldAttempt(t *testing.T) {
	held.Each(t, "processor/lease.shard.attempt", held.Write, func(t *testing.T, during func(happen func())) {
		a := startAlone(t).joined("a", asksAgain)
		s, removed := a.shards[0], false
		a.rival()
		w := &watch{me: "a", timing: s.timing}
		if err := s.learn(t.Context(), w, true); err != nil {
			t.Fatal(err)
		}
		during(func() { a.remove(true); removed = true })
		taken := s.attempt(t.Context(), w)
		for again := 0; removed && taken.revision == 0 && again < 2; again++ {
			taken = s.attempt(t.Context(), w) // it looks into the bucket that the first attempt has created, and takes it
		}
		if e := a.entry(); taken.revision == 0 || e.Owner != "a" || e.Revision != taken.revision {
			t.Errorf("it has taken revision %d, and the bucket holds %+v", taken.revision, e)
		}
	})
}

// TestHeldLearn: a standby that starts finds no bucket, and before it creates one another process does, and takes the
// lease. Fails if the standby takes the lease too.
func TestHeldLearn(t *testing.T) {
	held.Each(t, "processor/lease.shard.learn", held.Takeover, func(t *testing.T, during func(happen func())) {
		a := startAlone(t).prepare("a", Options{})
		s, took := a.shards[0], false
		w := &watch{me: "a", timing: s.timing}
		during(func() { a.rival(); took = true })
		if err := s.learn(t.Context(), w, true); err != nil {
			t.Fatal(err)
		}
		if taken := s.attempt(t.Context(), w); took == (taken.revision > 0) {
			t.Errorf("another process has the lease: %t, and this one takes revision %d", took, taken.revision)
		}
		if took {
			a.expectRival()
			if err := s.learn(t.Context(), w, true); err != nil || w.owner() != "rival" {
				t.Errorf("it stands by for %q: %v", w.owner(), err)
			}
		}
	})
}

// TestHeldRelease: another process takes the lease within its release, which first fails because a renewal was stored
// whose answer was lost. Fails if the former owner frees the lease of the new one.
func TestHeldRelease(t *testing.T) {
	held.Each(t, "processor/lease.shard.release", held.Takeover, func(t *testing.T, during func(happen func())) {
		a := startAlone(t).joined("a")
		o, took := a.owning(), false
		a.change(func(present wire.Lease) wire.Lease { return present })
		during(func() { a.rival(); took = true })
		a.shards[0].release(t.Context(), o.revision)
		if e := a.entry(); took && e.Owner != "rival" || !took && e.Owner != "" {
			t.Errorf("another process has the lease: %t, and the bucket holds %+v", took, e)
		}
		if status := a.Status(0); status.Role != Standby || status.Held {
			t.Errorf("after a release: %+v", status)
		}
	})
}

// TestHeldPublish: while a change of the lease finds no bucket, another process creates the bucket. Fails if the change
// counts as stored, or as one that came too late, or if it fails from then on.
func TestHeldPublish(t *testing.T) {
	held.Each(t, "processor/lease.bucket.publish", held.Write, func(t *testing.T, during func(happen func())) {
		a := startAlone(t).prepare("a", Options{})
		created := false
		during(func() {
			if _, err := a.bucket.Provision(t.Context()); err != nil {
				t.Error(err)
			}
			created = true
		})
		mine := wire.Lease{Owner: "a"}
		_, err := a.bucket.Change(t.Context(), 0, mine, 0)
		if err == nil || errors.Is(err, errConflict) || errors.Is(err, errNoBucket) == created {
			t.Errorf("the bucket was created meanwhile: %t, and the change answers %v", created, err)
		}
		if created {
			if e := a.entry(); e.Revision != 0 {
				t.Errorf("the change has failed, and the bucket holds %+v", e)
			}
			if _, err := a.bucket.Change(t.Context(), 0, mine, 0); err != nil {
				t.Errorf("the next change: %v", err)
			}
		}
	})
}

// outdated is JetStream that answers once that there is no bucket, although there is one.
type outdated struct {
	jetstream.JetStream
	asked bool
}

// KeyValue asks a server that has not heard of the bucket yet, and then one that has.
func (o *outdated) KeyValue(ctx context.Context, name string) (jetstream.KeyValue, error) {
	if !o.asked {
		o.asked = true
		return nil, jetstream.ErrBucketNotFound
	}
	return o.JetStream.KeyValue(ctx, name)
}

// TestHeldProvision: another process creates the bucket, with more history, or deletes it while this one provisions it.
// Fails if this process gives up, or creates a bucket over that of the other.
func TestHeldProvision(t *testing.T) {
	const name = "LAPSE_MEMBERS"
	for what, exists := range map[string]bool{"created": false, "deleted": true} {
		t.Run(what, func(t *testing.T) {
			operation := "processor/lease.bucket.provision"
			held.Each(t, operation, held.Write, func(t *testing.T, during func(happen func())) {
				js := startAlone(t).js()
				other := jetstream.KeyValueConfig{Bucket: name, History: 5}
				if exists {
					if _, err := js.CreateKeyValue(t.Context(), other); err != nil {
						t.Fatal(err)
					}
				}
				history := int64(1)
				if exists {
					history = 5
				}
				during(func() {
					var err error
					if exists {
						err, history = js.DeleteKeyValue(t.Context(), name), 1
					} else if _, err = js.CreateKeyValue(t.Context(), other); err == nil {
						history = 5
					}
					if err != nil {
						t.Error(err)
					}
				})
				created, err := newBucket(&outdated{JetStream: js}, nil, limit, "lapse", 1).Provision(t.Context())
				if err != nil || created != (history == 1) {
					t.Errorf("created %t, %v", created, err)
				}
				kv, err := js.KeyValue(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if status, err := kv.Status(t.Context()); err != nil || status.History() != history {
					t.Errorf("the bucket keeps %d, want %d: %v", status.History(), history, err)
				}
			})
		})
	}
}

// TestHeldRemove: a process that is back refreshes its entry while an owner deletes the former one. Fails if the entry
// goes: no owner would release a shard for that process, and lapse status would not show it.
func TestHeldRemove(t *testing.T) {
	for _, operation := range []string{"processor/lease.bucket.Remove", "processor/lease.roster.Refresh"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, operation, held.Write, func(t *testing.T, during func(happen func())) {
				soonGone := func(s *seams) { s.timing.gone = time.Nanosecond } // each entry but the newest
				a := startAlone(t).joined("a", soonGone)
				a.owning()
				a.shards[0].update(func(status *Status) { status.Role = Owner })
				back := false
				refresh := func() {
					if err := a.bucket.Put(t.Context(), wire.Member{ID: "b", Name: "b"}); err != nil {
						t.Error(err)
					}
				}
				refresh()
				during(func() { refresh(); back = true })
				a.roster.Refresh(t.Context())
				list, err := a.bucket.Members(t.Context())
				if err != nil || slices.ContainsFunc(list, func(m listed) bool { return m.ID == "b" }) != back {
					t.Errorf("the process is back: %t, and the bucket lists %+v: %v", back, list, err)
				}
			})
		})
	}
}
