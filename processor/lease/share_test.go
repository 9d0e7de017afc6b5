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

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

var ids = []string{"a", "b", "c", "d", "e"}

// views are views in which any member may own any shard.
var views = rapid.Custom(func(t *rapid.T) view {
	v := view{Revision: 5}
	for _, id := range ids[:rapid.IntRange(1, len(ids)).Draw(t, "members")] {
		m := fit(id)
		if rapid.IntRange(0, 4).Draw(t, "problem") == 0 {
			m.Problem = "it is slow"
		}
		v.Members = append(v.Members, m)
	}
	for range rapid.IntRange(1, 12).Draw(t, "shards") {
		v.Owners = append(v.Owners, v.Members[rapid.IntRange(0, len(v.Members)-1).Draw(t, "owner")].ID)
	}
	return v
})

// fit is the entry of a member for which others release shards.
func fit(id string) listed {
	return listed{Member: wire.Member{ID: id, Started: 1, Seen: 1001}, Revision: 9}
}

// settle is how long fit has run.
const settle = time.Second

// fitMembers are so many entries.
func fitMembers(n int) (members []listed) {
	for _, id := range ids[:n] {
		members = append(members, fit(id))
	}
	return members
}

// spread is the difference between the members with the most and the fewest shards.
func (v view) spread() int {
	load, all := v.load(), []int{}
	for _, m := range v.Members {
		all = append(all, load[m.ID])
	}
	return slices.Max(all) - slices.Min(all)
}

// taken is the view after the member of the first rank has taken a shard.
func (v view) taken(shard int, loser string, silent bool) view {
	for _, m := range v.Members {
		if rank, _ := v.Rank(shard, m.ID, loser, silent); rank == 0 {
			v.Owners = slices.Clone(v.Owners)
			v.Owners[shard] = m.ID
			return v
		}
	}
	return v
}

// Fails if two members have the same rank; if the process that has lost the shard comes before another one, or a
// member with a problem before one without; or if the shards of a dead owner do not spread.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		shard := rapid.IntRange(0, len(v.Owners)-1).Draw(t, "shard")
		silent := rapid.Bool().Draw(t, "silent")
		loser := v.Owners[shard]
		if !silent {
			v.Owners[shard] = ""
		}
		ranks := make([]int, len(v.Members))
		line := make([]listed, len(v.Members))
		for i, m := range v.Members {
			ranks[i], _ = v.Rank(shard, m.ID, loser, silent)
			line[ranks[i]] = m
		}
		slices.Sort(ranks)
		for i, r := range ranks {
			if r != i {
				t.Fatalf("ranks %v", ranks)
			}
		}
		if line[len(line)-1].ID != loser {
			t.Fatalf("%s comes last, and %s has lost it", line[len(line)-1].ID, loser)
		}
		for i, m := range line[:len(line)-1] {
			if i > 0 && line[i-1].Problem != "" && m.Problem == "" {
				t.Fatalf("%v", line)
			}
		}
	})
	if got, ahead := (view{Owners: []string{""}}).Rank(0, "alone", "", false); got != 0 || ahead {
		t.Errorf("rank %d where nobody else is known", got)
	}
}

// A member dies, and all see the same. Fails if its shards make the others more uneven than they were.
func TestTheShardsOfADeadOwnerSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := view{Members: fitMembers(rapid.IntRange(2, len(ids)).Draw(t, "members"))}
		for range rapid.IntRange(1, 16).Draw(t, "shards") {
			v.Owners = append(v.Owners, rapid.SampledFrom(v.Members).Draw(t, "owner").ID)
		}
		dead := v.Members[0].ID
		left := func(v view) int { v.Members = v.Members[1:]; return v.spread() }
		before := left(v)
		var own []int
		for shard, id := range v.Owners {
			if id == dead {
				own = append(own, shard)
			}
		}
		for _, shard := range rapid.Permutation(own).Draw(t, "order") {
			v = v.taken(shard, dead, true)
		}
		if v.load()[dead] > 0 || left(v) > max(before, 1) {
			t.Fatalf("%d, and then %v", before, v.Owners)
		}
	})
}

// Fails if the shards are uneven in the end, if there are more moves than shards, or if an even view makes a move.
func TestReleasesEndWhenTheShardsAreSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := views.Draw(t, "view")
		for i := range v.Members {
			v.Members[i].Problem = ""
		}
		for moves := 0; ; moves++ {
			var from string
			var released int
			for _, m := range v.Members {
				if shard, found := v.Surplus(m.ID, settle); found {
					if from != "" || v.Owners[shard] != m.ID {
						t.Fatalf("%s releases shard %d, and %q another one, of %v", m.ID, shard, from, v.Owners)
					}
					from, released = m.ID, shard
				}
			}
			if from == "" {
				break
			}
			if moves > len(v.Owners) {
				t.Fatalf("%d moves", moves)
			}
			v.Owners[released] = ""
			for _, m := range v.Members {
				if _, more := v.Surplus(m.ID, settle); more {
					t.Fatalf("%s releases another shard, of %v", m.ID, v.Owners)
				}
			}
			v = v.taken(released, from, false)
		}
		if v.spread() > 1 {
			t.Fatalf("left: %v", v.Owners)
		}
	})
}

