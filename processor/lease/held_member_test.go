//go:build held

package lease

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/held"

	"github.com/seed18712806/lapse/sink/wire"
)

// impatient takes the lease at once.
var impatient = Options{Impatient: true}

// owns waits until a process believes that it owns the shard.
func (p *process) owns() {
	p.t.Helper()
	until(p.t, p.opts.ID+" owns", func() bool { return p.Status(0).Role == Owner })
}

// onlyOwner waits until a process alone works, beats and holds the lease, and the bucket says so.
func (s *natsServer) onlyOwner(j *journal, p *process) {
	s.t.Helper()
	j.awaitOwner(s.t, p.opts.ID)
	s.awaitBeats(p.opts.ID, 6)
	if err := verdict(s.t, j.awaitOwner(s.t, p.opts.ID).held.Fenced); err != nil {
		s.t.Errorf("%s works, and its lease answers %v", p.opts.ID, err)
	}
	if e := p.entry(); e.Owner != p.opts.ID {
		s.t.Errorf("%s works, and the bucket holds %+v", p.opts.ID, e)
	}
}

// listed is how often a bucket lists a process.
func (p *process) listed() (n int) {
	list, err := p.bucket.Members(p.t.Context())
	if err != nil {
		return -1
	}
	for _, m := range list {
		if m.ID == p.opts.ID {
			n++
		}
	}
	return n
}

// TestHeldJoin: NATS restarts, or the bucket is deleted, while a process joins. It fails if that ends the process, or
// if the process owns a shard that the bucket does not know of.
func TestHeldJoin(t *testing.T) {
	for name, kind := range map[string]held.Kind{"the bucket is deleted": held.Write, "NATS restarts": held.Restart} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/lease.Member.Run", kind, func(t *testing.T, during func(happen func())) {
				s, j := startAlone(t), &journal{}
				other := s.joined("other")
				during(func() {
					if kind == held.Write {
						other.remove(true)
						return
					}
					s.stop()
					s.start()
				})
				a := s.prepare("a", Options{}, asksAgain, refreshOften).run(j.own("a"))
				s.onlyOwner(j, a)
				until(t, "the process is listed, and nothing is wrong", func() bool {
					return a.listed() == 1 && a.Problem() == nil
				})
				if n := len(j.all()); n != 1 {
					t.Errorf("%d ownerships", n)
				}
				a.leave()
				other = s.prepare("another", Options{})
				if e := other.entry(); e.Owner != "" || a.listed() != 0 {
					t.Errorf("after the end: the lease is %+v, and the process is listed %d times", e, a.listed())
				}
			})
		})
	}
}

// TestHeldStandBy: another process takes the lease between the look of a standby at it and the attempt to take it. It
// fails if the standby takes it as well.
func TestHeldStandBy(t *testing.T) {
	for name, owner := range map[string]string{"of a silent owner": "silent", "free": ""} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/lease.shard.standBy", held.Takeover, func(t *testing.T, during func(happen func())) {
				s, j := startAlone(t), &journal{}
				a, c := s.joined("a"), s.prepare("c", impatient)
				a.change(func(wire.Lease) wire.Lease { return wire.Lease{Owner: owner} })
				var took atomic.Bool
				during(func() { c.run(j.own("c")).owns(); took.Store(true) })
				a.run(j.own("a"))
				until(t, "one has the lease", func() bool { return took.Load() || a.Status(0).Role == Owner })
				if !took.Load() {
					s.onlyOwner(j, a)
					return
				}
				s.onlyOwner(j, c)
				if n := len(j.all()); n != 1 || a.Status(0).Lease.Owner != "c" {
					t.Errorf("%d ownerships, and the standby knows %+v", n, a.Status(0).Lease)
				}
			})
		})
	}
}

