package main

import (
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFind finds the operations of a package of testdata, which has a function for each way through statements.
func TestFind(t *testing.T) {
	all, err := find([]string{"./testdata/paths"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range all {
		names = append(names, strings.TrimPrefix(o.name, "integration/held/insert/testdata/paths."))
	}
	want := []string{"byInterface", "condition", "inBranch", "inFunction", "loop", "one.then", "orbit", "retry", "twice"}
	if !slices.Equal(names, want) {
		t.Errorf("found %v, want %v", names, want)
	}
}

// TestWrite writes a copy of that package: one call stands in front of each call, and the lines keep their numbers.
func TestWrite(t *testing.T) {
	all, err := find([]string{"./testdata/paths"})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := write(dir, all); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(filepath.Join(dir, "0.go"))
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
