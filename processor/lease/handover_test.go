package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// sharesSoon is for tests in which shards are handed over. What takes seconds takes
// milliseconds. Only the successor takes a shard, however busy the machine is.
func sharesSoon(s *seams) {
	s.timing.share = shareTerms{every: 10 * ms, calm: 50 * ms, keep: 50 * ms, keepGiven: 100 * ms, unfit: 200 * ms}
	s.timing.roster.Refresh, s.timing.roster.Settle, s.timing.roster.Well, s.timing.roster.Doubt = 30*ms, 200*ms, 100*ms, 2*time.Second
	s.timing.watch.grace = limit
}

// member starts a process that shares shards out soon, and takes nothing because of silence.
func (s *natsServer) member(j *journal, name string, opts Options, replace ...func(*seams)) *process {
	return s.prepare(name, opts, append([]func(*seams){patient, sharesSoon}, replace...)...).run(j.own(name))
}

// loads counts the shards of each process whose work runs.
func (j *journal) loads() map[string]int {
	load := map[string]int{}
	for _, who := range j.owners() {
		load[who]++
	}
	return load
}

func (j *journal) awaitLoads(t testing.TB, want map[string]int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the owners are %v, after %v", j.owners(), j.story())
		}
	}()
	until(t, fmt.Sprintf("the shards are owned %v", want), func() bool { return maps.Equal(j.loads(), want) })
}

// awaitKnown waits until a process knows that another owns n shards. Before, it may wait for the
// owner as for a successor, which sharesSoon gives much time.
func awaitKnown(t testing.TB, p *process, owner string, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%s knows the owner %s of %d shards", p.opts.ID, owner, n), func() bool {
		known := 0
		for shard := range p.shards {
			if p.Status(shard).Lease.Owner == owner {
				known++
			}
		}
		return known == n
	})
}

// stays fails if a shard begins to be owned anew while some beats of an owner of shard 0 come (of
// any, if it is ""), which is longer than all times of sharesSoon.
func (s *natsServer) stays(j *journal, owner string) {
	s.t.Helper()
	before := len(j.all())
	s.awaitBeats(owner, 15)
	if after := len(j.all()); after != before {
		s.t.Errorf("%d ownerships began, and nothing has changed: %v", after-before, j.story())
	}
}

// story is who has owned which shard, one after the other.
func (j *journal) story() (moves []string) {
	for _, s := range j.all() {
		moves = append(moves, fmt.Sprintf("%s:%d", s.who, s.held.Shard()))
	}
	return moves
}

// awaitSettled waits until a process takes others for settled.
func awaitSettled(t testing.TB, p *process, ids ...string) {
	t.Helper()
	until(t, fmt.Sprintf("%v are settled", ids), func() bool {
		members, current := p.roster.Alive()
		n := 0
		for _, m := range members {
			if m.Settled && slices.Contains(ids, m.ID) {
				n++
			}
		}
		return current && n == len(ids)
	})
}

// awaitAssigned waits until each shard is owned by the member to which assign gives it.
func (j *journal) awaitAssigned(t testing.TB, shards int, members ...string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the owners changed: %v", j.story())
		}
	}()
	want := assign(shards, members)
	until(t, fmt.Sprintf("the shards are owned by %v", want), func() bool {
		owners := make([]string, shards)
		for _, stint := range j.all() {
			if stint.ended.IsZero() {
				owners[stint.held.Shard()] = stint.who
			}
		}
		return slices.Equal(owners, want)
	})
}

// Fails if a process that joins gets nothing, or not what assign gives it; or if shards move on
// afterwards.
func TestL10_ShardsAreSharedOutEvenly(t *testing.T) {
	s, j := startNATS(t), &journal{}
	all := map[string]*process{}
	for i, name := range []string{"a", "b", "c"} {
		all[name] = s.member(j, name, Options{Shards: 4})
		j.awaitAssigned(t, 4, []string{"a", "b", "c"}[:i+1]...)
		s.stays(j, "")
	}
	all["b"].leave()
	j.awaitAssigned(t, 4, "a", "c")
	s.stays(j, "")
	all["c"].leave()
	j.awaitAssigned(t, 4, "a")
}

