package fold_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFoldIsPure: the package imports nothing that could give two runs of the same messages two
// results. The data that it shares with others comes from the packages of its own module that are
// named here.
func TestFoldIsPure(t *testing.T) {
	const module = "github.com/seed18712806/lapse/"
	pure := map[string]bool{
		"bytes": true, "cmp": true, "container/heap": true, "encoding/json": true, "errors": true, "fmt": true,
		"iter": true,
		"maps": true, "math": true, "slices": true, "strconv": true, "strings": true, "unicode": true,
		"unicode/utf8":      true,
		module + "ttlrules": true, module + "sink/wire": true, module + "sink/entries": true,
		module + "sink/store": true, module + "sink/events": true, // what they store, as plain data
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !pure[path] {
				t.Errorf("%s imports %s", name, path)
			}
		}
	}
}
