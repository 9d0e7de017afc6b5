package integration

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// The scenarios that are kept come out as they tell, on miniredis and on
// redis-server, and the oracle agrees.
//
// It fails if a rule of the contract is broken that one of them is about: each
// says which in its first lines.
func TestAll_Scenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txt"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenarios, %v", len(files), err)
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
		for _, mini := range []bool{true, false} {
			what := fmt.Sprintf("%s (miniredis: %v)", filepath.Base(file), mini)
			all.Go(func() {
				if err := st.replay(t, s, mini); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
	}
	all.Wait()
}

// tolerance is how far a message may be from its time for a replay to mean
// anything; what is told in a scenario leaves more than that.
const tolerance = 150 * time.Millisecond

// replay plays a scenario until all messages come in time, and compares what
// came out with what is told.
func (st *stage) replay(t *testing.T, s scenario, mini bool) error {
	const tries = 5
	for range tries {
		p, err := st.play(t.Context(), s, mini)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, p.log.String())
		}
		if len(p.findings) > 0 {
			tell(t, p, "replay")
			return nil
		}
		late := p.late()
		if late > tolerance {
			t.Logf("a message came %v late: once more", late)
			continue
		}
		if diff := gocmp.Diff(s.String(), p.toldBy().String()); s.told && diff != "" {
			return fmt.Errorf("it came out otherwise (-told +got):\n%s", diff)
		}
		return nil
	}
	return fmt.Errorf("in %d tries the messages never came in time", tries)
}

// late is by how much the stamp furthest off is off.
func (p *play) late() time.Duration {
	var most time.Duration
	last, after := -1, 0
	for i, st := range p.steps {
		of := last
		if st.of > 0 {
			of, after = st.of-1, 0
		}
		after += st.after
		if st.subject == end {
			continue
		}
		if of >= 0 {
			off := time.Duration(int(p.stamps[i]-p.stamps[of])-after) * time.Millisecond
			most = max(most, off, -off)
		}
		last, after = i, 0
	}
	return most
}

// toldBy is the scenario as this play would tell it.
func (p *play) toldBy() scenario {
	s := p.scenario
	s.told, s.steps, s.expired = true, slices.Clone(s.steps), nil
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
			continue // while it was judged
		}
		s.expired = append(s.expired, fmt.Sprintf("%s %d", e.Name, line[uint64(e.Etag)]))
	}
	return s
}
