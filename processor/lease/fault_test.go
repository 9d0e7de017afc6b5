package lease

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// The system stops a process, which goes on after another has taken over. Fails if a beat
// that lay in a buffer counts as fresh, or if OK does not read the clocks.
func TestAProcessThatWasStoppedVerifiesFirst(t *testing.T) {
	s, j := startNATS(t), &journal{}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LAPSE_LEASE_HELPER="+s.url())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	type answer struct {
		asked    int64
		ok, lost bool
	}
	answers := make(chan answer, 1<<20)
	go func() {
		defer close(ended)
		defer close(answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var a answer
			if n, _ := fmt.Sscan(lines.Text(), &a.asked, &a.ok, &a.lost); n == 3 {
				answers <- a
			}
		}
		_ = cmd.Wait()
	}()
	next := func() answer {
		t.Helper()
		select {
		case a, ok := <-answers:
			if !ok {
				t.Fatal("the helper has ended")
			}
			return a
		case <-time.After(limit):
			t.Fatal("no answer of the helper")
		}
		return answer{}
	}
	if a := next(); !a.ok {
		t.Fatalf("the first answer: %+v", a)
	}
	b := s.prepare("b", Options{}).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Lease.Owner == "helper" })
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	j.awaitOwner(t, "b")
	resumed := time.Now().UnixNano()
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for {
		a := next()
		if a.asked >= resumed && a.ok {
			t.Fatal("the helper goes on, though it has lost the lease")
		}
		if a.lost {
			break
		}
	}
	s.awaitBeats("b", 12)
	if got := j.all(); len(got) != 1 || b.Status(0).Lost != 0 {
		t.Errorf("the helper took the lease back: %+v", got)
	}
	_ = in.Close()
	<-ended
	b.leave()
}

// A standby stood still, and the beats of that time are lost. Fails if it counts the time as
// silence of the owner.
func TestAStandbyThatStoodStillListensAnew(t *testing.T) {
	s, j := startNATS(t), &journal{}
	s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	frozen := newGate(t)
	var lost atomic.Uint64
	deaf := func(s *seams) { s.deaf = func(beat wire.Beat) bool { return beat.Seq <= lost.Load() } }
	b := s.prepare("b", Options{}, frozen.freezes, deaf, slowToSuspect).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Lease.Owner == "a" })
	for range 3 {
		frozen.close()
		lost.Store(s.awaitBeats("a", 25)) // 2.5 s, in which b would suspect a
		frozen.open()
		s.awaitBeats("a", 3)
	}
	if got := j.all(); len(got) != 1 {
		t.Errorf("%d ownerships", len(got))
	}
}

func TestTheBucketIsMadeAnew(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}, patient, refreshOften, asksAgain).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	b := s.prepare("b", Options{}, patient, refreshOften, asksAgain).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Role == Standby })
	js := s.js()
	if err := js.DeleteKeyValue(t.Context(), "LAPSE_MEMBERS"); err != nil {
		t.Fatal(err)
	}
	until(t, "the owner has made it anew", func() bool {
		_, err := js.KeyValue(t.Context(), "LAPSE_MEMBERS")
		return err == nil && a.entry().Owner == "a"
	})
	until(t, "both are listed again", func() bool { return len(a.Members()) == 2 && len(b.Members()) == 2 })
	until(t, "nothing is wrong", func() bool { return a.Problem() == nil && b.Problem() == nil })
	if err := held.OK(t.Context()); err != nil {
		t.Error(err)
	}
	if got := j.all(); len(got) != 1 {
		t.Errorf("%d ownerships", len(got))
	}
	a.log.expect(t, "created the bucket of members again, because it was deleted", 1)
	b.log.expect(t, "created the bucket", 0)
	a.leave()
	j.awaitOwner(t, "b")
	b.log.expect(t, "reason=its owner released it", 1) // by the revision of the new bucket
}

