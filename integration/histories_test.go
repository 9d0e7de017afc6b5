package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// number returns the number in an environment variable, or the usual one.
func number(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: use a number from 1", variable, text)
	}
	return n
}

// TestAll_RandomHistories: random histories are played, many at a time, half of them on redis-server and half on the
// embedded one. On that the test then sets the clock to the deadlines of the remaining documents. The histories have
// every operation and configuration, and many messages within a few milliseconds of a deadline. Outcomes, events and
// reads must be those of the oracle. The test shortens a history that fails, and prints it as a scenario.
// LAPSE_HISTORIES is the number of histories (18 if it is not set), LAPSE_SEED the first seed (a random one).
//
// It fails if a deadline is compared by < instead of <=; if a write that meets an expired
// document publishes no event for it, or publishes it after its own rejection; if a
// configuration counts from another message on; if the index lacks documents; if an event
// or an outcome is missing or published twice.
func TestAll_RandomHistories(t *testing.T) {
	t.Parallel()
	n := number(t, "LAPSE_HISTORIES", 18)
	first := number(t, "LAPSE_SEED", 1+rand.IntN(1<<30))
	t.Logf("LAPSE_SEED=%d", first)
	st := newStage(t)
	seeds := make(chan int, n)
	for i := range n {
		seeds <- first + i
	}
	close(seeds)
	var sum tally
	var failed atomic.Int64
	var workers sync.WaitGroup
	play := func(seed int) {
		p, err := st.play(t.Context(), histories.Example(seed), seed%2 == 0)
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, p.log.String())
			return
		}
		sum.add(p)
		if len(p.findings) > 0 {
			if failed.Add(1) == 1 { // to shorten a history takes time: only the first
				p = st.shrink(t.Context(), p)
			}
			fail(t, p, fmt.Sprintf("seed %d", seed))
		}
	}
	// More at a time starve the other tests of the process: a proxy of theirs waits for seconds then.
	for range min(n, 3*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for seed := range seeds {
				play(seed)
			}
		})
	}
	workers.Wait()
	// On a busy machine all messages may miss their deadline: then play more, one at a time.
	for more := range 60 {
		if n < 18 || sum.met() {
			break
		}
		play(first + n + more)
	}
	t.Log(sum.String())
	if n >= 18 && !sum.met() {
		t.Error("no message was stamped within a millisecond of a deadline")
	}
}

// tally sums up the plays.
type tally struct {
	mu                                         sync.Mutex
	plays, messages, expiries, rejected, reads int
	// messages by their distance from a deadline, in milliseconds
	at map[int]int
}

// met reports whether a message was stamped within a millisecond of a deadline.
func (s *tally) met() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[-1]+s.at[0]+s.at[1] > 0
}

func (s *tally) add(p *play) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[int]int{}
	}
	s.plays++
	s.reads += p.reads
	s.messages += int(p.result.Model.Seq())
	s.expiries += len(p.result.Model.Expiries)
	s.rejected += len(p.result.Model.Rejections)
	for i, st := range p.steps {
		if st.of > 0 && st.subject != end {
			seconds := (st.after + 500) / 1000
			s.at[int(p.stamps[i]-p.stamps[st.of-1])-seconds*1000]++
		}
	}
}

func (s *tally) String() string {
	return fmt.Sprintf("%d histories: %d messages, %d expiry events, %d rejections, %d reads while they ran; %d "+
		"messages were stamped 1 ms before a deadline, %d at it, %d 1 ms after it",
		s.plays, s.messages, s.expiries, s.rejected, s.reads, s.at[-1], s.at[0], s.at[1])
}

// fail fails the test with a scenario and its findings.
func fail(t *testing.T, p *play, what string) {
	t.Helper()
	s := p.scenario
	s.comments = []string{what + ": the findings when it was played:"}
	for _, f := range p.findings {
		s.comments = append(s.comments, strings.Split(strings.TrimSpace(f), "\n")...)
	}
	for i := range s.steps {
		s.steps[i].status = p.outcomes[i].Status
	}
	path := filepath.Join(t.ArtifactDir(), strings.ReplaceAll(what, " ", "-")+".txt")
	if err := os.WriteFile(path, []byte(s.String()), 0o600); err != nil {
		t.Error(err)
	}
	t.Errorf("lapse and the oracle differ on a history (go test -artifacts keeps it; put it into %s once you "+
		"understand it):\n%s", scenarioDir, s)
}

// shrink leaves out lines as long as the play still fails. It tries several ways at a
// time, for a minute.
func (st *stage) shrink(ctx context.Context, p *play) *play {
	deadline := time.Now().Add(time.Minute)
	for parts := 2; time.Now().Before(deadline); {
		n := len(p.steps)
		parts = min(parts, n)
		smaller := make([]*play, parts)
		var all sync.WaitGroup
		for i := range parts {
			s, ok := p.without(n*i/parts, n*(i+1)/parts)
			if !ok {
				continue
			}
			all.Go(func() {
				if q, err := st.play(ctx, s, p.mini != nil); err == nil && len(q.findings) > 0 {
					smaller[i] = q
				}
			})
		}
		all.Wait()
		found := false
		for _, q := range smaller {
			if q != nil && len(q.steps) < len(p.steps) {
				p, found = q, true
			}
		}
		switch {
		case found:
			parts = max(2, parts-1)
		case parts == n || parts >= 16:
			return p
		default:
			parts *= 2
		}
	}
	return p
}

// without returns a play's scenario without some lines. The others keep their times.
func (p *play) without(from, to int) (scenario, bool) {
	s := scenario{}
	line := map[int]int{} // the new numbers of the lines that stay, by the old ones
	var last time.Time
	for i, st := range p.steps {
		if i >= from && i < to {
			continue
		}
		if st.of > 0 && line[st.of] > 0 {
			st.of = line[st.of]
		} else {
			st.of, st.after = 0, 0
			if len(s.steps) > 0 {
				st.after = int(p.sentAt[i].Sub(last) / time.Millisecond)
			}
		}
		for name, values := range st.header {
			for _, v := range values {
				if m := etagPattern.FindStringSubmatch(v); m != nil {
					of, _ := strconv.Atoi(m[1])
					if line[of] == 0 {
						return s, false
					}
					h := map[string][]string{}
					for k, v := range st.header {
						h[k] = v
					}
					h[name] = []string{fmt.Sprintf("#%d", line[of])}
					st.header = h
				}
			}
		}
		s.steps = append(s.steps, st)
		line[i+1] = len(s.steps)
		last = p.sentAt[i]
	}
	return s, len(s.steps) > 0
}
