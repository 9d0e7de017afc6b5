package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// TestTeethFit: each tooth is there once, fits the file that it changes, and leaves a file
// that Go can parse. It fails when lapse was changed and its tooth was not.
func TestTeethFit(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(teeth) < 28 {
		t.Errorf("there are %d teeth, and 28 are the least", len(teeth))
	}
	seen := map[string]bool{}
	for _, tooth := range teeth {
		if seen[tooth.name] {
			t.Errorf("there are two teeth %s", tooth.name)
		}
		seen[tooth.name] = true
		if tooth.before == tooth.after || tooth.breaks == "" || tooth.effect == "" {
			t.Errorf("tooth %s breaks nothing, or does not tell what", tooth.name)
		}
		changed, err := tooth.bite(root)
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
		out     string
		passed  bool
		want    verdict
		wantErr bool
	}{
		{"    x_test.go:9: seed 12 failed: H1: a/1 is stored twice\n--- FAIL", false, verdict{true, "3", "H1: a/1 is stored twice"}, false},
		{"seed 10 failed:\n    H2: early\n", false, verdict{true, "1", "H2: early"}, false},
		{"    x_test.go:9: 50 histories\nok", true, verdict{false, "more than 50", "not found"}, false},
		{"panic: deadlock\n\ngoroutine 1", false, verdict{true, "?", "the test ended: panic: deadlock"}, false},
		{"testing: warning: no tests to run\nok", true, verdict{}, true},
		{"owner.go:1: undefined: x\nFAIL [build failed]", false, verdict{}, true},
	} {
		got, err := judge(c.out, c.passed, 10)
		if got != c.want || (err != nil) != c.wantErr {
			t.Errorf("judge(%q) = %+v, %v, and should be %+v", c.out, got, err, c.want)
		}
	}
}
