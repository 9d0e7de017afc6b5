package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Fails if Change does not name the revision.
func TestOfFiveThatStartAtOnceOneOwns(t *testing.T) {
	s := startNATS(t)
	for round := range 4 {
		j := &journal{}
		prefix := wire.Prefix(fmt.Sprintf("round%d", round))
		var all []*process
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			all = append(all, s.prepare(name, Options{Prefix: prefix}, patient))
		}
		for _, p := range all {
			p.run(j.own(p.opts.ID))
		}
		owner := j.awaitOwner(t, "a", "b", "c", "d", "e").who
		for _, p := range all {
			until(t, p.opts.ID+" knows the owner", func() bool { return p.Status(0).Lease.Owner == owner })
			want := Standby
			if p.opts.ID == owner {
				want = Owner
			}
			// Noise may cast doubt on the owner for a moment.
			until(t, "the owner alone holds the lease", func() bool { return p.Status(0).Held == (want == Owner) })
			if got := p.Status(0); got.Role != want || got.Problem != nil || got.Lease.Name != "name of "+owner {
				t.Errorf("%s: %+v", p.opts.ID, got)
			}
		}
		if got := j.all(); len(got) != 1 {
			t.Fatalf("%d have owned", len(got))
		}
		if e := all[0].entry(); e.Owner != owner || e.Since == 0 {
			t.Errorf("the bucket holds %+v", e)
		}
		for _, p := range all {
			p.cancel()
		}
		for _, p := range all {
			p.leave()
			p.log.expect(t, "took the shard over", int(p.Status(0).Taken))
			if got := p.Status(0); got.Role != ended || got.Lost != 0 {
				t.Errorf("%s: %+v", p.opts.ID, got)
			}
		}
	}
}

func TestTheOwnerIsLoggedOnceByAStandby(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	b := s.prepare("b", Options{}, patient).run(j.own("b"))
	const standsBy = "standing by: another process owns the shard owner=name of a id=a since=20"
	until(t, "b stands by", func() bool { return len(b.log.with(standsBy)) > 0 })
	s.awaitBeats("a", 12)
	b.log.expect(t, standsBy, 1)
	a.log.expect(t, "took the shard over reason=nobody owned it", 1)
	a.leave()
	j.awaitOwner(t, "b")
	b.log.expect(t, "took the shard over reason=its owner released it", 1)
	a.log.expect(t, "released the shard", 1)
	b.leave()
	a.log.expect(t, "WARN", 0)
	b.log.expect(t, "WARN", 0)
}

// Fails if an owner that is told to stop does not wait for its work, or does not release the
// lease. A standby would then name its silence as the reason.
func TestACleanLeaveHandsOverAtOnce(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var all []*process
	join := func(i int) *process {
		name := fmt.Sprintf("m%02d", i)
		return s.prepare(name, Options{}, patient).run(j.own(name))
	}
	all = append(all, join(0))
	j.awaitOwner(t, "m00")
	all = append(all, join(1), join(2))
	var took []time.Duration
	for i := range 20 {
		owner := slices.IndexFunc(all, func(p *process) bool { return p.Status(0).Role == Owner })
		former := all[owner]
		rest := slices.Delete(slices.Clone(all), owner, owner+1)
		for _, p := range rest {
			until(t, "the others stand by", func() bool { return p.Status(0).Lease.Owner == former.opts.ID })
		}
		former.leave()
		var names []string
		for _, p := range rest {
			names = append(names, p.opts.ID)
		}
		next := j.awaitOwner(t, names...)
		stints := j.all()
		if before := stints[len(stints)-2]; before.who != former.opts.ID || next.began.Before(before.ended) {
			t.Fatalf("%s began at %v, before %s ended at %v", next.who, next.began, before.who, before.ended)
		} else {
			took = append(took, next.began.Sub(before.ended))
		}
		for _, p := range rest {
			if p.opts.ID == next.who {
				p.log.expect(t, "took the shard over reason=its owner released it", 1)
			}
		}
		all = append(rest, join(i+3))
	}
	slices.Sort(took)
	t.Logf("from the end of the former owner's work to the begin of the next one's: p50 %v, max %v of %d",
		took[len(took)/2], took[len(took)-1], len(took))
}

