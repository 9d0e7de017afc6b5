package console

import (
	"errors"
	"os"
	"regexp"
	"testing"
)

// TestEveryProblem: each problem of the runbook has a remedy, and no other has.
func TestEveryProblem(t *testing.T) {
	runbook, err := os.ReadFile("../../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^### Problem: (.*)$`).FindAllSubmatch(runbook, -1) {
		names[string(match[1])] = true
		if remedies[string(match[1])] == "" {
			t.Errorf("%q has no remedy", match[1])
		}
	}
	for name := range remedies {
		if !names[name] {
			t.Errorf("%q is no problem of the runbook", name)
		}
	}
}

func TestOf(t *testing.T) {
	got := troublesOf(errors.New("disk: it is full: really\nshard 3: Redis: it is away\nshards 0 and 2: overdue: by 7s\n4 partitions have not applied the log yet"))
	want := []string{remedies["disk"], remedies["Redis"], remedies["overdue"], states["have not applied the log yet"]}
	if len(got) != len(want) || troublesOf(nil) != nil {
		t.Fatalf("%+v", got)
	}
	for i, w := range want {
		if got[i].Advice != w {
			t.Errorf("%q: %q", got[i].Text, got[i].Advice)
		}
	}
}
