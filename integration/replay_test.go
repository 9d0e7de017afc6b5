package integration

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestAll_Scenarios: each scenario in testdata has the outcomes and expirations that it gives, on the embedded Redis
// and on redis-server, and the oracle agrees.
//
// It fails if lapse breaks a rule of the contract that a scenario is about. The first lines
// of a scenario say which rule.
func TestAll_Scenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txt"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenarios (%v), want at least 5", len(files), err)
	}
	st := newStage(t)
	var all sync.WaitGroup
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		s = s.stretched(stretch)
		for _, mini := range []bool{true, false} {
			what := fmt.Sprintf("%s (embedded Redis: %v)", filepath.Base(file), mini)
			all.Go(func() {
				if err := st.replay(t, s, mini); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
	}
	all.Wait()
}

// stretch is by how much the times and the TTLs of the scenarios are multiplied: on a busy
// machine many messages are late.
const stretch = 3

// tolerance is how far off its time a message may be. A message that is further off may
// meet another state than the scenario gives.
const tolerance = stretch * 150 * time.Millisecond

// agoPattern is an instant in a header that is before the message.
var agoPattern = regexp.MustCompile(`@-\d+`)

var ttlPattern = regexp.MustCompile(`"(?:ttl|defaultTtl)":[1-9][0-9]*`)

// stretched multiplies the times and the TTLs of a scenario.
func (s scenario) stretched(by int) scenario {
	s.steps = slices.Clone(s.steps)
	for i := range s.steps {
		st := &s.steps[i]
		st.after *= by
		st.header = maps.Clone(st.header)
		for name, values := range st.header {
			st.header[name] = slices.Clone(values)
			for i, v := range values {
				st.header[name][i] = agoPattern.ReplaceAllStringFunc(v, func(ago string) string {
					ms, _ := strconv.Atoi(ago[len("@-"):])
					return fmt.Sprint("@-", ms*by) // one to come lies beyond all limits, or before the next step
				})
			}
		}
		st.body = ttlPattern.ReplaceAllStringFunc(st.body, func(ttl string) string {
			name, text, _ := strings.Cut(ttl, ":")
			n, _ := strconv.Atoi(text)
			return fmt.Sprintf("%s:%d", name, n*by)
		})
	}
	return s
}

// replay plays a scenario and compares the outcomes and expirations with those that it
// gives. If they differ because a message was late, it plays the scenario again.
func (st *stage) replay(t *testing.T, s scenario, mini bool) error {
	const tries = 30
	for try := range tries {
		if try > 0 { // one at a time, so that the plays do not slow each other down
			st.again.Lock()
		}
		p, err := st.play(t.Context(), s, mini)
		if try > 0 {
			st.again.Unlock()
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, p.log.String())
		}
		if len(p.findings) > 0 {
			fail(t, p, "replay")
			return nil
		}
		diff := gocmp.Diff(s.String(), p.asPlayed().String())
		if !s.given || diff == "" {
			return nil
		}
		late := p.late()
		if late <= tolerance {
			return fmt.Errorf("the play differs from the scenario (-scenario +play):\n%s", diff)
		}
		t.Logf("a message was %v off its time: the scenario is played again", late)
	}
	return fmt.Errorf("in %d tries some message was always off its time", tries)
}

// late returns how far the stamp furthest off is from its time.
func (p *play) late() time.Duration {
	var most time.Duration
	at := func(i int) wire.Time {
		if p.steps[i].subject == end {
			return wire.Time(p.sentAt[i].UnixMilli())
		}
		return p.stamps[i]
	}
	last, after := -1, 0
	for i, st := range p.steps {
		of := last
		if st.of > 0 {
			of, after = st.of-1, 0
		}
		after += st.after
		if of >= 0 {
			off := time.Duration(int(at(i)-at(of))-after) * time.Millisecond
			most = max(most, off, -off)
		}
		last, after = i, 0
	}
	return most
}

// asPlayed returns the scenario with the outcomes and expirations of this play.
func (p *play) asPlayed() scenario {
	s := p.scenario
	s.given, s.steps, s.expired = true, slices.Clone(s.steps), nil
	line := map[uint64]int{}
	for i := range s.steps {
		s.steps[i].status = p.outcomes[i].Status
		line[p.seqs[i]] = i + 1
	}
	expiries := slices.Clone(p.result.Model.Expiries)
	slices.SortFunc(expiries, func(a, b oracle.Expiry) int {
		return cmp.Or(cmp.Compare(a.ExpiredAt, b.ExpiredAt), cmp.Compare(a.Etag, b.Etag))
	})
	ended := wire.Time(p.sentAt[len(p.sentAt)-1].UnixMilli())
	for _, e := range expiries {
		if e.ExpiredAt > ended {
			continue // it expired while judge ran
		}
		s.expired = append(s.expired, fmt.Sprintf("%s %d", e.Name, line[uint64(e.Etag)]))
	}
	return s
}
