package simulation_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/simulation"
)

var (
	seeds = flag.Int("seeds", 0, "run so many histories; 0: as many as fit into -for")
	from  = flag.Uint64("from", 0, "the first seed; 0: a random one")
	limit = flag.Duration("for", 30*time.Second, "how long to run histories")
	logs  = flag.Bool("logs", false, "with TestReplay: show what the processes log")
	plan  = flag.String("plan", "", "with TestReplay: the file of a plan, or a seed")
)

const workers = 2

// TestSeeds runs histories of fresh seeds, and fails with the shrunk plan of the first that
// breaks a rule.
func TestSeeds(t *testing.T) {
	first := *from
	if first == 0 {
		first = rand.Uint64N(1 << 48)
	}
	until := time.Now().Add(*limit)
	var mu sync.Mutex
	next, all, broken := first, counts{faults: map[string]int{}}, uint64(0)
	var why error
	began := time.Now()
	t.Run("histories", func(t *testing.T) {
		for range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					seed := next
					next++
					over := why != nil || *seeds > 0 && seed-first >= uint64(*seeds) || *seeds == 0 && time.Now().After(until)
					mu.Unlock()
					if over {
						return
					}
					r := simulation.Run(t, simulation.Generate(seed), simulation.Options{})
					mu.Lock()
					all.add(r)
					if r.Broken != nil && (why == nil || seed < broken) {
						broken, why = seed, r.Broken
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d histories from seed %d, %.0f a second, %s", all.histories, first, float64(all.histories)/time.Since(began).Seconds(), all)
	if why == nil {
		return
	}
	t.Errorf("seed %d failed: %v", broken, why)
	if *seeds > 0 {
		return // the teeth need no more
	}
	short := simulation.Shrink(simulation.Generate(broken), func(p *simulation.Plan) error {
		return simulation.Run(t, p, simulation.Options{}).Broken
	})
	file := filepath.Join(os.TempDir(), fmt.Sprintf("lapse-seed-%d.plan", broken))
	text := fmt.Sprintf("# %v\n%s", simulation.Run(t, short, simulation.Options{}).Broken, short)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	t.Errorf("the shortest plan that breaks it is in %s (go test ./integration/simulation -run TestReplay -v -plan %s):\n%s", file, file, text)
}

// counts count what happened in histories.
type counts struct {
	histories, messages, events int
	took                        time.Duration
	faults                      map[string]int
}

func (c *counts) add(r simulation.Result) {
	c.histories++
	c.messages += r.Messages
	c.events += r.Events
	c.took += r.Took
	for kind, n := range r.Faults {
		c.faults[kind] += n
	}
}

func (c counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d messages, %d steps of the world, %s of its time;", c.messages, c.events, c.took.Round(time.Second))
	for _, kind := range slices.Sorted(maps.Keys(c.faults)) {
		fmt.Fprintf(&b, " %s %d", kind, c.faults[kind])
	}
	return b.String()
}

// TestSameTwice runs seeds twice, and compares the traces to the byte.
func TestSameTwice(t *testing.T) {
	first := rand.Uint64N(1 << 48)
	if *from != 0 {
		first = *from
	}
	for seed := first; seed < first+20; seed++ {
		var traces [2]strings.Builder
		for i := range traces {
			simulation.Run(t, simulation.Generate(seed), simulation.Options{Trace: &traces[i]})
		}
		a, b := strings.Split(traces[0].String(), "\n"), strings.Split(traces[1].String(), "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("seed %d: the runs differ at line %d of %d and %d:\n%s\n\n%s", seed, i+1, len(a), len(b), strings.Join(a[max(0, i-5):i+1], "\n"), b[i])
			}
		}
		if len(a) != len(b) {
			t.Fatalf("seed %d: one run has %d lines and the other %d", seed, len(a), len(b))
		}
	}
}

// TestKept runs the plans in testdata, each of which broke a rule once.
func TestKept(t *testing.T) {
	files, err := filepath.Glob("testdata/*.plan")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if r := simulation.Run(t, read(t, file), simulation.Options{}); r.Broken != nil {
			t.Errorf("%s: %v", file, r.Broken)
		}
	}
}

// TestReplay shows what happens in a plan or with a seed.
func TestReplay(t *testing.T) {
	if *plan == "" {
		t.Skip("no -plan")
	}
	var trace strings.Builder
	o := simulation.Options{Trace: &trace}
	if *logs {
		o.Logs = &trace
	}
	p := &simulation.Plan{}
	var seed uint64
	if _, err := fmt.Sscanf(*plan, "%d", &seed); err == nil {
		p = simulation.Generate(seed)
	} else {
		p = read(t, *plan)
	}
	r := simulation.Run(t, p, o)
	t.Logf("%s", trace.String())
	if r.Broken != nil {
		t.Error(r.Broken)
	}
}

func read(t *testing.T, file string) *simulation.Plan {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := simulation.ParsePlan(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}
