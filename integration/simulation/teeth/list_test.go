package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// TestTeethFit: each tooth fits the file that it changes, and leaves a file that Go can
// parse. It fails when lapse was changed and its tooth was not.
func TestTeethFit(t *testing.T) {
	seen := map[string]bool{}
	for _, tooth := range teeth {
		if seen[tooth.name] || tooth.before == tooth.after {
			t.Errorf("tooth %s is there twice, or changes nothing", tooth.name)
		}
		seen[tooth.name] = true
		changed, err := tooth.bite("../../..")
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), tooth.file, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("tooth %s: %v", tooth.name, err)
		}
	}
}

// TestJudge: a tooth counts as found only if a history failed or the run crashed, and as not
// found only if the histories ran.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		out    string
		passed bool
		want   verdict
		ran    bool
	}{
		{"    x_test.go:9: seed 12 failed: H1: twice\n--- FAIL", false, verdict{true, "3", "H1: twice"}, true},
		{"seed 10 failed:\n    H2: early\n", false, verdict{true, "1", "H2: early"}, true},
		{"    x_test.go:9: 50 histories\nok", true, verdict{false, "more than 50", "not found"}, true},
		{"    x_test.go:9: 50 histories\n x_test.go:9: testdata/a.plan: H1: twice\n--- FAIL", false, verdict{true, "a kept plan", "H1: twice (a.plan)"}, true},
		{"seed 12 failed: H1: twice\ntestdata/a.plan: H2: early\n--- FAIL", false, verdict{true, "3", "H1: twice"}, true},
		{"exit status 2\n        panic: deadlock\n\ngoroutine 1", false, verdict{true, "?", "the test ended: panic: deadlock"}, true},
		{"testing: warning: no tests to run\nok", true, verdict{}, false},
		{"owner.go:1: undefined: x\nFAIL [build failed]", false, verdict{}, false},
	} {
		if got, err := judge(c.out, c.passed, 10); got != c.want || (err == nil) != c.ran {
			t.Errorf("judge(%q) = %+v, %v, and should be %+v", c.out, got, err, c.want)
		}
	}
}