// The owner and the bucket are lost at the same time.
func TestAStandbyMakesTheBucketAnewIfTheOwnerIsSilent(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	b := s.prepare("b", Options{}, asksAgain).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Role == Standby })
	a.nc.Close()
	if err := s.js().DeleteKeyValue(t.Context(), "LAPSE_MEMBERS"); err != nil {
		t.Fatal(err)
	}
	j.awaitOwner(t, "b")
	if e := b.entry(); e.Owner != "b" {
		t.Errorf("the bucket holds %+v", e)
	}
}

// Somebody removes or overwrites the lease, and the bucket stays.
func TestALeaseThatIsRemovedIsPutBack(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	kv, err := s.js().KeyValue(t.Context(), "LAPSE_MEMBERS")
	if err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func() error{
		"deleted":     func() error { return kv.Delete(t.Context(), wire.LeaseKey(0)) },
		"purged":      func() error { return kv.Purge(t.Context(), wire.LeaseKey(0)) },
		"overwritten": func() error { _, err := kv.Put(t.Context(), wire.LeaseKey(0), []byte("{nothing")); return err },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		if err := held.Fenced(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e := a.entry(); e.Owner != "a" {
			t.Errorf("%s: the bucket holds %+v", name, e)
		}
	}
	a.leave()
}

// NATS restarts three times. Fails if Run ends, if an owner holds the lease meanwhile, or if
// no process verifies when the connection is back.
func TestWithoutNATSNobodyHolds(t *testing.T) {
	s, j := startNATS(t), &journal{}
	answersSoon := func(s *seams) { s.timing.verify = time.Second }
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = s.prepare(name, Options{}, answersSoon).run(j.own(name))
	}
	for _, p := range all {
		until(t, "all have joined", func() bool { return p.Status(0).Role != Starting })
	}
	for range 3 {
		var owner stint
		until(t, "one owner holds", func() bool {
			owner = j.awaitOwner(t, "a", "b", "c")
			return all[owner.who].Status(0).Held
		})
		s.stop()
		until(t, "nobody holds", func() bool {
			for _, p := range all {
				if p.Status(0).Held {
					return false
				}
			}
			return true
		})
		until(t, "OK names the reason", func() bool { return errors.Is(owner.held.OK(t.Context()), errDown) })
		until(t, "all name the problem", func() bool {
			for _, p := range all {
				if err := p.Problem(); err == nil || !strings.Contains(err.Error(), errDown.Error()) {
					return false
				}
			}
			return true
		})
		s.start()
		until(t, "all is well", func() bool {
			for _, p := range all {
				if p.Problem() != nil {
					return false
				}
			}
			return true
		})
		until(t, "OK", func() bool { return j.awaitOwner(t, "a", "b", "c").held.OK(t.Context()) == nil })
	}
	t.Logf("%d ownerships over 3 restarts", len(j.all()))
}

// An owner seems silent and its lease cannot be read, so the standby does not take over.
// Then the standby hears the owner again. Fails if its problem stays, because it never reads
// the lease again.
func TestAProblemEndsWithItsCause(t *testing.T) {
	s, j := startNATS(t), &journal{}
	s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	var deaf, works atomic.Bool
	var reads atomic.Int64
	b := s.prepare("b", Options{}, neverStalls, slowToSuspect, func(s *seams) {
		s.deaf = func(wire.Beat) bool { return deaf.Load() }
		s.readFail = func() error {
			if reads.Add(1) > 1 && !works.Load() { // by the first it learns who the owner is
				return errors.New("it fails")
			}
			return nil
		}
	}).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Lease.Owner == "a" })
	deaf.Store(true)
	until(t, "b has a problem with the lease", func() bool { return b.Status(0).Problem != nil })
	deaf.Store(false)
	s.awaitBeats("a", 3)
	if b.Status(0).Problem == nil {
		t.Error("the problem went away, though leases cannot be read")
	}
	works.Store(true)
	until(t, "all is well", func() bool { return b.Problem() == nil })
	if got := j.all(); len(got) != 1 {
		t.Errorf("%d ownerships", len(got))
	}
}