// Fails if an owner releases a shard that nobody is to have.
func TestNoNeedlessReleases(t *testing.T) {
	with := func(change func(b *listed)) []listed {
		members := fitMembers(2)
		change(&members[1])
		return members
	}
	for name, tt := range map[string]struct {
		owners  []string
		members []listed
		want    bool
	}{
		"a second joins":                 {[]string{"a", "a", "a", "a"}, fitMembers(2), true},
		"one shard":                      {[]string{"a"}, fitMembers(2), false},
		"one more":                       {[]string{"a", "a", "b"}, fitMembers(2), false},
		"a shard without owner":          {[]string{"a", "a", "a", ""}, fitMembers(2), false},
		"another has more":               {[]string{"a", "a", "a", "z", "z", "z", "z"}, fitMembers(2), false},
		"another is to release first":    {[]string{"a", "a", "A", "A"}, fitMembers(2), false},
		"it has a problem":               {[]string{"a", "a"}, with(func(b *listed) { b.Problem = "it is slow" }), false},
		"it has just started":            {[]string{"a", "a"}, with(func(b *listed) { b.Seen = 999 }), false},
		"it was not refreshed since":     {[]string{"a", "a"}, with(func(b *listed) { b.Revision = 5 }), false},
		"a third one was not":            {[]string{"a", "a"}, append(fitMembers(2), listed{}), false},
		"it was refreshed, and has none": {[]string{"a", "a"}, with(func(b *listed) { b.Revision = 6 }), true},
		"nobody":                         {[]string{"a", "a"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{Owners: tt.owners, Revision: 5, Members: tt.members}
			if _, got := v.Surplus("a", settle); got != tt.want {
				t.Errorf("a releases one: %t", got)
			}
		})
	}
}

// Fails if a member that would have too many shards does not stand back for another, or one does that would not.
func TestWhoHasTooManyShardsStandsBack(t *testing.T) {
	v := view{Owners: []string{"a", "a", "b", "b", ""}, Members: fitMembers(3)}
	for me, want := range map[string]bool{"a": true, "b": true, "c": false} {
		if _, ahead := v.Rank(4, me, "a", false); ahead != want {
			t.Errorf("%s is ahead: %t", me, ahead)
		}
	}
	v.Owners = []string{"a", "a", "b", "c", ""}
	for me, want := range map[string]bool{"a": true, "b": false, "c": false} {
		if _, ahead := v.Rank(4, me, "a", false); ahead != want {
			t.Errorf("a has two shards, b and c one each: %s is ahead: %t", me, ahead)
		}
	}
	v.Owners[3] = "b"
	v.Members[2].Problem = "it is slow"
	if _, ahead := v.Rank(4, "b", "a", false); ahead {
		t.Error("b stands back for a member with a problem")
	}
}

// sharesSoon is for tests in which shards are released. What takes seconds takes milliseconds. Only
// the member of the first rank takes a shard, however busy the machine is.
func sharesSoon(s *seams) {
	s.timing.refresh, s.timing.settle, s.timing.unfit = 30*ms, 200*ms, 200*ms
	s.timing.standBack = limit
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

// Fails if a process that joins gets nothing, or if shards move on afterwards.
func TestShardsSpreadOverTheMembers(t *testing.T) {
	s, j := startNATS(t), &journal{}
	all := map[string]*process{}
	for i, name := range []string{"a", "b", "c"} {
		all[name] = s.member(j, name, Options{Shards: 6})
		j.awaitLoads(t, []map[string]int{{"a": 6}, {"a": 3, "b": 3}, {"a": 2, "b": 2, "c": 2}}[i])
		s.stays(j, "")
	}
	all["b"].leave()
	j.awaitLoads(t, map[string]int{"a": 3, "c": 3})
	s.stays(j, "")
	all["c"].leave()
	j.awaitLoads(t, map[string]int{"a": 6})
}

// Of three processes with two shards each one dies. Its entry stays for a while. Fails if the others do not share its
// shards.
func TestTheShardsOfAProcessThatDiesSpread(t *testing.T) {
	s, j := startNATS(t), &journal{}
	staysListed := func(s *seams) {
		s.timing.away = 3 * time.Second
		s.timing.silence = 5 * time.Second // noise on the machine does not make a standby suspect the owner
	}
	all := map[string]*process{}
	for i, name := range []string{"a", "b", "c"} {
		all[name] = s.prepare(name, Options{Shards: 6}, sharesSoon, staysListed).run(j.own(name))
		j.awaitLoads(t, []map[string]int{{"a": 6}, {"a": 3, "b": 3}, {"a": 2, "b": 2, "c": 2}}[i])
	}
	all["b"].nc.Close()
	j.awaitLoads(t, map[string]int{"a": 3, "c": 3})
	s.stays(j, "")
}

// Fails if the only shard moves because a process joins.
func TestTheOnlyShardStays(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{})
	until(t, "a owns it", func() bool { return j.loads()["a"] == 1 })
	s.member(j, "b", Options{})
	until(t, "b is fit", func() bool { return len(a.view().Fit("a", a.timing.settle)) == 1 })
	s.stays(j, "a")
}