// staysListed is for tests in which the entry of a dead process stays, however busy the machine
// is. A hand-over to it may be under way when it dies.
func staysListed(s *seams) {
	s.timing.roster.Away, s.timing.roster.Doubt = limit, limit
	// A member that is suspected wrongly, or is late to take a shard, gets none for so long as the
	// test waits. So noise on the machine must not do that.
	s.timing.watch.silence, s.timing.watch.grace = 5*time.Second, 5*time.Second
}

// Of three processes with two shards each one dies. Its entry stays for a while. Fails if the
// others hand shards over to the dead one.
func TestL10_ShardsOfADeadOwnerAreSharedOut(t *testing.T) {
	s, j := startNATS(t), &journal{}
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = s.prepare(name, Options{Shards: 6}, sharesSoon, staysListed).run(j.own(name))
		if name == "a" {
			j.awaitLoads(t, map[string]int{"a": 6})
		}
	}
	j.awaitAssigned(t, 6, "a", "b", "c")
	toB := len(all["a"].log.with("to=b")) + len(all["c"].log.with("to=b"))
	all["b"].nc.Close()
	j.awaitAssigned(t, 6, "a", "c")
	s.stays(j, "")
	if got := len(all["a"].log.with("to=b")) + len(all["c"].log.with("to=b")); got != toB {
		t.Errorf("%d shards were handed over to the dead one", got-toB)
	}
	if members, _ := all["a"].roster.Alive(); len(members) != 3 {
		t.Errorf("the entry of the dead one is gone: %v", members)
	}
}

// Fails if the only shard moves because a process joins.
func TestL10_TheOnlyShardStays(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{})
	until(t, "a owns it", func() bool { return j.loads()["a"] == 1 })
	for _, name := range []string{"b", "c", "d"} { // with fewer, a could come first by chance
		s.member(j, name, Options{})
	}
	awaitSettled(t, a, "b", "c", "d")
	s.stays(j, "a")
}

// A shard goes back and forth twenty times between three processes. Each time another process
// than the successor listens too. Fails if that one takes it, or if the successor waits.
func TestL11_TheSuccessorTakesOverAtOnce(t *testing.T) {
	s, j := startNATS(t), &journal{}
	keepsStill := func(s *seams) { s.timing.share.every = limit } // only the test hands over
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = s.member(j, name, Options{}, keepsStill, func(s *seams) { s.timing.share.keep, s.timing.share.keepGiven = 0, 0 })
	}
	var took []time.Duration
	for i := range 20 {
		owner := j.awaitOwner(t, "a", "b", "c").who
		var rest []string
		for name, p := range all {
			if name != owner {
				rest = append(rest, name)
				until(t, "the others stand by", func() bool { return p.Status(0).Lease.Owner == owner })
			}
		}
		slices.Sort(rest)
		to := rest[i%2]
		until(t, "the owner hands over", func() bool { return all[owner].shards[0].handOver(t.Context(), to, true) || j.owners()[0] == to })
		next := j.awaitOwner(t, to)
		stints := j.all()
		before := stints[len(stints)-2]
		if before.who != owner || next.began.Before(before.ended) || len(stints) != i+2 {
			t.Fatalf("%v", j.story())
		}
		took = append(took, next.began.Sub(before.ended))
		if got := all[owner].Status(0); got.Lost != 0 {
			t.Errorf("%s has lost it: %+v", owner, got)
		}
	}
	slices.Sort(took)
	t.Logf("from the end of the owner's work to the begin of its successor's: p50 %v, max %v of %d", took[len(took)/2], took[len(took)-1], len(took))
	if n := len(all["a"].log.with("its owner handed it over")) + len(all["b"].log.with("its owner handed it over")) + len(all["c"].log.with("its owner handed it over")); n != 20 {
		t.Errorf("%d of 20 name the reason", n)
	}
}

// An entry without a process stands for a successor that dies in the moment of the hand-over.
// Fails if nobody else takes the shard, or if the owner hands it over again and again.
func TestL11_ASuccessorThatDoesNotTakeIt(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{Shards: 2}, func(s *seams) { s.timing.roster.Doubt, s.timing.watch.grace = limit, 500*ms })
	j.awaitLoads(t, map[string]int{"a": 2})
	until(t, "a hands a shard over", func() bool {
		if _, err := a.bucket.Put(t.Context(), wire.Member{ID: "ghost", Name: "ghost"}); err != nil {
			t.Fatal(err)
		}
		return len(j.all()) == 3
	})
	j.awaitLoads(t, map[string]int{"a": 2})
	s.stays(j, "a")
	a.log.expect(t, "handed the shard over to=ghost", 1)
	a.log.expect(t, "took the shard over reason=its owner handed it over to another process, which did not take it", 1)
	if e := a.entry(); e.Owner != "a" || e.Successor != "" {
		t.Errorf("the bucket holds %+v", e)
	}
}