// Fails if the beat of a release does not come, or has another revision than the bucket.
func TestAReleaseIsPublishedWithItsRevision(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	sub, err := s.connect().SubscribeSync("lapse.beat.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sub.NextMsg(limit); err != nil {
		t.Fatal(err)
	}
	a.leave()
	var last wire.Beat
	for !last.Released {
		m, err := sub.NextMsg(limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m.Data, &last); err != nil {
			t.Fatal(err)
		}
	}
	if e := a.entry(); e.Owner != "" || e.Revision != last.Revision || last.Owner != "a" {
		t.Errorf("released by %+v, and the bucket holds %+v", last, e)
	}
}

// Fails if a standby does not notice silence.
func TestACrashIsNoticedBySilence(t *testing.T) {
	s := startNATS(t)
	for round := range 5 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel()
			s, j := s.in(t), &journal{}
			prefix := wire.Prefix(fmt.Sprintf("round%d", round))
			a := s.prepare("a", Options{Prefix: prefix}).run(j.own("a"))
			j.awaitOwner(t, "a")
			b := s.prepare("b", Options{Prefix: prefix}).run(j.own("b"))
			c := s.prepare("c", Options{Prefix: prefix}).run(j.own("c"))
			until(t, "they stand by", func() bool { return b.Status(0).Role == Standby && c.Status(0).Role == Standby })
			crash := time.Now()
			a.nc.Close()
			taken := j.awaitOwner(t, "b", "c")
			t.Logf("from the crash to the begin of the next owner's work: %v", taken.began.Sub(crash))
			next := map[string]*process{"b": b, "c": c}[taken.who]
			next.log.expect(t, "took the shard over reason=its owner was silent for", 1)
			a.wait()
			if !errors.Is(a.err, errClosed) {
				t.Errorf("Run of the crashed one: %v", a.err)
			}
			if j.all()[0].held.OK(t.Context()) == nil {
				t.Error("the crashed one may go on")
			}
			b.leave()
			c.leave()
		})
	}
}

// A standby that hears nothing suspects the owner wrongly. Fails if the owner hears the beats
// of another and does not verify, or if it takes the lease back.
func TestAWronglySuspectedOwnerBecomesAStandby(t *testing.T) {
	s, j := startNATS(t), &journal{}
	neverDoubts := func(s *seams) { s.timing.doubt = 10 * limit } // the beats of the other alone make it verify
	a := s.prepare("a", Options{}, neverDoubts, patient).run(j.own("a"))
	first := j.awaitOwner(t, "a")
	deaf := func(s *seams) { s.deaf = func(beat wire.Beat) bool { return beat.Owner == "a" } }
	b := s.prepare("b", Options{}, deaf).run(j.own("b"))
	j.awaitOwner(t, "b")
	if stint := j.all()[0]; !errors.Is(stint.cause, ErrLost) {
		t.Errorf("the former owner's work ended by %v", stint.cause)
	}
	if err := first.held.OK(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("OK of the former owner: %v", err)
	}
	if err := first.held.Fenced(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Fenced of the former owner: %v", err)
	}
	s.awaitBeats("b", 15)
	if got := j.all(); len(got) != 2 {
		t.Errorf("%d ownerships", len(got))
	}
	if got := a.Status(0); got.Role != Standby || got.Lost != 1 || got.Lease.Owner != "b" {
		t.Errorf("the former owner: %+v", got)
	}
	a.log.expect(t, "lost the shard reason=another process took it over owner=name of b", 1)
	b.leave()
	j.awaitOwner(t, "a")
	a.leave()
}

// An owner that cannot beat for a while renews its lease. Fails if a standby does not take a
// renewal for a sign of life.
func TestAnOwnerThatOnlyCannotBeatKeepsItsLease(t *testing.T) {
	s, j := startNATS(t), &journal{}
	mute := newGate(t)
	a := s.prepare("a", Options{}, func(s *seams) { s.mute = mute.isShut }).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	b := s.prepare("b", Options{}, slowToSuspect).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Role == Standby })
	mute.close()
	revisions := map[uint64]bool{}
	// Each takes 400 ms, so that b would suspect a.
	until(t, "the lease was renewed eight times",
		func() bool { revisions[a.entry().Revision] = true; return len(revisions) > 8 })
	if err := held.OK(t.Context()); err != nil {
		t.Error(err)
	}
	mute.open()
	s.awaitBeats("a", 8)
	if got := j.all(); len(got) != 1 {
		t.Errorf("%d ownerships", len(got))
	}
	a.leave()
}

