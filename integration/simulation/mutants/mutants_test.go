package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// example is a module with a test that asserts some of what its package does.
var example = map[string]string{
	"go.mod": "module example\n\ngo 1.26\n",
	"a/a.go": `package a

import _ "embed"

//go:embed a.lua
var source string

func Sum(most int) (sum int) {
each:
	for i := range most {
		if i > 2 {
			break each
		}
		sum += i
	}
	return sum
}

func Unreached(a, b int) bool { return a < b }

func Same(a int) int { return a * 1 }

func Ends(a int) {
	for a < 3 {
		a++
	}
}
`,
	"a/a.lua": "-- 0 == 0\nlocal n = 1\nredis.call('SET', KEYS[1], n)\nreturn n\n",
	"a/a_test.go": `package a

import (
	"strings"
	"testing"
)

func TestA(t *testing.T) {
	if Sum(9) != 3 || !strings.Contains(source, "n = 1") {
		t.Fatal(Sum(9), source)
	}
	Ends(1)
	Same(1)
}

func TestFails(t *testing.T) { t.Fatal() }
`,
}

// TestMutants: what a test asserts is caught, an endless loop hangs, what compiles to the same
// does not count, and the rest survives. A test that fails anyway catches nothing.
func TestMutants(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range example {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := room{name: "a", dirs: []string{"a"}}
	all, err := choose(root, r, 1, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := plant(root, dir, all)
	if err != nil {
		t.Fatal(err)
	}
	j := judge{root: root, dir: dir, overlay: overlay, options: options{limit: 10 * time.Second, slack: time.Second}, programs: map[string]*program{}}
	want := map[string]string{
		"Sum: boundary moved":      "own",
		"Sum: zero returned":       "own",
		"Sum: statement removed":   "own",
		"Unreached: zero returned": "survived",
		"Same: operator swapped":   "same",
		"Ends: statement removed":  "hang",
		"Lua: constant changed":    "own",
		"Lua: call removed":        "survived",
	}
	for _, m := range all {
		for what, by := range want {
			if !strings.Contains(m.String(), what) || strings.Contains(m.was, "KEYS[1]") && by == "own" {
				continue
			}
			delete(want, what)
			if got, why, err := j.try(t.Context(), r, m); got != by || err != nil {
				t.Errorf("%v: %s %s, %v, and should be %s", m, got, why, err, by)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no mutation for %v", want)
	}
}

// TestDispatch: the changed body comes first, and its labels are its own.
func TestDispatch(t *testing.T) {
	const text = "func f() { a: for { break a } }"
	m := &mutation{id: 7, edit: edit{20, 25, "continue"}, body: [2]int{10, 30}, labels: []int{12, 27}, ends: true}
	got := string(apply([]byte(text), dispatch([]byte(text), m)))
	const want = "func f() { if mutantIs(7) { aOf7: for { continue aOf7 }\nreturn }\n a: for { break a } }"
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