// The youngest member leaves, and the list of the owner is out of date. Fails if the owner hands
// a shard over to the process that has left, or to no other.
func TestL11_AMemberThatHasLeftIsNoSuccessor(t *testing.T) {
	s, j := startNATS(t), &journal{}
	onlyTheTest := func(s *seams) { s.timing.share.every, s.timing.roster.Refresh = limit, limit }
	a := s.member(j, "a", Options{Shards: 2}, onlyTheTest)
	j.awaitLoads(t, map[string]int{"a": 2})
	s.member(j, "c", Options{Shards: 2}, onlyTheTest)
	until(t, "c is listed", func() bool { a.roster.Refresh(t.Context()); return len(a.Members()) == 2 })
	b := s.member(j, "b", Options{Shards: 2}, onlyTheTest)
	until(t, "b is listed", func() bool { a.roster.Refresh(t.Context()); return len(a.Members()) == 3 })
	awaitSettled(t, a, "b", "c")
	b.leave()
	for _, shard := range a.shards {
		if shard.handOver(t.Context(), "b", true) {
			t.Errorf("a hands shard %d over to b", shard.id)
		}
	}
	a.roster.Refresh(t.Context())
	round := &sharing{Member: a.Member}
	until(t, "c owns one", func() bool {
		round.fitAt = a.now()
		round.runOnce(t.Context())
		return j.loads()["c"] == 1
	})
}

// Fails if a process that leaves can be told to end its work, and so release its lease, before
// its entry says that it leaves.
func TestL11_AProcessThatLeavesSaysSoFirst(t *testing.T) {
	s := startNATS(t)
	p := s.prepare("a", Options{}, patient, func(s *seams) { s.timing.flush = limit })
	working, said := make(chan struct{}), make(chan string, 1)
	p.run(func(ctx context.Context, _ *Held) error {
		close(working)
		<-ctx.Done()
		m, _, err := p.bucket.Member(context.WithoutCancel(ctx), "a")
		said <- fmt.Sprint(m.Problem, err)
		return ctx.Err()
	})
	<-working
	p.leave()
	if got, want := <-said, fmt.Sprint("it is leaving", error(nil)); got != want {
		t.Errorf("the entry says %q", got)
	}
	if members, err := p.bucket.Members(t.Context()); err == nil && len(members) > 0 {
		t.Errorf("the bucket holds %v", members)
	}
}

// A starts and reads the lease in the moment of a hand-over.
func TestL11_AProcessThatStartsLeavesTheShardToTheSuccessor(t *testing.T) {
	s, j := startNATS(t), &journal{}
	b := s.prepare("b", Options{}, patient, func(s *seams) { s.timing.watch.grace = limit })
	if err := b.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.bucket.Change(t.Context(), 0, wire.Lease{Successor: "c"}, 0); err != nil {
		t.Fatal(err)
	}
	b.run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Role == Standby })
	s.prepare("c", Options{}, patient).run(j.own("c"))
	j.awaitOwner(t, "c")
	if got := len(j.all()); got != 1 {
		t.Errorf("%d ownerships", got)
	}
}

