package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestCheck: what is wrong is found, and nothing else.
func TestCheck(t *testing.T) {
	got, err := check(fstest.MapFS{
		"good/good.go": {Data: []byte(`// Package good has a [Door], and uses [other.Open].
package good

import "example.org/m/other"

// A Door is opened by [Door.Open], as [strings.Builder] is not.
type Door struct{ other.Lock }

// Open opens: docs[i], [key](value) and []byte are no links.
func (d *Door) Open() {}

// These are all.
const (
	a = 1 // one
)

// shut is a door that is shut: [Door.Lock].
var shut Door
`)},
		"good/good_test.go":      {Data: []byte("package good_test\n\n// A door opens.\nfunc TestDoor() {}\n")},
		"good/testdata/wrong.go": {Data: []byte("package p\n\n// Wrong.\nfunc f() {}\n")},
		"other/other.go":         {Data: []byte("package other\n\nfunc Open() {}\n\ntype Lock struct{}\n")},
		"wrong/wrong.go": {Data: []byte(`// Package wrong is what [Nothing] has: [other.Closed].
package wrong

import "example.org/m/other"

// Opens opens.
func open() { other.Open() }

// The window.
type door struct{}

// ` + strings.Repeat("é", 118) + `
`)},
		"wrong/wrong_test.go": {Data: []byte("package wrong\n\n// TestGate opens.\nfunc TestDoor() {}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`wrong/wrong.go:12: 121 columns, and 120 are allowed`,
		`wrong/wrong.go:1: [Nothing] names nothing`,
		`wrong/wrong.go:1: [other.Closed] names nothing`,
		`wrong/wrong.go:6: the comment of open begins with "Opens"`,
		`wrong/wrong.go:9: the comment of door begins with "window"`,
		`wrong/wrong_test.go:3: the comment of TestDoor begins with "TestGate"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