// A standby has to take over, and the bucket refuses the change. Fails if a read of the lease
// ends the problem, or if each attempt is logged.
func TestAStandbyThatCannotTakeOverSaysSo(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	s.limitMessages(10) // before b may suspect a because of noise
	b := s.prepare("b", Options{}, neverStalls, slowToSuspect).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Lease.Owner == "a" })
	a.nc.Close()
	until(t, "b has a problem", func() bool { return b.Status(0).Problem != nil })
	tick := time.NewTicker(5 * ms)
	defer tick.Stop()
	for range 200 {
		<-tick.C
		if b.Status(0).Problem == nil {
			t.Fatal("the problem went away, though the lease was not taken")
		}
	}
	s.limitMessages(-1)
	j.awaitOwner(t, "b")
	until(t, "all is well", func() bool { return b.Problem() == nil })
	b.log.expect(t, "the lease cannot be read or changed", 1)
	b.log.expect(t, "the lease can be read and changed again", 1)
}

// In four groups of three processes one stands still for 600 ms, three times. Fails if the
// owner changes more often than processes stand still.
func TestProcessesDoNotFight(t *testing.T) {
	s := startNATS(t)
	const groups, stalls = 4, 3
	for group := range groups {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			t.Parallel()
			s, j := s.in(t), &journal{}
			prefix := wire.Prefix(fmt.Sprintf("group%d", group))
			var gates []*gate
			for _, name := range []string{"a", "b", "c"} {
				g := newGate(t)
				gates = append(gates, g)
				s.prepare(name, Options{Prefix: prefix}, g.freezes).run(j.own(name))
			}
			j.awaitOwner(t, "a", "b", "c")
			random := rand.New(rand.NewPCG(uint64(group), uint64(time.Now().UnixNano())))
			pass := func(d time.Duration) { <-time.After(d) } // a stall is a time, and nothing else
			for range stalls {
				g := gates[random.IntN(len(gates))]
				g.close()
				pass(600 * ms)
				g.open()
				pass(time.Duration(random.IntN(500)) * ms)
			}
			j.awaitOwner(t, "a", "b", "c")
			changes := len(j.all()) - 1
			t.Logf("%d changes of the owner over %d stalls", changes, stalls)
			if changes > stalls {
				t.Errorf("%d changes of the owner, and only %d stalls", changes, stalls)
			}
		})
	}
}

func TestMembers(t *testing.T) {
	s, j := startNATS(t), &journal{}
	opts := Options{Describe: func() wire.Member {
		return wire.Member{ID: "no", Version: "v1", HTTP: "http://x", Problem: "it is late", Applied: 7}
	}}
	const gone = 10 * time.Second
	a := s.prepare("a", opts, patient, refreshOften, func(s *seams) { s.timing.gone = gone })
	a.run(j.own("a"))
	j.awaitOwner(t, "a")
	b := s.prepare("b", opts, patient, refreshOften).run(j.own("b"))
	until(t, "b has joined", func() bool { return len(a.Members()) == 2 })
	for _, ghost := range []string{"ghost", "lively"} {
		if err := a.bucket.Put(t.Context(), wire.Member{ID: ghost, Name: ghost}); err != nil {
			t.Fatal(err)
		}
	}
	byID := func() map[string]wire.Member {
		found := map[string]wire.Member{}
		for _, m := range a.Members() {
			found[m.ID] = m
		}
		return found
	}
	until(t, "all are listed", func() bool { return len(byID()) == 4 && len(byID()["a"].Owns) == 1 })
	got := byID()["a"]
	if got.Name != "name of a" || got.Version != "v1" || got.HTTP != "http://x" || got.Problem != "it is late" ||
		got.Applied != 7 || got.Started == 0 || got.Seen < got.Started {
		t.Errorf("%+v", got)
	}
	if owns := byID()["b"].Owns; owns != nil {
		t.Errorf("b owns %v", owns)
	}
	var refreshed time.Time
	until(t, "the entry of a process that is gone is deleted", func() bool {
		if time.Since(refreshed) > gone/20 {
			refreshed = time.Now()
			if err := a.bucket.Put(t.Context(), wire.Member{ID: "lively", Name: "lively"}); err != nil {
				t.Fatal(err)
			}
		}
		_, there := byID()["ghost"]
		return !there
	})
	if len(byID()) != 3 {
		t.Errorf("%v are left", byID())
	}
	a.log.expect(t, "deleted the entry of a process that is gone name=ghost", 1)
	a.leave()
	until(t, "b lists itself and the lively one", func() bool { return len(b.Members()) == 2 })
	b.leave()
	kv, err := s.js().KeyValue(t.Context(), "LAPSE_MEMBERS")
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.Values() != 2 { // the lively one and the lease, and no marker
		t.Errorf("%d messages are left", status.Values())
	}
}