// The lists of two processes differ: each believes in a third one, which does not exist, and
// does not see that the other is settled, or sees it too early. Fails if shards go back and
// forth more often than their owners keep them.
func TestL12_ListsThatDiffer(t *testing.T) {
	s, j := startNATS(t), &journal{}
	sees := func(more candidate) func(*seams) {
		return func(s *seams) {
			s.view = func(v *view) {
				v.Members = append(slices.DeleteFunc(v.Members, func(m candidate) bool { return m.ID == "x" || m.ID == "y" }), more)
				for i := range v.Members {
					v.Members[i].Settled = true
				}
			}
		}
	}
	const keep = time.Second
	soon := func(s *seams) { // so that there would be many
		s.timing.watch.grace, s.timing.share.keep, s.timing.share.keepGiven = 50*ms, keep, keep
	}
	a := s.member(j, "a", Options{Shards: 4}, soon, sees(candidate{ID: "x"}))
	j.awaitLoads(t, map[string]int{"a": 4})
	for _, name := range []string{"x", "y"} { // else no owner hands a shard over to them
		if _, err := a.bucket.Put(t.Context(), wire.Member{ID: name}); err != nil {
			t.Fatal(err)
		}
	}
	b := s.member(j, "b", Options{Shards: 4}, soon, sees(candidate{ID: "y"}))
	until(t, "both own shards", func() bool { return j.loads()["a"] > 0 && j.loads()["b"] > 0 })
	before, began := len(j.all()), time.Now()
	<-time.After(2 * keep) // no process is the owner all the time
	// An owner keeps each of four shards, also one that it has taken back.
	if got, most := len(j.all())-before, 4*(1+int(time.Since(began)/keep)); got > most {
		t.Errorf("%d ownerships, want at most %d: %v", got, most, j.story())
	}
	t.Logf("%d ownerships, %d and %d hand-overs", len(j.all()), len(a.log.with("handed the shard over")), len(b.log.with("handed the shard over")))
}

// Processes join and die, or leave, before they are settled. Fails if they get shards.
func TestL12_AMemberThatFlapsGetsNothing(t *testing.T) {
	s, j := startNATS(t), &journal{}
	settlesLate := func(s *seams) { s.timing.roster.Settle = limit }
	s.member(j, "a", Options{Shards: 4}, settlesLate)
	j.awaitLoads(t, map[string]int{"a": 4})
	for i := range 6 {
		name := fmt.Sprintf("b%d", i)
		b := s.member(j, name, Options{Shards: 4})
		until(t, "it stands by", func() bool { return b.Status(3).Role == Standby && len(b.Members()) > 1 })
		s.awaitBeats("a", 2)
		if i%2 == 0 {
			b.leave()
		} else {
			b.nc.Close()
		}
	}
	if got := len(j.all()); got != 4 {
		t.Errorf("%d ownerships: %v", got, j.story())
	}
}

// The lists of two processes differ, and each wants the other to have a shard. Fails if one that was
// given the shard hands it on before keepGiven has passed, except if it cannot work.
func TestL12_AShardThatWasHandedOverStays(t *testing.T) {
	s, j := startNATS(t), &journal{}
	keepsStill := func(s *seams) { s.timing.share.every, s.timing.share.keepGiven = limit, 10*limit } // only the test hands over
	a := s.member(j, "a", Options{}, keepsStill)
	j.awaitOwner(t, "a")
	b := s.member(j, "b", Options{}, keepsStill)
	awaitKnown(t, b, "a", 1)
	handsOver := func(from *process, to string, works bool) bool {
		return from.shards[0].handOver(t.Context(), to, works)
	}
	until(t, "a hands it over", func() bool { return handsOver(a, "b", true) || j.owners()[0] == "b" })
	j.awaitOwner(t, "b")
	awaitKnown(t, a, "b", 1)
	s.awaitBeats("b", 2) // keep has passed
	if handsOver(b, "a", true) {
		t.Error("b hands it back")
	}
	until(t, "b hands it over, since it cannot work", func() bool { return handsOver(b, "a", false) })
	j.awaitOwner(t, "a")
}

// The former owner has named a successor, which does not take the shard. Fails if the former owner
// takes it before another process, which is late, because it comes first in the order.
func TestL12_AFormerOwnerStandsBack(t *testing.T) {
	s, j := startNATS(t), &journal{}
	later := func(s *seams) { // the ranks are far apart, however busy the machine is
		s.timing.share.every, s.timing.watch.grace = limit, 200*ms
		s.timing.watch.freeDelay, s.timing.watch.freeMost = limit, limit
	}
	names := order(0, []string{"a", "b"})
	first := s.member(j, names[0], Options{}, later)
	j.awaitOwner(t, names[0])
	other := s.member(j, names[1], Options{}, later, func(s *seams) { s.timing.watch.grace = time.Second })
	awaitKnown(t, other, names[0], 1)
	for _, p := range []*process{first, other} {
		until(t, "both are listed", func() bool { p.roster.Refresh(t.Context()); return len(p.Members()) == 2 })
	}
	first.shards[0].handTo <- "ghost"
	j.awaitOwner(t, names[1])
}

