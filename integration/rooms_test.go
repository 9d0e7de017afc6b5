package integration

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/seed18712806/lapse"

// mayImport lists, for each folder at the top, the folders from which its packages may import.
// Packages outside of the module are not restricted, but for ttlrules.
var mayImport = map[string][]string{
	"ttlrules":    {},
	"sink":        {"ttlrules", "sink"},
	"processor":   {"ttlrules", "sink", "processor"},
	"cmd":         {"ttlrules", "sink", "processor", "cmd"},
	"deploy":      {"ttlrules", "sink"},
	"integration": {"ttlrules", "sink", "processor", "cmd", "integration"},
}

// clienttest is for tests alone: it runs a lapse, and nothing but a test imports it.
const clienttest = "sink/client/clienttest"

// mustNotImport lists packages that must not import each other although they share a folder:
// a reader does not know how documents are written.
var mustNotImport = map[string]string{
	"sink":       "sink/store",
	"sink/store": "sink",
}

// tracing alone imports OpenTelemetry, so that whoever does not trace pays nothing.
const tracing = "cmd/internal/tracing"

// The limits of a file and of a function. Test files do not count.
const (
	mostFileLines     = 500
	mostFunctionLines = 80
)

// source is a Go file that is not a test.
type source struct {
	path  string // in the module
	lines int
	set   *token.FileSet
	file  *ast.File
}

func (s source) dir() string { return path.Dir(s.path) }

// sources parses the Go files of a module, for whatever platform they are.
func sources(t *testing.T, module fs.FS) (all []source) {
	t.Helper()
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "lapse-data"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, ".go") || strings.HasSuffix(base, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		all = append(all, source{name, bytes.Count(text, []byte("\n")), set, file})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// wrongImports lists the imports that go against the direction.
func wrongImports(all []source) (wrong []string) {
	for _, s := range all {
		folder, _, _ := strings.Cut(s.path, "/")
		for _, spec := range s.file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			imported, inside := strings.CutPrefix(name, module+"/")
			to, _, _ := strings.Cut(imported, "/")
			host, _, _ := strings.Cut(name, "/")
			switch {
			case imported == clienttest:
				wrong = append(wrong, fmt.Sprintf("%s imports %s: only tests may", s.path, imported))
			case host == "go.opentelemetry.io" && s.dir() != tracing:
				wrong = append(wrong, fmt.Sprintf("%s imports %s: only %s may", s.path, name, tracing))
			case s.dir() == clienttest && to == "processor":
			case inside && !slices.Contains(mayImport[folder], to):
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s may import from %v", s.path, imported, folder,
					mayImport[folder]))
			case inside && mustNotImport[s.dir()] == imported:
				wrong = append(wrong, fmt.Sprintf("%s imports %s: neither of %s and %s may import the other", s.path,
					imported, s.dir(), imported))
			case !inside && folder == "ttlrules" && strings.Contains(host, "."):
				wrong = append(wrong, fmt.Sprintf("%s imports %s: ttlrules may only import the standard library",
					s.path, name))
			}
		}
	}
	return wrong
}

// tooLarge lists the files and functions that are over a limit.
func tooLarge(all []source) (large []string) {
	for _, s := range all {
		if s.lines > mostFileLines {
			large = append(large, fmt.Sprintf("%s has %d lines, and %d are allowed: divide it", s.path, s.lines,
				mostFileLines))
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1
			if lines > mostFunctionLines {
				large = append(large, fmt.Sprintf("%s: function %s has %d lines, and %d are allowed: divide it", s.path,
					f.Name.Name, lines, mostFunctionLines))
			}
		}
	}
	slices.Sort(large)
	return large
}

// TestImportsGoOneWay: ttlrules imports the standard library alone, sink imports ttlrules,
// processor imports both, cmd imports all three, and none of them imports integration.
func TestImportsGoOneWay(t *testing.T) {
	for _, wrong := range wrongImports(sources(t, os.DirFS(".."))) {
		t.Error(wrong)
	}
}

// TestFilesAndFunctionsAreSmall: no file and no function is over its limit.
func TestFilesAndFunctionsAreSmall(t *testing.T) {
	for _, large := range tooLarge(sources(t, os.DirFS(".."))) {
		t.Error(large)
	}
}

// TestRoomsAreChecked: the two tests before find what they look for, in a module that is all
// wrong.
func TestRoomsAreChecked(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	imports := func(name string) *fstest.MapFile { return file("package p\n\nimport _ \"" + name + "\"\n") }
	lines := func(n int) *fstest.MapFile { return file("package p\n" + strings.Repeat("\n", n-1)) }
	all := sources(t, fstest.MapFS{
		"ttlrules/std.go":               imports("strings"),
		"ttlrules/far.go":               imports("golang.org/x/sync/errgroup"),
		"ttlrules/up.go":                imports(module + "/sink/wire"),
		"sink/up.go":                    imports(module + "/processor/lease"),
		"sink/down.go":                  imports(module + "/ttlrules"),
		"sink/store.go":                 imports(module + "/sink/store"),
		"sink/test_test.go":             imports(module + "/integration/harness"),
		"sink/service/aside.go":         imports(module + "/sink/store"),
		"sink/client/clienttest/up.go":  imports(module + "/processor"),
		"sink/client/clienttest/far.go": imports(module + "/cmd/lapse"),
		"cmd/tests.go":                  imports(module + "/sink/client/clienttest"),
		"processor/internal/feed/up.go": imports(module + "/cmd/internal/client"),
		"cmd/internal/tracing/otel.go":  imports("go.opentelemetry.io/otel"),
		"cmd/internal/serve/otel.go":    imports("go.opentelemetry.io/otel/trace"),
		"cmd/up.go":                     imports(module + "/integration/harness"),
		"integration/all.go":            imports(module + "/cmd/internal/client"),
	})
	want := []string{
		"cmd/internal/serve/otel.go imports go.opentelemetry.io/otel/trace",
		"cmd/tests.go imports sink/client/clienttest",
		"cmd/up.go imports integration/harness",
		"processor/internal/feed/up.go imports cmd/internal/client",
		"sink/client/clienttest/far.go imports cmd/lapse",
		"sink/store.go imports sink/store",
		"sink/up.go imports processor/lease",
		"ttlrules/far.go imports golang.org/x/sync/errgroup",
		"ttlrules/up.go imports sink/wire",
	}
	if diff := cmp.Diff(want, beginnings(wrongImports(all), ":")); diff != "" {
		t.Errorf("wrong imports:\n%s", diff)
	}
	function := func(n int) *fstest.MapFile {
		return file("package p\n\nfunc f() {\n" + strings.Repeat("\n", n-2) + "}\n")
	}
	all = sources(t, fstest.MapFS{
		"a/a.go":          lines(500),
		"a/b.go":          lines(501),
		"a/test_test.go":  lines(5000),
		"b/testdata/a.go": lines(5000),
		"c/few.go":        function(80),
		"c/many.go":       function(81),
	})
	want = []string{
		"a/b.go has 501 lines",
		"c/many.go: function f has 81 lines",
	}
	if diff := cmp.Diff(want, beginnings(tooLarge(all), ", and")); diff != "" {
		t.Errorf("too large:\n%s", diff)
	}
}

// beginnings are the messages up to a mark, sorted.
func beginnings(messages []string, mark string) (begin []string) {
	for _, m := range messages {
		m, _, _ = strings.Cut(m, mark)
		begin = append(begin, m)
	}
	slices.Sort(begin)
	return begin
}
