package main

import (
	"strings"
	"testing"
	"time"
)

// TestMutate checks that the tests of a package catch what they assert, that an endless loop counts as caught,
// and that the rest survives.
func TestMutate(t *testing.T) {
	t.Chdir("../..")
	r := room{name: "toy", dir: "integration/mutate/testdata/toy"}
	all, err := choose(r, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	o := options{limit: time.Minute, budget: time.Minute, cache: t.TempDir()}
	j, err := newJudge(t.Context(), o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j.slack = 10 * time.Second
	want := map[string]string{
		"sum: condition negated":       byOwn,
		"sum: break and continue":      byOwn,
		"count: deferred call removed": byOwn,
		"count: statement removed":     byLimit,
		"untested: zero returned":      bySurvival,
		"Lua: one more: `1` -> `2`":    byOwn,
		"Lua: call removed":            bySurvival,
	}
	unreached := 0
	for _, m := range all {
		for what, by := range want {
			if !strings.Contains(m.String(), what) || strings.Contains(m.function, "KEYS[1]") && by == byOwn {
				continue
			}
			delete(want, what)
			got, why, err := j.try(t.Context(), r, m)
			if got != by || err != nil {
				t.Errorf("%v: %s %s, %v, and should be %s", m, got, why, err, by)
			}
			if why == "no test reaches it" {
				unreached++
			}
		}
	}
	if unreached != 1 {
		t.Errorf("%d mutations are in lines that no test reaches, and only untested is such", unreached)
	}
	if len(want) > 0 {
		t.Errorf("there is no mutation for %v, only %v", want, all)
	}
}

// TestNone checks that no mutation at all is refused.
func TestNone(t *testing.T) {
	if err := run(t.Context(), options{}); err == nil || !strings.Contains(err.Error(), "-n 0 is not valid") {
		t.Error(err)
	}
}

// TestChoose checks that a seed chooses the same mutations of a room, as many as it should.
func TestChoose(t *testing.T) {
	r := room{name: "toy", dir: "testdata/toy"}
	texts := func(seed uint64) (texts []string) {
		all, err := choose(r, seed, 5)
		if err != nil || len(all) != 5 {
			t.Fatal(all, err)
		}
		for _, m := range all {
			texts = append(texts, m.String())
		}
		return texts
	}
	one := strings.Join(texts(1), "\n")
	if again := strings.Join(texts(1), "\n"); again != one {
		t.Errorf("seed 1 chooses\n%s\nand then\n%s", one, again)
	}
	if other := strings.Join(texts(2), "\n"); other == one {
		t.Errorf("seeds 1 and 2 choose\n%s", one)
	}
}