// Fails if a process that is not ready is given a shard, or does not take what nobody owns.
func TestL12_AMemberThatIsNotReady(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{Shards: 4})
	j.awaitLoads(t, map[string]int{"a": 4})
	b := s.member(j, "b", Options{Shards: 4, Describe: func() wire.Member { return wire.Member{Problem: "it is slow"} }})
	until(t, "b is listed", func() bool { return b.Status(3).Role == Standby && len(a.Members()) == 2 })
	s.stays(j, "a")
	a.leave()
	j.awaitLoads(t, map[string]int{"b": 4})
}

// A process stands still and loses its shards, and continues. Fails if it takes them back, or
// is given more than its part later.
func TestL12_AProcessThatStoodStillGetsItsPartOnce(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{Shards: 4}, sharesSoon, slowToSuspect).run(j.own("a"))
	j.awaitLoads(t, map[string]int{"a": 4})
	frozen := newGate(t)
	s.prepare("b", Options{Shards: 4}, sharesSoon, slowToSuspect, frozen.freezes).run(j.own("b"))
	j.awaitLoads(t, map[string]int{"a": 2, "b": 2})
	awaitKnown(t, a, "b", 2)
	frozen.close()
	until(t, "a owns all", func() bool { return j.loads()["a"] == 4 })
	frozen.open()
	until(t, "b has its part again", func() bool { return maps.Equal(j.loads(), map[string]int{"a": 2, "b": 2}) && len(j.all()) == 4+2+2+2 })
	s.stays(j, "b")
}

// The bucket is deleted in the moment in which a process joins. That process may take shards,
// because it finds no lease. Fails if the shards are not shared out in the end.
func TestL7_TheBucketIsLostBeforeAHandOver(t *testing.T) {
	s, j := startNATS(t), &journal{}
	s.member(j, "a", Options{Shards: 4}, asksAgain)
	j.awaitLoads(t, map[string]int{"a": 4})
	if err := s.js().DeleteKeyValue(t.Context(), "LAPSE_MEMBERS"); err != nil {
		t.Fatal(err)
	}
	s.member(j, "b", Options{Shards: 4}, asksAgain)
	j.awaitLoads(t, map[string]int{"a": 2, "b": 2})
}

// unfit is what a process says of itself.
type unfit struct{ atomic.Bool }

// can are the options of a process that cannot work while u is set.
func (u *unfit) can(shards int) Options {
	return Options{
		Shards: shards,
		Unfit: func() error {
			if u.Load() {
				return errors.New("Redis does not answer")
			}
			return nil
		},
		Describe: func() (m wire.Member) {
			if u.Load() {
				m.Problem = "Redis does not answer"
			}
			return m
		},
	}
}

// An owner loses Redis, which another process reaches. Then both lose it. Fails if the owner
// keeps its shards; if it takes them back once it reaches Redis; or if shards move while
// nobody can work.
func TestL13_AnOwnerThatCannotWorkHandsOver(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			s, j := startNATS(t), &journal{}
			var ofA, ofB unfit
			a := s.member(j, "a", ofA.can(shards))
			until(t, "a owns all", func() bool { return j.loads()["a"] == shards })
			b := s.member(j, "b", ofB.can(shards))
			if shards > 1 {
				j.awaitLoads(t, map[string]int{"a": 2, "b": 2})
			}
			awaitSettled(t, a, "b")
			awaitSettled(t, b, "a")
			ofA.Store(true)
			until(t, "b owns all", func() bool { return j.loads()["b"] == shards && len(j.owners()) == shards })
			s.stays(j, "b")
			ofB.Store(true)
			s.stays(j, "b")
			ofA.Store(false)
			until(t, "a owns all", func() bool { return j.loads()["a"] == shards && len(j.owners()) == shards })
			if got := a.Status(0).Lost + b.Status(0).Lost; got != 0 {
				t.Errorf("%d shards were lost", got)
			}
		})
	}
}