// An entry without a process stands for a member that dies before a shard is released for it. Fails if the shard stays
// without an owner, or if the owner releases shards again and again.
func TestAMemberThatDoesNotTakeAShard(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{Shards: 2}, func(s *seams) { s.timing.standBack, s.timing.away = 100*ms, limit })
	j.awaitLoads(t, map[string]int{"a": 2})
	if err := a.bucket.Put(t.Context(), wire.Member{ID: "ghost", Name: "ghost", Seen: wire.Time(limit)}); err != nil {
		t.Fatal(err)
	}
	until(t, "a releases a shard", func() bool { return len(j.all()) == 3 })
	j.awaitLoads(t, map[string]int{"a": 2})
	s.stays(j, "a")
	a.log.expect(t, "released the shard", 1)
}

// Two processes hear of a release at the same moment. Fails if the former owner takes the shard back.
func TestAFormerOwnerStandsBack(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{})
	j.awaitOwner(t, "a")
	b := s.member(j, "b", Options{}, func(s *seams) { s.timing.stall = limit })
	awaitKnown(t, b, "a", 1)
	until(t, "both are listed", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	a.shards[0].letGo(false)
	j.awaitOwner(t, "b")
	if got := a.Status(0).Lost; got != 0 {
		t.Errorf("a has lost it %d times", got)
	}
	a.log.expect(t, "WARN", 0)
}