// An owner stood still and lost the lease meanwhile. Fails if OK does not read the clocks.
func TestAnOwnerThatStoodStillVerifiesFirst(t *testing.T) {
	s, j := startNATS(t), &journal{}
	frozen := newGate(t)
	answersSoon := func(s *seams) { s.timing.verify = 2 * time.Second }
	a := s.prepare("a", Options{}, frozen.freezes, answersSoon).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	s.prepare("b", Options{}, slowToSuspect).run(j.own("b"))
	if err := verdict(t, held.OK); err != nil {
		t.Fatal(err)
	}
	frozen.close()
	until(t, "b owns", func() bool { return slices.Contains(j.owners(), "b") })
	if a.Status(0).Held {
		t.Error("held, while another owns")
	}
	if err := held.OK(t.Context()); err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "too busy") {
		t.Errorf("OK while nothing can be verified: %v", err)
	}
	frozen.open()
	if err := verdict(t, held.OK); !errors.Is(err, ErrLost) {
		t.Errorf("OK: %v", err)
	}
	j.awaitOwner(t, "b")
}

// Only the wall clock shows that a machine was suspended. Fails if OK ignores it.
func TestAJumpOfTheWallClockIsVerified(t *testing.T) {
	s, j := startNATS(t), &journal{}
	frozen := newGate(t)
	var ahead atomic.Int64
	jumps := func(s *seams) {
		system := s.clock
		s.clock = func() instant {
			now := system()
			now.Wall += time.Duration(ahead.Load())
			return now
		}
	}
	a := s.prepare("a", Options{}, frozen.freezes, jumps).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	frozen.close()
	before := a.entry().Revision
	ahead.Store(int64(time.Hour))
	if a.Status(0).Held {
		t.Error("held after an hour")
	}
	frozen.open()
	if err := held.OK(t.Context()); err != nil {
		t.Error(err)
	}
	if after := a.entry().Revision; after <= before {
		t.Errorf("revision %d, after %d: it was not verified", after, before)
	}
	a.leave()
}

func TestFencedVerifiesAtTheBucket(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	before := a.entry()
	if err := held.Fenced(t.Context()); err != nil {
		t.Fatalf("nobody took it: %v", err)
	}
	after := a.entry()
	if after.Revision <= before.Revision || after.Lease != before.Lease {
		t.Errorf("%+v, after %+v", after, before)
	}
	// Another process has just taken the lease and has published no beat yet.
	a.change(func(wire.Lease) wire.Lease { return wire.Lease{Owner: "b", Name: "b"} })
	if err := held.Fenced(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Fenced: %v", err)
	}
	until(t, "the work has ended", func() bool { return len(j.owners()) == 0 || j.owners()[0] != "a" || len(j.all()) > 1 })
}

// JetStream stored a renewal and its answer was lost, so the lease is at a later revision.
// Fails if the owner takes that for a loss.
func TestARenewalThatNobodyAcknowledgedIsFound(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	same := func(present wire.Lease) wire.Lease { return present }
	a.change(same)
	if err := held.Fenced(t.Context()); err != nil {
		t.Error(err)
	}
	a.change(same)
	a.leave()
	if e := a.entry(); e.Owner != "" {
		t.Errorf("after the end: %+v", e)
	}
}