// Fails if an owner that cannot work releases its shard before its entry says why: the successor
// could hand the shard back.
func TestL13_AnOwnerThatCannotWorkSaysSoFirst(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of unfit
	a := s.member(j, "a", of.can(1), func(s *seams) { s.timing.roster.Refresh = limit })
	until(t, "a owns", func() bool { return a.Status(0).Role == Owner })
	s.member(j, "b", Options{})
	until(t, "b is listed", func() bool { a.roster.Refresh(t.Context()); return len(a.Members()) == 2 })
	awaitSettled(t, a, "b")
	changes, err := s.connect().SubscribeSync("$KV.LAPSE_MEMBERS.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := changes.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	of.Store(true)
	j.awaitOwner(t, "b")
	said := false
	for {
		m, err := changes.NextMsg(limit)
		if err != nil {
			t.Fatal(err)
		}
		said = said || strings.HasSuffix(m.Subject, "."+wire.MemberKey("a")) && strings.Contains(string(m.Data), "Redis does not answer")
		var l wire.Lease
		if strings.HasSuffix(m.Subject, "."+wire.LeaseKey(0)) && json.Unmarshal(m.Data, &l) == nil && l.Owner == "" {
			break
		}
	}
	if !said {
		t.Error("the entry of a did not say so before the release")
	}
}

// The work of an owner that cannot work does not end. Fails if the owner waits for it, or lets
// it go on.
func TestL13_WorkThatHangs(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of unfit
	hangs, held := make(chan struct{}), make(chan *Held, 1)
	soon := func(s *seams) { s.timing.share.hangs = 100 * ms }
	a := s.prepare("a", of.can(1), patient, sharesSoon, soon).run(func(ctx context.Context, h *Held) error {
		held <- h
		<-hangs
		return ctx.Err()
	})
	until(t, "a owns", func() bool { return a.Status(0).Role == Owner })
	s.member(j, "b", Options{})
	awaitSettled(t, a, "b")
	of.Store(true)
	j.awaitOwner(t, "b")
	if err := (<-held).OK(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("OK of the work that hangs: %v", err)
	}
	close(hangs)
	until(t, "a stands by", func() bool { return a.Status(0).Lease.Owner == "b" })
	s.stays(j, "b")
	a.log.expect(t, "handed the shard over to=b", 1)
	a.log.expect(t, "WARN", 0)
}

// Nobody reaches Redis, each notices at another time, and each believes for a while that the
// others reach it. Fails if the processes take the shard in turns.
func TestL13_NobodyCanWork(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of [3]unfit
	for i, name := range []string{"a", "b", "c"} {
		p := s.member(j, name, of[i].can(1), func(s *seams) { s.timing.share.unfit = 8 * time.Second })
		until(t, name+" has joined", func() bool { return p.Status(0).Role != Starting })
	}
	owner := j.awaitOwner(t, "a", "b", "c").who
	for i := range of {
		of[i].Store(true)
		s.awaitBeats(owner, 2)
	}
	s.awaitBeats(owner, 80) // eight seconds: each entry says so by then, also on a busy machine
	s.stays(j, owner)
	if got := len(j.all()); got != 1 {
		t.Errorf("%d ownerships: %v", got, j.story())
	}
}

// The owner dies. One standby cannot work, and comes first by its rank. Fails if it takes the
// shard before the other one does, or does not take it if there is no other.
func TestL13_AStandbyThatCannotWorkWaits(t *testing.T) {
	s, j := startNATS(t), &journal{}
	all := map[string]*process{}
	var of unfit
	of.Store(true)
	for i, name := range []string{"a", "b", "c"} {
		opts := Options{}
		if name == "c" {
			opts = of.can(1)
			opts.Describe = func() wire.Member { return wire.Member{} } // its entry does not say so yet
		}
		describe := opts.Describe
		opts.Describe = func() (m wire.Member) {
			if describe != nil {
				m = describe()
			}
			m.Started = wire.Time(1000 + i)
			return m
		}
		all[name] = s.prepare(name, opts, sharesSoon, slowToSuspect, func(s *seams) { s.timing.watch.unfit = 10 * time.Second }).run(j.own(name))
		until(t, name+" has joined", func() bool { return all[name].Status(0).Role != Starting })
	}
	j.awaitOwner(t, "a")
	until(t, "c knows all", func() bool { members, _ := all["c"].roster.Alive(); return len(members) == 3 })
	until(t, "b knows all", func() bool { members, _ := all["b"].roster.Alive(); return len(members) == 3 })
	all["a"].nc.Close()
	j.awaitOwner(t, "b")
	all["b"].leave()
	j.awaitOwner(t, "c")
}