// TestHeldOwnTaken: another process takes the lease just before this one does, or just after, before its work begins.
// Fails if the work passes the fence after that, or goes on.
func TestHeldOwnTaken(t *testing.T) {
	held.Each(t, "processor/lease.shard.run", held.Takeover, func(t *testing.T, during func(happen func())) {
		s, j := startAlone(t), &journal{}
		a, c := s.prepare("a", Options{}), s.prepare("c", impatient)
		var took atomic.Bool
		during(func() { c.run(j.own("c")).owns(); took.Store(true) })
		a.run(func(ctx context.Context, held *Held) error {
			if err := held.Fenced(ctx); took.Load() == (err == nil) {
				t.Errorf("another process has taken the lease: %t, and the fence answers %v", took.Load(), err)
			}
			return j.own("a")(ctx, held)
		})
		until(t, "one has the lease", func() bool { return took.Load() || slices.Contains(j.owners(), "a") })
		if took.Load() {
			s.onlyOwner(j, c)
		} else {
			s.onlyOwner(j, a)
		}
		a.leave() // before the other one, whose lease it would take
	})
}

// TestHeldOwnStopped: a process is told to stop before it stands by, or between the change that gave it the lease and
// the begin of its work. Fails if it does not end, or leaves the lease behind.
func TestHeldOwnStopped(t *testing.T) {
	held.Each(t, "processor/lease.shard.run", held.Restart, func(t *testing.T, during func(happen func())) {
		s, j := startAlone(t), &journal{}
		a, stopped := s.prepare("a", Options{}), false
		during(func() { a.cancel(); <-a.ending(); stopped = true })
		a.run(j.own("a"))
		if until(t, "it is told to stop, or works", func() bool { return len(j.all()) > 0 || isDone(a) }); !stopped {
			a.cancel()
		}
		if a.wait(); a.err != nil {
			t.Errorf("it ends with %v", a.err)
		}
		if e := s.prepare("b", Options{}).entry(); e.Owner != "" || a.listed() != 0 || len(j.owners()) > 0 {
			t.Errorf("after the end: the lease is %+v, the process is listed %d times, %v works", e, a.listed(), j.owners())
		}
	})
}

// ending is a channel that is closed once the process has told the others that it leaves.
func (p *process) ending() <-chan struct{} {
	told := make(chan struct{})
	go func() {
		defer close(told)
		until(p.t, "it leaves", p.leaving.Load)
	}()
	return told
}

// isDone reports whether a process has ended.
func isDone(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// TestHeldTenureTaken: another process takes the lease between two looks of the owner at it, and does not beat. Fails
// if the fence answers nil after that, or if the work goes on.
func TestHeldTenureTaken(t *testing.T) {
	held.Each(t, "processor/lease.tenure.run", held.Takeover, func(t *testing.T, during func(happen func())) {
		s, j := startAlone(t), &journal{}
		a := s.prepare("a", Options{}, patient)
		var took atomic.Bool
		during(func() { a.rival(); took.Store(true) })
		h := j.awaitOwner(t, a.run(j.own("a")).opts.ID).held
		until(t, "another process has taken the lease", took.Load)
		if err := verdict(t, h.Fenced); !errors.Is(err, ErrLost) {
			t.Errorf("another process has taken the lease, and the fence answers %v", err)
		}
		if err := h.OK(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("the lease is lost, and then it answers %v", err)
		}
		until(t, "the work ends", func() bool { return len(j.owners()) == 0 })
		if got := j.all(); len(got) != 1 || !errors.Is(got[0].cause, ErrLost) || a.Status(0).Lost != 1 {
			t.Errorf("%+v, %+v", got, a.Status(0))
		}
		a.expectRival()
	})
}

// TestHeldTenureReconnected: the connection of the owner is lost and made again between two looks at the lease. Fails
// if the work goes on before the lease is renewed.
func TestHeldTenureReconnected(t *testing.T) {
	held.Each(t, "processor/lease.tenure.run", held.Reconnection, func(t *testing.T, during func(happen func())) {
		s, j := startAlone(t), &journal{}
		a, other := s.prepare("a", Options{}, patient), s.prepare("other", Options{})
		var before atomic.Uint64
		during(func() {
			e := other.entry()
			if err := a.nc.ForceReconnect(); err != nil {
				t.Error(err)
			}
			until(t, "the process has noticed", func() bool { return !a.shards[0].pulse.Good() })
			until(t, "it is connected again", a.link.Up)
			before.Store(e.Revision)
		})
		h := j.awaitOwner(t, a.run(j.own("a")).opts.ID).held
		until(t, "the connection was lost", func() bool { return before.Load() > 0 })
		if err := verdict(t, h.OK); err != nil {
			t.Error(err)
		}
		if e := other.entry(); e.Owner != "a" || e.Revision <= before.Load() {
			t.Errorf("the work goes on with the lease %+v, as it was before at revision %d", e, before.Load())
		}
	})
}

// TestHeldOwn: between the end of the work and the release another process takes the lease, or NATS restarts. Fails if
// the former owner frees the lease of another, or if nobody has it in the end.
func TestHeldOwn(t *testing.T) {
	for name, kind := range map[string]held.Kind{"taken": held.Takeover, "NATS restarts": held.Restart} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/lease.shard.own", kind, func(t *testing.T, during func(happen func())) {
				s, j := startAlone(t), &journal{}
				a, c := s.prepare("a", Options{}, asksAgain), s.prepare("c", impatient, asksAgain)
				during(func() {
					if kind == held.Restart {
						s.stop()
						s.start()
						until(t, "the connections are back", func() bool { return a.link.Up() && c.nc.IsConnected() })
					}
					if c.run(j.own("c")); kind == held.Takeover {
						c.owns()
					}
				})
				j.awaitOwner(t, a.run(j.own("a")).opts.ID)
				if a.leave(); c.cancel == nil { // nothing has happened
					return
				}
				s.onlyOwner(j, c)
				if n := len(j.all()); n != 2 {
					t.Errorf("%d ownerships", n)
				}
			})
		})
	}
}