// A process was killed and left its lease behind.
func TestTheLeaseOfADeadOwner(t *testing.T) {
	for _, impatient := range []bool{true, false} {
		t.Run(fmt.Sprintf("impatient=%t", impatient), func(t *testing.T) {
			s, j := startNATS(t), &journal{}
			a := s.prepare("a", Options{Impatient: impatient})
			if err := a.Provision(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := a.bucket.Change(t.Context(), 0, wire.Lease{Owner: "dead", Name: "dead"}, 0); err != nil {
				t.Fatal(err)
			}
			a.run(j.own("a"))
			j.awaitOwner(t, "a")
			reason := "told not to wait for its owner"
			if !impatient {
				reason = "its owner was silent for"
			}
			a.log.expect(t, "took the shard over reason="+reason, 1)
			a.log.expect(t, "standing by", 1)
			a.leave()
		})
	}
}

func TestEndsOfTheWork(t *testing.T) {
	failed := errors.New("it failed")
	for name, test := range map[string]struct {
		work work
		want error
	}{
		"an error":           {func(context.Context, *Held) error { return failed }, failed},
		"nothing":            {func(context.Context, *Held) error { return nil }, nil},
		"its own canceling":  {func(context.Context, *Held) error { return context.Canceled }, context.Canceled},
		"a loss that is not": {func(context.Context, *Held) error { return ErrLost }, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			s := startNATS(t)
			p := s.prepare("a", Options{}).run(test.work)
			p.wait()
			if !errors.Is(p.err, test.want) || (p.err == nil) != (test.want == nil) {
				t.Errorf("Run: %v", p.err)
			}
			if e := p.entry(); e.Owner != "" || e.Revision == 0 {
				t.Errorf("the lease was not released: %+v", e)
			}
		})
	}
}

func TestAnErrorOfTheWorkAfterALossEndsTheMember(t *testing.T) {
	s := startNATS(t)
	failed := errors.New("it failed")
	a := s.prepare("a", Options{}).run(func(ctx context.Context, held *Held) error {
		<-ctx.Done()
		return failed
	})
	until(t, "a owns", func() bool { return a.Status(0).Role == Owner })
	a.change(func(wire.Lease) wire.Lease { return wire.Lease{Owner: "b"} })
	a.shards[0].suspect()
	a.wait()
	if !errors.Is(a.err, failed) {
		t.Errorf("Run: %v", a.err)
	}
	if e := a.entry(); e.Owner != "b" {
		t.Errorf("the lease of another: %+v", e)
	}
}

func TestRunningAndStopping(t *testing.T) {
	s, j := startNATS(t), &journal{}
	p := s.prepare("a", Options{})
	p.run(j.own("a"))
	j.awaitOwner(t, "a")
	if err := p.Run(t.Context(), j.own("again")); err == nil || len(j.all()) != 1 {
		t.Errorf("a second Run: %v", err)
	}
	p.leave()
	p.leave() // stopping twice is fine

	stopped := s.prepare("b", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stopped.Run(ctx, j.own("b")); err != nil || len(j.all()) != 1 {
		t.Errorf("Run of one that was stopped before: %v", err)
	}
	if got := stopped.Status(0).Role; got != ended {
		t.Errorf("role %s", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opts := range []Options{{Prefix: "a.b"}, {Shards: -1}, {Shards: 1025}, {Replicas: 6}, {Replicas: -1},
		{ID: "a.b"}} {
		if _, err := New(nil, opts); err == nil {
			t.Errorf("%+v is allowed", opts)
		}
	}
}

// A start may be refused after New. Fails if New creates the bucket.
func TestNewCreatesNothing(t *testing.T) {
	s := startNATS(t)
	p := s.prepare("a", Options{})
	if _, err := s.js().KeyValue(t.Context(), "LAPSE_MEMBERS"); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("the bucket: %v", err)
	}
	for range 2 {
		if err := p.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := s.js().KeyValue(t.Context(), "LAPSE_MEMBERS")
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c := status.Config(); c.History != 1 || c.Storage != jetstream.FileStorage || c.Replicas != 1 {
		t.Errorf("%+v", c)
	}
	p.log.expect(t, "created bucket", 1)
}

// Each shard has a lease of its own.
func TestSeveralShards(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{Shards: 3}, patient).run(j.own("a"))
	until(t, "a owns three", func() bool { return len(j.owners()) == 3 })
	var shards []int
	for _, stint := range j.all() {
		shards = append(shards, stint.held.Shard())
		if err := stint.held.OK(t.Context()); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(shards)
	if !slices.Equal(shards, []int{0, 1, 2}) {
		t.Errorf("shards %v", shards)
	}
	b := s.prepare("b", Options{Shards: 3}, patient).run(j.own("b"))
	until(t, "b stands by", func() bool {
		return b.Status(2).Role == Standby && b.Status(0).Role == Standby && b.Status(1).Role == Standby
	})
	a.leave()
	until(t, "b owns three", func() bool { return len(j.owners()) == 3 && len(j.all()) == 6 })
	b.leave()
}