// Fails if Remove removes an entry that was refreshed since it was listed.
func TestAnEntryThatWasRefreshedIsNotDeleted(t *testing.T) {
	s := startNATS(t)
	p := s.prepare("a", Options{})
	if err := p.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.bucket.Put(t.Context(), wire.Member{ID: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := p.bucket.Members(t.Context())
	if err != nil || len(list) != 1 || list[0].Revision != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for revision, left := range []int{1: 1, 2: 0} {
		if revision == 0 {
			continue
		}
		if err := p.bucket.Remove(t.Context(), "b", uint64(revision)); err != nil {
			t.Fatal(err)
		}
		if list, err := p.bucket.Members(t.Context()); err != nil || len(list) != left {
			t.Errorf("after the removal up to %d: %+v, %v", revision, list, err)
		}
	}
}

// A bucket that refuses all messages stands for a full disk.
func TestARefreshThatIsNotStoredShows(t *testing.T) {
	s, j := startNATS(t), &journal{}
	answersSoon := func(s *seams) { s.timing.verify = time.Second }
	a := s.prepare("a", Options{}, refreshOften, answersSoon).run(j.own("a"))
	held := j.awaitOwner(t, "a").held
	until(t, "it is stored", func() bool { at, err := a.Stored(); return err == nil && !at.IsZero() })
	s.limitMessages(10)
	until(t, "the problem shows", func() bool {
		err := a.Problem()
		return err != nil && strings.Contains(err.Error(), "bucket LAPSE_MEMBERS: ") &&
			strings.Contains(err.Error(), "exceeds maximum allowed")
	})
	if err := held.Fenced(t.Context()); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("Fenced: %v", err)
	}
	until(t, "that the lease cannot be renewed shows", func() bool { return a.Status(0).Problem != nil })
	s.limitMessages(-1)
	until(t, "all is well again", func() bool { return a.Problem() == nil })
	if err := verdict(t, held.Fenced); err != nil {
		t.Error(err)
	}
	a.log.expect(t, "JetStream does not store the entry of this process", 1)
	a.log.expect(t, "JetStream stores the entry of this process again", 1)
	if got := j.all(); len(got) != 1 {
		t.Errorf("%d ownerships", len(got))
	}
}

// Clients publish other messages on the subject of beats. Fails if one of them matters.
func TestBeatsThatAreNoneAreIgnored(t *testing.T) {
	s, j := startNATS(t), &journal{}
	a := s.prepare("a", Options{}).run(j.own("a"))
	j.awaitOwner(t, "a")
	b := s.prepare("b", Options{}, patient).run(j.own("b"))
	until(t, "b stands by", func() bool { return b.Status(0).Role == Standby })
	nc := s.connect()
	own, err := json.Marshal(wire.Beat{Owner: "a", Seq: 1 << 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}", "null", "[", `{"owner":7}`, `{"owner":"z","seq":-1}`,
		`{"owner":"z","revision":99}`, `{"owner":"z","released":true}`, string(own)} {
		if err := nc.Publish("lapse.beat.0", []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitBeats("a", 8)
	if got := j.all(); len(got) != 1 || b.Status(0).Lease.Owner != "a" {
		t.Errorf("%d ownerships, %+v, %+v", len(got), a.Status(0), b.Status(0))
	}
	until(t, "the owner holds the lease", func() bool { return a.Status(0).Held })
}