// TestHeldHeart: another process takes the lease between two beats of the owner, which hears nothing meanwhile. Fails
// if the former owner goes on to beat or to work once it has noticed, or takes the lease back.
func TestHeldHeart(t *testing.T) {
	held.Each(t, "processor/lease.heart.run", held.Takeover, func(t *testing.T, during func(happen func())) {
		s, j := startAlone(t), &journal{}
		a, c := s.prepare("a", Options{}), s.prepare("c", impatient)
		during(func() { c.run(j.own("c")).owns() })
		a.run(j.own("a"))
		until(t, "the former owner has noticed", func() bool { return a.Status(0).Lost == 1 })
		s.onlyOwner(j, c)
		beats, err := s.connect().SubscribeSync("lapse.beat.0")
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < 6; {
			var b wire.Beat
			m, err := beats.NextMsg(limit)
			if err != nil {
				t.Fatal(err)
			}
			if json.Unmarshal(m.Data, &b) == nil && b.Owner == "c" {
				n++
			} else if b.Owner == "a" {
				t.Errorf("the former owner beats: %+v", b)
			}
		}
		if n := len(j.all()); n != 2 {
			t.Errorf("%d ownerships", n)
		}
	})
}

// TestHeldRoster: the bucket is deleted between two refreshes of an entry, or NATS restarts. Fails if the entry does not
// come back, or if it is left behind at the end.
func TestHeldRoster(t *testing.T) {
	for name, kind := range map[string]held.Kind{"the bucket is deleted": held.Write, "NATS restarts": held.Restart} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "processor/lease.roster.Run", kind, func(t *testing.T, during func(happen func())) {
				s, j := startAlone(t), &journal{}
				a, other := s.prepare("a", Options{}, asksAgain, refreshOften), s.prepare("other", Options{})
				var happened atomic.Int64 // when, in Unix milliseconds
				during(func() {
					if kind == held.Write {
						other.remove(true)
					} else {
						s.stop()
						s.start()
					}
					happened.Store(time.Now().UnixMilli())
				})
				a.run(j.own("a"))
				until(t, "it happens", func() bool { return happened.Load() > 0 })
				until(t, "the entry is there, and nothing is wrong", func() bool {
					return a.Problem() == nil && slices.ContainsFunc(a.Members(), func(m wire.Member) bool {
						return m.ID == "a" && int64(m.Seen) >= happened.Load() && len(m.Owns) == 1
					})
				})
				s.onlyOwner(j, a)
				a.leave()
				until(t, "the connection is there", func() bool { return other.nc.Status() == nats.CONNECTED })
				if n := s.prepare("a", Options{}).listed(); n != 0 {
					t.Errorf("at the end the process is listed %d times", n)
				}
			})
		})
	}
}
