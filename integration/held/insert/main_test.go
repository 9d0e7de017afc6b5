package main

import (
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed18712806/lapse/integration/held"
)

// paths are the operations of a package of testdata.
var paths = sync.OnceValues(func() ([]operation, error) { return find([]string{"./testdata/paths"}) })

// TestFind finds the operations of a package of testdata, which has a function for each way through statements.
func TestFind(t *testing.T) {
	all, err := paths()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, strings.TrimPrefix(o.name, "integration/held/insert/testdata/paths."))
	}
	want := []string{"byInterface", "condition", "extension", "inBranch", "inFunction", "loop", "one.then", "retry", "twice"}
	if !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", names, want)
	}
}

// TestWrite writes a copy of that package: one call stands in front of each call, and the lines keep their numbers.
func TestWrite(t *testing.T) {
	all, err := paths()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := write(dir, all); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(dir, "paths-paths.go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := format.Source(copied); err != nil {
		t.Errorf("the copy does not parse: %v", err)
	}
	original, err := os.ReadFile("testdata/paths/paths.go")
	if err != nil {
		t.Fatal(err)
	}
	lines, before := strings.Split(string(copied), "\n"), strings.Split(string(original), "\n")
	if len(lines) != len(before) {
		t.Fatalf("the copy has %d lines, the original %d", len(lines), len(before))
	}
	for i, line := range before {
		held := strings.Contains(lines[i], "heldOperation.Call()")
		if want := strings.HasSuffix(line, "// held"); held != want {
			t.Errorf("line %d: %s: held %t, want %t", i+1, line, held, want)
		}
	}
}

// TestCompare: a list is red that lacks an operation, or has one that is gone.
func TestCompare(t *testing.T) {
	all, err := paths()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, o := range all {
		lines = append(lines, o.name+": write")
	}
	if err := compare(all, lines); err != nil {
		t.Errorf("a list of all: %v", err)
	}
	for _, c := range []struct {
		lines []string
		want  string
	}{{lines[1:], all[0].name + " ("}, {append(lines, "gone: write"), "gone makes no more than one call"}} {
		if err := compare(all, c.lines); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: want an error that begins with %q", err, c.want)
		}
	}
}

// TestCheck: an operation is red within which nothing has happened, although it made its calls.
func TestCheck(t *testing.T) {
	was := leftOut
	leftOut = nil
	defer func() { leftOut = was }()
	all, err := paths()
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string][]string{}
	for _, o := range all {
		kinds[o.name] = []string{held.Calls, held.Write.String()}
	}
	if err := check(all, kinds); err != nil {
		t.Errorf("something in each: %v", err)
	}
	kinds[all[0].name] = []string{held.Calls}
	if err := check(all, kinds); err == nil || !strings.Contains(err.Error(), "in 1 of") {
		t.Errorf("%v, want an error about one operation", err)
	}
}