// Fails if a process that leaves can be told to end its work, and so release its lease, before
// its entry says that it leaves.
func TestAProcessThatLeavesSaysSoFirst(t *testing.T) {
	s := startNATS(t)
	p := s.prepare("a", Options{}, patient, func(s *seams) { s.timing.flush = limit })
	working, said := make(chan struct{}), make(chan string, 1)
	p.run(func(ctx context.Context, _ *Held) error {
		close(working)
		<-ctx.Done()
		m, err := p.bucket.Members(context.WithoutCancel(ctx))
		said <- fmt.Sprint(m[0].Problem, err)
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

// Processes join and die, or leave, before they have run for settle. Fails if they get shards.
func TestAMemberThatFlapsGetsNothing(t *testing.T) {
	s, j := startNATS(t), &journal{}
	settlesLate := func(s *seams) { s.timing.settle = limit }
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

// Fails if a process that is not ready is given a shard, or does not take what nobody owns.
func TestAMemberThatIsNotReady(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.member(j, "a", Options{Shards: 4})
	j.awaitLoads(t, map[string]int{"a": 4})
	slow := func() wire.Member { return wire.Member{Problem: "it is slow"} }
	b := s.member(j, "b", Options{Shards: 4, Describe: slow})
	until(t, "b is listed", func() bool { return b.Status(3).Role == Standby && len(a.Members()) == 2 })
	s.stays(j, "a")
	a.leave()
	j.awaitLoads(t, map[string]int{"b": 4})
}

// A process stands still and loses its shards, and continues. Fails if it takes them back, or
// is given more than its part later.
func TestAProcessThatStoodStillGetsItsPartOnce(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{Shards: 4}, sharesSoon, slowToSuspect).run(j.own("a"))
	j.awaitLoads(t, map[string]int{"a": 4})
	frozen := newGate(t)
	stands := Options{Shards: 4, Describe: func() wire.Member { frozen.pass(); return wire.Member{} }}
	s.prepare("b", stands, sharesSoon, slowToSuspect, frozen.freezes).run(j.own("b"))
	j.awaitLoads(t, map[string]int{"a": 2, "b": 2})
	awaitKnown(t, a, "b", 2)
	frozen.close()
	until(t, "a owns all", func() bool { return j.loads()["a"] == 4 })
	frozen.open()
	j.awaitLoads(t, map[string]int{"a": 2, "b": 2})
	s.stays(j, "")
}

// triesAgainSoon is for a test in which any process may take a shard: two that wait for each other go on soon, and so
// does an owner to which a shard that it has released came back.
func triesAgainSoon(s *seams) { s.timing.standBack, s.timing.again = 200*ms, time.Second }

// The bucket is deleted in the moment in which a process joins. That process may take shards,
// because it finds no lease. Fails if the shards do not spread in the end.
func TestTheBucketIsLostBeforeARelease(t *testing.T) {
	s, j := startNATS(t), &journal{}
	s.member(j, "a", Options{Shards: 4}, asksAgain, triesAgainSoon)
	j.awaitLoads(t, map[string]int{"a": 4})
	if err := s.js().DeleteKeyValue(t.Context(), "LAPSE_MEMBERS"); err != nil {
		t.Fatal(err)
	}
	s.member(j, "b", Options{Shards: 4}, asksAgain, triesAgainSoon)
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
func TestAnOwnerThatCannotWorkReleasesItsShards(t *testing.T) {
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

// Fails if an owner that cannot work releases its shard before its entry says why: another could
// release it for that owner again.
func TestAnOwnerThatCannotWorkSaysSoFirst(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of unfit
	a := s.member(j, "a", of.can(1), func(s *seams) { s.timing.unfit = 0 })
	until(t, "a owns", func() bool { return a.Status(0).Role == Owner })
	s.member(j, "b", Options{})
	until(t, "b is listed", func() bool { return len(a.Members()) == 2 })
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
		said = said || strings.HasSuffix(m.Subject, "."+wire.MemberKey("a")) &&
			strings.Contains(string(m.Data), "Redis does not answer")
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
func TestWorkThatHangs(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of unfit
	hangs, held := make(chan struct{}), make(chan *Held, 1)
	a := s.prepare("a", of.can(1), patient, sharesSoon).run(func(ctx context.Context, h *Held) error {
		held <- h
		<-hangs
		return ctx.Err()
	})
	until(t, "a owns", func() bool { return a.Status(0).Role == Owner })
	s.member(j, "b", Options{})
	of.Store(true)
	j.awaitOwner(t, "b")
	if err := (<-held).OK(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("OK of the work that hangs: %v", err)
	}
	close(hangs)
	until(t, "a stands by", func() bool { return a.Status(0).Lease.Owner == "b" })
	s.stays(j, "b")
	a.log.expect(t, "released the shard", 1)
	a.log.expect(t, "WARN", 0)
}

// Nobody reaches Redis, each notices at another time, and each believes for a while that the
// others reach it. Fails if the processes take the shard in turns.
func TestNobodyCanWork(t *testing.T) {
	s, j := startNATS(t), &journal{}
	var of [3]unfit
	for i, name := range []string{"a", "b", "c"} {
		p := s.member(j, name, of[i].can(1), func(s *seams) { s.timing.unfit = 8 * time.Second })
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

// The owner dies. One standby cannot work. Fails if it takes the shard before the other one does, or
// does not take it if there is no other.
func TestAStandbyThatCannotWorkWaits(t *testing.T) {
	s, j := startNATS(t), &journal{}
	all := map[string]*process{}
	var of unfit
	for _, name := range []string{"c", "a", "b"} {
		opts := Options{}
		if name == "a" {
			opts = of.can(1)
			opts.Describe = nil // its entry does not say so yet
			of.Store(true)
		}
		waitsLong := func(s *seams) { s.timing.standBack = 10 * time.Second }
		all[name] = s.prepare(name, opts, sharesSoon, slowToSuspect, waitsLong).run(j.own(name))
		until(t, name+" has joined", func() bool { return all[name].Status(0).Role != Starting })
	}
	j.awaitOwner(t, "c")
	for _, name := range []string{"a", "b"} {
		until(t, name+" knows all", func() bool { return len(all[name].roster.Alive()) == 3 })
	}
	all["c"].nc.Close()
	j.awaitOwner(t, "b")
	all["b"].leave()
	j.awaitOwner(t, "a")
}

// Fails if a process that has taken back what it released for another one releases a shard again at once, or if it does
// not once another one has taken that.
func TestAReleaseThatCameBack(t *testing.T) {
	v := view{Owners: []string{"a", "b"}}
	for name, tt := range map[string]struct {
		given given
		want  bool
	}{
		"it has released none":                {given{}, false},
		"it is its own again":                 {given{0, time.Now()}, true},
		"it is its own again, since long ago": {given{0, time.Now().Add(-time.Hour)}, false},
		"another one has taken it":            {given{1, time.Now()}, false},
	} {
		if got := tt.given.cameBack(v, "a", time.Minute); got != tt.want {
			t.Errorf("%s: it waits: %t", name, got)
		}
	}
}
